#include "cli/help_style.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <utility>

#include "cli/terminal.h"

namespace fsdp2::cli {

namespace {

constexpr size_t kMostColumns = 100;
constexpr size_t kLeastColumns = 60;
// Where the meaning of an option begins: beside its name, or below it on a narrow terminal.
constexpr size_t kMeaningColumn = 44;
constexpr size_t kLowerMeaningColumn = 6;
constexpr size_t kColumnsForBoth = 80;

size_t columns_of_help() {
  const auto terminal = static_cast<size_t>(terminal_columns(STDOUT_FILENO));
  return terminal == 0 ? kMostColumns : std::clamp(terminal, kLeastColumns, kMostColumns);
}

// The words of `text`, after `line`. Further lines begin with `indent` spaces.
std::string wrapped(std::string line, const std::string& text, size_t indent, size_t columns) {
  std::string lines;
  bool has_words = false;
  std::istringstream words(text);
  for (std::string word; words >> word; has_words = true) {
    if (has_words && line.size() + 1 + word.size() > columns) {
      lines += std::exchange(line, std::string(indent, ' ')) + "\n";
      has_words = false;
    }
    line += (has_words ? " " : "") + word;
  }
  return lines + line + "\n";
}

class HelpStyle : public CLI::Formatter {
 public:
  explicit HelpStyle(std::string usage) : usage_(std::move(usage)), columns_(columns_of_help()) {}

  std::string make_description(const CLI::App* app) const override {
    return wrapped("", app->get_description(), 0, columns_);
  }

  std::string make_usage(const CLI::App* app, std::string /*name*/) const override {
    return wrapped("Usage: " + app->get_name() + " ", usage_, kLowerMeaningColumn, columns_);
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const size_t column = columns_ < kColumnsForBoth ? kLowerMeaningColumn : kMeaningColumn;
    std::string name = "  " + make_option_name(option, is_positional) +
                       (is_positional ? "" : make_option_opts(option));
    std::string above;
    if (name.size() >= column) {
      above = std::exchange(name, "") + "\n";
    }
    name.resize(column, ' ');
    return above + wrapped(name, make_option_desc(option), column, columns_);
  }

  // Lines that begin with a space are commands, and stay as they are.
  std::string make_footer(const CLI::App* app) const override {
    std::string footer;
    std::string paragraph;
    std::istringstream lines(app->get_footer());
    for (std::string line; std::getline(lines, line);) {
      const bool is_text = !line.empty() && line.front() != ' ';
      if (is_text) {
        paragraph += line + " ";
        continue;
      }
      footer += (paragraph.empty() ? "" : wrapped("", std::exchange(paragraph, ""), 0, columns_));
      footer += line + "\n";
    }
    return footer + (paragraph.empty() ? "" : wrapped("", paragraph, 0, columns_));
  }

 private:
  std::string usage_;
  size_t columns_;
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_style(const std::string& usage) {
  return std::make_shared<HelpStyle>(usage);
}

}  // namespace fsdp2::cli
