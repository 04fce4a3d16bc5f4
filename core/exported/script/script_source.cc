#include "core/exported/script/script_source.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

#include "core/base/error.h"

namespace fsdp2::exported {

namespace {

constexpr int kMaxBrackets = 200;    // inside one another
constexpr int kMaxLinks = 300;       // of an expression: an operator has what is beside it inside
constexpr int kMaxIndent = 200;      // columns, of which a block inside a block takes one at least
constexpr int kMaxElse = 100;        // an `elif` is a block inside the one before
constexpr int kMaxBlankLines = 200;  // in a row, which the lexer skips one inside the other

constexpr std::array<std::string_view, 8> kWordsThatLink = {"not", "if", "else", "and",
                                                            "or",  "in", "is",   "for"};

class Nesting {
 public:
  Nesting(std::string_view source, const std::string& title) : source_(source), title_(title) {}

  int check() {
    while (at_ < source_.size()) {
      take();
    }
    return most_links_ + most_brackets_ + most_columns_ + n_else_;
  }

 private:
  void take() {
    const char c = source_[at_];
    if (c == '\n') {
      end_line();
    } else if (c == '#') {
      take_comment();
    } else if (c == '\\') {
      skip_line_end();
      at_ += 2;  // the line goes on
    } else if (c == ' ' || c == '\t') {
      ++at_;
    } else {
      blank_lines_ = 0;
      take_token(c);
    }
  }

  void take_token(char c) {
    if (c == '"' || c == '\'') {
      take_text(c);
    } else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
      take_word();
    } else {
      ++at_;
      take_sign(c);
    }
  }

  void take_sign(char c) {
    if (is_open(c)) {
      link();
      outer_.push_back(links_);
      links_ = 0;
      most_brackets_ = std::max(most_brackets_, static_cast<int>(outer_.size()));
      check_at_most(kMaxBrackets, static_cast<int>(outer_.size()), "brackets inside one another");
    } else if (is_close(c) && !outer_.empty()) {
      sum_ -= links_;
      links_ = outer_.back();
      outer_.pop_back();
    } else if (c == ',') {
      begin_expression();
    } else {
      link();
    }
  }

  // Some comments are read, those of types. What closes a bracket in one may lie in a text.
  void take_comment() {
    const int sum = sum_;
    const int links = links_;
    for (; at_ < source_.size() && source_[at_] != '\n'; ++at_) {
      check_is_in_line();
      if (std::isalnum(static_cast<unsigned char>(source_[at_])) == 0) {
        link();
      }
    }
    sum_ = sum;
    links_ = links;
  }

  void take_word() {
    const size_t begin = at_;
    while (at_ < source_.size() &&
           (std::isalnum(static_cast<unsigned char>(source_[at_])) != 0 || source_[at_] == '_')) {
      ++at_;
    }
    const std::string_view word = source_.substr(begin, at_ - begin);
    if (std::find(kWordsThatLink.begin(), kWordsThatLink.end(), word) != kWordsThatLink.end()) {
      link();
    } else if (word == "elif") {
      check_at_most(kMaxElse, ++n_else_, "branches of elif");
    }
    FSDP2_CHECK(word != "lambda", Code::kUnsupported,
                "{} has a lambda, which torch.jit.save never writes", title_);
  }

  // Refuses a text, also one in a comment, that LibTorch would follow beyond the end of the line.
  void check_is_in_line() const {
    const std::string_view next = source_.substr(at_, 3);
    FSDP2_CHECK(next != "\"\"\"" && next != "'''", Code::kUnsupported,
                "{} has a text in three quotes, which torch.jit.save never writes", title_);
    FSDP2_CHECK(next.substr(0, 2) != "\\\n", Code::kUnsupported,
                "{} has a text that goes on in the next line, which torch.jit.save never writes",
                title_);
  }

  // A text ends with its line at the latest.
  void take_text(char quote) {
    check_is_in_line();
    for (++at_; at_ < source_.size() && source_[at_] != '\n'; ++at_) {
      check_is_in_line();
      if (source_[at_] == quote) {
        ++at_;
        return;
      }
      at_ += source_[at_] == '\\' ? 1 : 0;
    }
  }

  void end_line() {
    skip_line_end();
    ++at_;
    if (outer_.empty()) {
      begin_expression();
      const size_t code = std::min(source_.find_first_not_of(" \t", at_), source_.size());
      const auto columns = static_cast<int>(std::min<size_t>(code - at_, kMaxIndent + 1));
      most_columns_ = std::max(most_columns_, columns);
      check_at_most(kMaxIndent, columns, "columns in front of a line");
    }
  }

  void skip_line_end() {
    check_at_most(kMaxBlankLines, ++blank_lines_, "lines in a row without code");
  }

  void begin_expression() {
    sum_ -= links_;
    links_ = 0;
  }

  void link() {
    ++links_;
    most_links_ = std::max(most_links_, ++sum_);
    check_at_most(kMaxLinks, sum_, "operators in an expression");
  }

  void check_at_most(int most, int found, const char* what) const {
    FSDP2_CHECK(found <= most, Code::kUnsupported,
                "{} has more than {} {}, which LibTorch's parser might not survive", title_, most,
                what);
  }

  static bool is_open(char c) { return c == '(' || c == '[' || c == '{'; }
  static bool is_close(char c) { return c == ')' || c == ']' || c == '}'; }

  const std::string_view source_;
  const std::string& title_;
  size_t at_ = 0;
  int links_ = 0;           // of the innermost expression
  std::vector<int> outer_;  // those of the expressions around it, by bracket
  int sum_ = 0;             // of all of these
  int n_else_ = 0;
  int blank_lines_ = 0;
  int most_links_ = 0;
  int most_brackets_ = 0;
  int most_columns_ = 0;
};

}  // namespace

int check_nesting(std::string_view source, const std::string& title) {
  return Nesting(source, title).check();
}

}  // namespace fsdp2::exported
