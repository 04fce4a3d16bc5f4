#include "cli/train/flags/options.h"

#include <utility>

#include "cli/arguments.h"
#include "cli/train/flags/option_checks.h"
#include "core/config/key_table.h"

namespace fsdp2::cli {

namespace {

using config::Key;
using config::train_keys;

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

void add_flag(CLI::App* app, const Key& key) {
  const std::string help = help_with_choices(key.help, key.choices);
  const std::string flag = key.flag();
  CLI::Option* option = std::visit(
      Overload{[&](bool* value) { return app->add_flag(flag, *value, help); },
               [&](std::string* value) {
                 return app->add_option(flag, *value, help)->option_text(placeholder(key));
               },
               [&](auto* value) {
                 return add_number(*app, flag, value, help)->option_text(placeholder(key));
               }},
      key.value);
  option->group(key.group);
  if (!key.choices.empty()) {
    option->check(CLI::IsMember(key.choices));
  }
}

}  // namespace

Request parse_train_options(std::vector<std::string> arguments, TrainOptions* out) {
  TrainOptions options;
  bool version = false;
  CLI::App app("Trains a decoder language model, sharded over the ranks of the job.",
               "fsdp2 train");
  set_style(app, "(--model DIR|FILE.pt2 | --config FILE) (--tokens FILE | --text FILE) [OPTIONS]");
  app.add_flag("--version", version, "Print the versions of this program and of LibTorch and exit");
  for (const Key& key : train_keys(&options)) {
    add_flag(&app, key);
  }
  app.footer(
      "Rank 0 writes one JSON line per step and a summary at the end. A rank learns who it is "
      "from\n"
      "the environment that fsdp2 run, torchrun, srun or mpirun sets; without one it is alone.\n\n"
      "  fsdp2 run --nproc-per-node 2 -- fsdp2 train --model DIR --tokens data.bin --steps 100");
  if (!parse_arguments(app, std::move(arguments))) {
    return Request::kHelpPrinted;
  }
  if (version) {
    return Request::kVersion;
  }
  check_options(options);
  *out = std::move(options);
  return Request::kTrain;
}

}  // namespace fsdp2::cli
