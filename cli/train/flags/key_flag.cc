#include "cli/train/flags/key_flag.h"

#include <string>
#include <variant>

#include "cli/arguments.h"

namespace fsdp2::cli {

namespace {

using config::Key;

template <typename... Visitors>
struct Overload : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overload(Visitors...) -> Overload<Visitors...>;

// What help shows for the value.
std::string placeholder(const Key& key) {
  const std::string kind =
      std::visit(Overload{[](std::string*) { return "TEXT"; }, [](double*) { return "X"; },
                          [](bool*) { return ""; }, [](auto*) { return "N"; }},
                 key.value);
  const std::string value = key.value_text();
  return kind + (value.empty() ? "" : " (" + value + ")");
}

}  // namespace

void add_flag(CLI::App* app, const Key& key) {
  const std::string help = help_with_choices(key.help, key.choices);
  const std::string flag = key.flag();
  CLI::Option* option = std::visit(
      Overload{[&](bool* value) { return app->add_flag(flag, *value, help); },
               [&](std::string* value) {
                 CLI::Option* const text = app->add_option(flag, *value, help);
                 // The library compares it on all ranks, and opens what it names.
                 if (key.same_on_all_ranks) {
                   as_utf8(text);
                 }
                 return (key.is_path ? as_path(text) : text)->option_text(placeholder(key));
               },
               [&](auto* value) {
                 return add_number(*app, flag, value, help)->option_text(placeholder(key));
               }},
      key.value);
  option->group(key.group);
  if (!key.choices.empty()) {
    option->check(one_of(key.choices));
  }
}

void note_given_flags(const CLI::App& app, config::Plan* plan) {
  for (const Key& key : config::train_keys(&plan->options)) {
    const CLI::Option* option = app.get_option_no_throw(key.flag());
    if (option != nullptr && option->count() > 0) {
      plan->origins[key.name] = "override: " + key.flag();
    }
  }
}

}  // namespace fsdp2::cli
