#include "bindings/generate/api.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace generate {
namespace {

struct Token {
  std::string text;
  int line;
};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }
bool is_space(char c) { return std::isspace(static_cast<unsigned char>(c)); }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Parser {
 public:
  Parser(const std::string& path, Api& api) : path_(path), api_(api) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error(path + ": cannot be read");
    std::stringstream text;
    text << file.rdbuf();
    header_.name = path.substr(path.rfind('/') + 1);
    read_lines(text.str());
  }

  void run() {
    while (at_ < tokens_.size()) declaration();
    for (const auto& macro : init_macros_) take_defaults(macro);
    auto& found = header_.declarations;  // macros come before what is made of tokens
    std::stable_sort(found.begin(), found.end(), [](const Declaration& a, const Declaration& b) {
      return a.first_line < b.first_line;
    });
    api_.contents.push_back(std::move(header_));
  }

 private:
  struct Macro {
    std::string name;
    std::vector<Token> body;
  };

  [[noreturn]] void fail(int line, const std::string& what) const {
    throw std::runtime_error(path_ + ":" + std::to_string(line) + ": " + what);
  }

  // --- Text to tokens; directives are taken out on the way ---

  // What a comment says to a program about a parameter or field, as a token of its own.
  static std::string mark_of(const std::string& comment) {
    const size_t text = comment.find_first_not_of(" *", 1);
    return text != std::string::npos && comment.compare(text, 5, "(opt)") == 0 ? " (opt) " : " ";
  }

  // Without the marks around it and the stars that its lines begin with, but for the first, whose
  // star is the text's ("*needed has ..."). The lines of a comment behind code have none, and are
  // indented as far as the code is long.
  static std::string text_of(const std::string& comment) {
    std::istringstream lines(comment.substr(2));
    std::string text;
    bool is_first = true;
    for (std::string line; std::getline(lines, line); is_first = false) {
      const size_t begin = line.find_first_not_of(' ');
      if (!is_first && begin != std::string::npos && line[begin] == '*') {
        line.erase(0, begin + (line.compare(begin, 2, "* ") == 0 ? 2 : 1));
      } else {
        line.erase(0, std::min(begin, line.size()));
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += (text.empty() ? "" : "\n") + line;
    }
    return text;
  }

  // What says something to the reader: not what marks parameters, the guard's end, or a tool's.
  void add_comment(const std::string& comment, int first, int last, bool behind_code) {
    const std::string text = text_of(comment);
    if (text == "(opt)" || text.rfind("clang-format o", 0) == 0) return;
    if (text.rfind("FSDP2_", 0) == 0 && ends_with(text, "_H_")) return;
    header_.comments.push_back({first, last, behind_code, text});
  }

  void read_lines(const std::string& text) {
    std::string line;
    int number = 1, first = 1;
    for (size_t i = 0; i <= text.size(); ++i) {
      if (i < text.size() && text.compare(i, 2, "/*") == 0) {
        const size_t end = text.find("*/", i + 2);
        if (end == std::string::npos) fail(number, "comment without an end");
        const std::string comment = text.substr(i, end - i);
        const bool behind_code = line.find_first_not_of(' ') != std::string::npos;
        line += mark_of(comment);
        const int begin = number;
        for (; i < end + 1; ++i) number += text[i] == '\n';
        add_comment(comment, begin, number, behind_code);
      } else if (i < text.size() && text.compare(i, 2, "\\\n") == 0) {
        ++number;
        ++i;
      } else if (i == text.size() || text[i] == '\n') {
        end_line(line, first);
        line.clear();
        first = ++number;
      } else {
        line += text[i];
      }
    }
  }

  void end_line(const std::string& line, int number) {
    std::vector<Token> tokens = split(line, number);
    if (tokens.empty()) return;
    if (tokens[0].text != "#") {
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    } else if (tokens.size() > 3 && tokens[1].text == "define" &&
               tokens[2].text.rfind("FSDP2_", 0) == 0) {
      const std::vector<Token> body(tokens.begin() + 3, tokens.end());
      if (ends_with(tokens[2].text, "_INIT")) {
        init_macros_.push_back({tokens[2].text, body});
      } else if (body.size() == 1 && is_digit(body[0].text[0])) {
        declare(Declaration::kConstants, api_.constants.size(), number, number);
        api_.constants.push_back({tokens[2].text, number_of(body[0]), number});
      } else if (body.size() > 1 && body.back().text == "}") {
        declare(Declaration::kInitializer, api_.initializers.size(), number, number);
        api_.initializers.push_back(initializer(tokens));
      }
    }
  }

  // #define NAME {...} or #define NAME(first, second) {...}, without what is in the braces.
  static std::string initializer(const std::vector<Token>& tokens) {
    std::string text = tokens[2].text;
    for (size_t i = 3; tokens[i].text != "{"; ++i)
      text += tokens[i].text + (tokens[i].text == "," ? " " : "");
    return text;
  }

  std::vector<Token> split(const std::string& line, int number) const {
    std::vector<Token> tokens;
    for (size_t i = 0, end = 0; i < line.size(); i = end) {
      end = token_end(line, i);
      if (end > line.size()) fail(number, "string without an end");
      if (!is_space(line[i])) tokens.push_back({line.substr(i, end - i), number});
    }
    return tokens;
  }

  // Behind the word, the number with its sign, point and exponent, the string or the character.
  static size_t token_end(const std::string& line, size_t at) {
    size_t end = at + 1;
    if (is_digit(line[at]) || line[at] == '-') {
      while (end < line.size() && (is_word(line[end]) || line[end] == '.' ||
                                   (line[end] == '-' && line[end - 1] == 'e'))) {
        ++end;
      }
    } else if (is_word(line[at])) {
      while (end < line.size() && is_word(line[end])) ++end;
    } else if (line.compare(at, 5, "(opt)") == 0) {
      end = at + 5;
    } else if (line[at] == '"') {
      const size_t quote = line.find('"', end);
      end = quote == std::string::npos ? line.size() + 1 : quote + 1;
    }
    return end;
  }

  int64_t number_of(const Token& token) const {
    size_t used = 0;
    int64_t value = 0;
    try {
      value = std::stoll(token.text, &used, 0);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used == 0 || token.text.find_first_not_of("uUlL", used) != std::string::npos) {
      fail(token.line, "expected a number, got '" + token.text + "'");
    }
    return value;
  }

  // --- Tokens to declarations ---

  const Token& peek() const {
    if (at_ == tokens_.size()) fail(tokens_.back().line, "unexpected end of the file");
    return tokens_[at_];
  }

  Token next() {
    const Token token = peek();
    ++at_;
    return token;
  }

  bool accept(const std::string& text) {
    if (peek().text != text) return false;
    ++at_;
    return true;
  }

  void expect(const std::string& text) {
    const Token token = next();
    if (token.text != text) fail(token.line, "expected '" + text + "', got '" + token.text + "'");
  }

  std::string word() {
    const Token token = next();
    if (!is_word(token.text[0])) fail(token.line, "expected a name, got '" + token.text + "'");
    return token.text;
  }

  void declaration() {
    const Token token = next();
    if (token.text == "FSDP2_BEGIN_DECLS" || token.text == "FSDP2_END_DECLS") {
    } else if (token.text == "enum") {
      enumeration();
    } else if (token.text == "typedef") {
      type_definition();
    } else if (token.text == "struct") {
      api_.opaque.push_back("struct " + word());
      expect(";");
    } else if (token.text == "FSDP2_CALL") {
      function({"fsdp2_status", false, 0});
    } else if (token.text == "FSDP2_API") {
      function(type());
    } else {
      fail(token.line, "expected a declaration, got '" + token.text + "'");
    }
  }

  void declare(Declaration::Kind kind, size_t index, int first, int last, size_t count = 1) {
    header_.declarations.push_back({kind, index, count, first, last});
  }

  // What begins at `first` ends at the token that was read last.
  void declare(Declaration::Kind kind, size_t index, int first) {
    declare(kind, index, first, tokens_[at_ - 1].line);
  }

  void enumeration() {
    const int first = tokens_[at_ - 1].line;
    const size_t index = api_.constants.size();
    expect("{");
    do {
      Constant constant;
      constant.line = peek().line;
      constant.name = word();
      expect("=");
      constant.value = number_of(next());
      api_.constants.push_back(constant);
    } while (accept(","));
    expect("}");
    expect(";");
    declare(Declaration::kConstants, index, first, tokens_[at_ - 1].line,
            api_.constants.size() - index);
  }

  void type_definition() {
    const int first = tokens_[at_ - 1].line;
    if (accept("struct")) {
      Struct found;
      found.name = word();
      expect("{");
      while (!accept("}")) fields(found);
      if (word() != found.name)
        fail(peek().line, "struct " + found.name + " has a typedef of another name");
      expect(";");
      declare(Declaration::kStruct, api_.structs.size(), first);
      api_.structs.push_back(found);
      return;
    }
    const Type result = type();
    if (accept("(")) {
      Function callback;
      callback.result = result;
      expect("*");
      callback.name = word();
      expect(")");
      callback.parameters = parameters();
      expect(";");
      declare(Declaration::kCallback, api_.callbacks.size(), first);
      api_.callbacks.push_back(callback);
      return;
    } else if (const std::string name = word();
               result.base != "int32_t" || name != "fsdp2_status") {
      fail(peek().line, "typedef " + name +
                            ": only structs, callbacks and fsdp2_status have names of their own");
    }
    expect(";");
  }

  void fields(Struct& found) {
    const size_t first = found.fields.size();
    bool optional = accept("(opt)");  // in a comment above the field
    const int line = peek().line;
    const Type base = base_type();
    do {
      Variable field;
      field.type = base;
      stars(field.type);
      field.name = word();
      field.line = line;
      if (accept("[")) {
        field.count_name = peek().text;
        field.count = constant(next());
        expect("]");
      }
      found.fields.push_back(field);
    } while (accept(","));
    expect(";");
    if (peek().line == tokens_[at_ - 1].line) optional = accept("(opt)") || optional;
    for (size_t i = first; i < found.fields.size(); ++i) found.fields[i].optional = optional;
  }

  void function(const Type& result) {
    Function function;
    const int first = tokens_[at_ - 1].line;
    function.result = result;
    function.name = word();
    function.parameters = parameters();
    expect(";");
    declare(Declaration::kFunction, api_.functions.size(), first);
    api_.functions.push_back(function);
  }

  std::vector<Variable> parameters() {
    std::vector<Variable> found;
    expect("(");
    if (tokens_[at_].text == "void" && tokens_[at_ + 1].text == ")") at_ += 1;
    if (accept(")")) return found;
    do {
      Variable parameter;
      parameter.type = type();
      parameter.name = word();
      parameter.optional = accept("(opt)");
      found.push_back(parameter);
    } while (accept(","));
    expect(")");
    return found;
  }

  Type type() {
    Type found = base_type();
    stars(found);
    return found;
  }

  Type base_type() {
    Type found;
    found.is_const = accept("const");
    const int line = peek().line;
    found.base = word();
    if (found.base == "struct") found.base += " " + word();
    static const std::vector<std::string> scalars = {
        "void",     "char",   "int32_t", "uint32_t",  "int64_t",
        "uint64_t", "size_t", "double",  "uintptr_t", "fsdp2_status"};
    for (const auto& known : scalars) {
      if (known == found.base) return found;
    }
    for (const auto& known : api_.opaque) {
      if (known == found.base) return found;
    }
    if (!api_.find_struct(found.base) && !api_.is_callback(found.base))
      fail(line, "unknown type '" + found.base + "'");
    return found;
  }

  void stars(Type& found) {
    while (accept("*")) {
      if (++found.pointers == 2 && found.is_const != after_const_)
        fail(peek().line, "expected T ** or const T *const *");
      after_const_ = accept("const");
    }
    after_const_ = false;
  }

  int64_t constant(const Token& token) const {
    for (const auto& known : api_.constants) {
      if (known.name == token.text) return known.value;
    }
    return number_of(token);
  }

  // --- _INIT macros: { (uint32_t)sizeof(fsdp2_x), ... } ---

  void take_defaults(const Macro& macro) {
    std::vector<std::string> values(1);
    for (size_t i = 1; i + 1 < macro.body.size(); ++i) {
      if (macro.body[i].text == ",") {
        values.emplace_back();
      } else {
        values.back() += macro.body[i].text;
      }
    }
    for (auto& known : api_.structs) {
      if (values[0] != "(uint32_t)sizeof(" + known.name + ")") continue;
      if (values.size() != known.fields.size())
        fail(macro.body[0].line, macro.name + " does not list every field");
      known.defaults = values;
      return;
    }
    fail(macro.body[0].line, macro.name + " does not begin with the size of a struct");
  }

  const std::string path_;
  Api& api_;
  Header header_;
  std::vector<Token> tokens_;
  std::vector<Macro> init_macros_;
  size_t at_ = 0;
  bool after_const_ = false;
};

}  // namespace

const Struct* Api::find_struct(const std::string& name) const {
  for (const auto& known : structs) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

bool Api::is_callback(const std::string& name) const {
  for (const auto& known : callbacks) {
    if (known.name == name) return true;
  }
  return false;
}

void parse_header(const std::string& path, Api& api) { Parser(path, api).run(); }

}  // namespace generate
