#include "core/exported/script/script_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ckpt/value/printable_name.h"
#include "core/exported/script/script_source.h"

namespace fsdp2::exported {

namespace {

using ckpt::printable_name;

constexpr std::string_view kRoot = "__torch__";
// A definition takes this by itself, and what check_nesting counts of it besides. LibTorch needs
// less than 2 KiB of stack for each.
constexpr int64_t kOwnDepth = 20;
constexpr int64_t kMaxDepth = 10000;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string_view word_at(std::string_view text, size_t begin) {
  size_t end = begin;
  while (end < text.size() && is_word(text[end])) {
    ++end;
  }
  return text.substr(begin, end - begin);
}

struct Definition {
  enum class State { kNew, kOpen, kDone };  // kOpen: what it names is being looked at

  std::set<std::string_view> named;  // keys of the table of definitions
  int64_t depth = 0;
  State state = State::kNew;
  int64_t depth_with_named = 0;  // of kDone
};

class Definitions {
 public:
  explicit Definitions(const std::string& title) : title_(title) {}

  // Takes the functions and classes of a source, which begin in the first column.
  void add(const std::string& name_space, std::string_view source) {
    std::string name;
    size_t begin = 0;
    for (size_t line = 0; line < source.size(); line = end_of_line(source, line)) {
      const std::string_view word = word_at(source, line);
      if (word == "def" || word == "class") {
        close(name, source.substr(begin, line - begin));
        name = name_space + "." + name_after(source, line + word.size());
        begin = line;
      } else {
        check_is_inside(name_space, source, line, /*is_in_front=*/name.empty());
      }
    }
    close(name, source.substr(begin));
  }

  void check() {
    for (const auto& [name, texts] : texts_) {
      for (const std::string_view text : texts) {
        find_named(text, definitions_.at(name));
      }
    }
    for (auto& [name, definition] : definitions_) {
      depth_of(name, definition, /*above=*/0);
    }
  }

 private:
  static size_t end_of_line(std::string_view source, size_t line) {
    const size_t end = source.find('\n', line);
    return end == std::string_view::npos ? source.size() : end + 1;
  }

  std::string name_after(std::string_view source, size_t at) const {
    const std::string_view name =
        word_at(source, std::min(source.find_first_not_of(" \t", at), source.size()));
    FSDP2_CHECK(!name.empty(), Code::kUnsupported,
                "{}: a definition has no name on its line, which torch.jit.save never writes",
                title_);
    return std::string(name);
  }

  // Other lines are parts of a definition, or imports and versions in front of all.
  void check_is_inside(const std::string& name_space, std::string_view source, size_t line,
                       bool is_in_front) const {
    const std::string_view word = word_at(source, line);
    const bool is_indented = source[line] == ' ' || source[line] == '\t';
    const bool is_free =
        source[line] == '\n' || source[line] == '#' || word == "import" || word == "op_version_set";
    FSDP2_CHECK(is_free || (is_indented && !is_in_front), Code::kUnsupported,
                "{}: the code of {} has a line outside of functions and classes: {}", title_,
                printable_name(name_space),
                printable_name(source.substr(line, end_of_line(source, line) - line - 1)));
  }

  // A name that is defined twice stands for both.
  void close(const std::string& name, std::string_view text) {
    if (!name.empty()) {
      texts_[name].push_back(text);
      definitions_[name].depth += methods_in(text) * (kOwnDepth + check_nesting(text, title_));
    }
  }

  // At least 1.
  static int64_t methods_in(std::string_view text) {
    int64_t words = 0;
    for (size_t at = text.find("def"); at != std::string_view::npos;
         at = text.find("def", at + 3)) {
      words += (at == 0 || !is_word(text[at - 1])) && word_at(text, at) == "def" ? 1 : 0;
    }
    return std::max<int64_t>(1, words);
  }

  void find_named(std::string_view text, Definition& definition) const {
    for (size_t at = text.find(kRoot); at != std::string_view::npos;
         at = text.find(kRoot, at + kRoot.size())) {
      if ((at == 0 || !is_word(text[at - 1])) && word_at(text, at) == kRoot) {
        add_named(text, at, definition);
      }
    }
  }

  // The dotted name there, and each name that it begins with.
  void add_named(std::string_view text, size_t at, Definition& definition) const {
    std::string name(kRoot);
    bool is_found = false;
    for (at += kRoot.size(); at + 1 < text.size() && text[at] == '.' && is_word(text[at + 1]);) {
      const std::string_view word = word_at(text, at + 1);
      name += "." + std::string(word);
      at += 1 + word.size();
      const auto found = definitions_.find(name);
      if (found != definitions_.end()) {
        definition.named.insert(found->first);
        is_found = true;
      }
    }
    const auto inside = definitions_.lower_bound(name + ".");
    const bool is_name_space =
        inside != definitions_.end() && starts_with(inside->first, name + ".");
    FSDP2_CHECK(is_found || !is_name_space, Code::kUnsupported,
                "{}: its code names {} by itself, which torch.jit.save never writes", title_,
                printable_name(name));
  }

  // above: of the definitions that are open.
  int64_t depth_of(const std::string& name, Definition& definition, int64_t above) {
    FSDP2_CHECK(definition.state != Definition::State::kOpen, Code::kUnsupported,
                "{}: {} and others name one another in a circle", title_, printable_name(name));
    if (definition.state == Definition::State::kNew) {
      definition.state = Definition::State::kOpen;
      check_depth(name, above + definition.depth);
      int64_t deepest = 0;
      for (const std::string_view view : definition.named) {
        const std::string other(view);
        if (other != name) {
          deepest =
              std::max(deepest, depth_of(other, definitions_.at(other), above + definition.depth));
        }
      }
      definition.depth_with_named = definition.depth + deepest;
      definition.state = Definition::State::kDone;
    }
    check_depth(name, above + definition.depth_with_named);
    return definition.depth_with_named;
  }

  void check_depth(const std::string& name, int64_t depth) const {
    FSDP2_CHECK(depth <= kMaxDepth, Code::kUnsupported,
                "{}: {} is in a row of functions or classes that name one another and is too long "
                "for LibTorch's compiler",
                title_, printable_name(name));
  }

  const std::string& title_;
  std::map<std::string, Definition> definitions_;
  std::map<std::string, std::vector<std::string_view>> texts_;  // of each name
};

}  // namespace

void check_calls(const std::map<std::string, std::string>& sources, const std::string& title) {
  Definitions definitions(title);
  for (const auto& [name_space, source] : sources) {
    definitions.add(name_space, source);
  }
  definitions.check();
}

}  // namespace fsdp2::exported
