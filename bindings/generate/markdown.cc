#include "bindings/generate/markdown.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "bindings/generate/api.h"

namespace generate {
namespace {

constexpr size_t kLineLength = 110;
constexpr char kLowerCase[] = "abcdefghijklmnopqrstuvwxyz";
constexpr char kConvention[] = "convention ";

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Behind a name with what is joined to it: "hook.h", "options.wrap", "aten::add", "docs/yaml.md",
// "fsdp2_<noun>_verb".
size_t name_end(const std::string& text, size_t at) {
  while (at < text.size()) {
    if (is_name(text[at])) {
      ++at;
    } else if ((text[at] == '.' || text[at] == '/') && at + 1 < text.size() &&
               is_name(text[at + 1])) {
      ++at;
    } else if (text.compare(at, 2, "::") == 0 && at + 2 < text.size() && is_name(text[at + 2])) {
      at += 2;
    } else if (const size_t end = text.find('>', at);
               text[at] == '<' && at + 1 < text.size() && is_name(text[at + 1]) &&
               end == text.find_first_not_of(kLowerCase, at + 1)) {
      at = end + 1;
    } else {
      break;
    }
  }
  return at;
}

std::string code(const std::string& text) { return "`" + text + "`"; }

std::string linked(const std::string& text, const std::string& target) {
  return "[" + text + "](" + target + ")";
}

// "Errors: ..." begins a paragraph of its own, by a bold word.
std::string with_errors_apart(const std::string& text) {
  for (size_t at = 0; (at = text.find("Errors", at)) != std::string::npos; ++at) {
    const size_t colon = text.find(':', at);
    const size_t full_stop = text.find(". ", at);
    if (colon == std::string::npos || full_stop < colon) continue;
    if (at != 0 && text.compare(at - 2, 2, ". ") != 0) continue;
    const std::string before = at == 0 ? "" : text.substr(0, at - 1) + "\n\n";
    return before + "**" + text.substr(at, colon + 1 - at) + "**" +
           with_errors_apart(text.substr(colon + 1));
  }
  return text;
}

// Marks of lists and headings, which must not come to stand at the beginning of a line.
bool is_mark(const std::string& word) {
  if (word == "-" || word == "+" || word == "\\*" || word[0] == '#' || word[0] == '=') return true;
  const size_t digits = word.find_first_not_of("0123456789");
  return digits != 0 && digits != std::string::npos && digits + 1 == word.size() &&
         (word[digits] == '.' || word[digits] == ')');
}

std::string wrapped(const std::string& text) {
  std::istringstream words(text);
  std::string result, word;
  size_t length = 0;
  while (words >> word) {
    if (length != 0 && length + 1 + word.size() > kLineLength && !is_mark(word)) {
      result += "\n";
      length = 0;
    } else if (length != 0) {
      result += " ";
      ++length;
    }
    result += word;
    length += word.size();
  }
  return result + "\n";
}

std::string one_line(const std::string& text) {
  std::istringstream words(text);
  std::string result, word;
  while (words >> word) result += (result.empty() ? "" : " ") + word;
  return result;
}

// Without the two spaces by which the comment indents it.
std::string outdented(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);)
    result += (result.empty() ? "" : "\n") + (line.empty() ? line : line.substr(2));
  return result;
}

}  // namespace

std::string anchor(const std::string& heading) {
  std::string result;
  for (const char c : heading) {
    if (is_name(c) || c == '-') result += static_cast<char>(std::tolower(c));
    if (c == ' ') result += '-';
  }
  return result;
}

std::string Markdown::link(const std::string& identifier) const {
  const auto target = targets.find(identifier);
  return target == targets.end() ? code(identifier) : linked(code(identifier), target->second);
}

// A token that begins with "_" stands for the last identifier with another end:
// FSDP2_RESHARD_ALWAYS or _NEVER.
std::string Markdown::word(const std::string& token, const std::string& last_identifier) const {
  const auto target = targets.find(token);
  if (ends_with(token, ".h") && target != targets.end()) return linked(token, target->second);
  if (target != targets.end()) return linked(code(token), target->second);
  if (ends_with(token, ".md")) {
    return linked(token, token.rfind("docs/", 0) == 0 ? "../" + token.substr(5) : "../../" + token);
  }
  if (token[0] == '_') {
    for (size_t end = last_identifier.size(); end != std::string::npos && end != 0;
         end = last_identifier.rfind('_', end - 1)) {
      const auto found = targets.find(last_identifier.substr(0, end) + token);
      if (found != targets.end()) return linked(code(token), found->second);
    }
  }
  const size_t dot = token.find('.');
  const auto owner = targets.find(token.substr(0, dot));
  if (dot != std::string::npos && owner != targets.end()) return linked(code(token), owner->second);
  const bool is_code =
      token.find('_') != std::string::npos || token.find("::") != std::string::npos;
  return is_code ? code(token) : token;
}

std::string Markdown::inline_text(const std::string& text,
                                  const std::vector<std::string>& parameters) const {
  std::string result, last_identifier;
  for (size_t i = 0; i < text.size();) {
    const bool at_word = i == 0 || !is_name(text[i - 1]);
    size_t end = i + 1;
    if (text[i] == '`') {
      end = text.find('`', i + 1);
      end = end == std::string::npos ? text.size() : end + 1;
      const std::string inside = text.substr(i + 1, end - i - 2);
      result += link(inside);
    } else if (at_word && text.compare(i, sizeof kConvention - 1, kConvention) == 0 &&
               std::isdigit(static_cast<unsigned char>(text[i + sizeof kConvention - 1]))) {
      end = text.find_first_not_of("0123456789", i + sizeof kConvention - 1);
      const std::string token = text.substr(i, end - i);
      end = i + token.size();
      result += linked(token, "README.md#" + anchor(token));
    } else if (at_word &&
               (is_name(text[i]) || (text[i] == '*' && end < text.size() && is_name(text[end])))) {
      end = name_end(text, end);
      const std::string token = text.substr(i, end - i);
      const bool named = end < text.size() && text[end] == ':' &&
                         std::count(parameters.begin(), parameters.end(), token) != 0;
      if (token[0] == '*' || named) {
        result += code(token);
      } else if (token.back() == '_' && text.compare(end, 3, "...") == 0) {
        end += 3;
        while (end < text.size() && is_name(text[end])) ++end;  // FSDP2_..._INIT
        const std::string all = text.substr(i, end - i);
        const auto family = all == token + "..." ? targets.find(token) : targets.end();
        result += family == targets.end() ? code(all) : linked(code(all), family->second);
      } else {
        result += word(token, last_identifier);
        if (token.rfind("fsdp2_", 0) == 0 || token.rfind("FSDP2_", 0) == 0) last_identifier = token;
      }
    } else if (text.compare(i, 3, "[c]") == 0) {
      end = i + 3;
      const bool before_sentence = std::isupper(static_cast<unsigned char>(text.c_str()[i + 4]));
      result += linked(i != 0            ? "\\[c\\]"
                       : before_sentence ? "**Collective.**"
                                         : "**Collective**",
                       "README.md#convention-6");
    } else if (text.compare(i, 2, "**") == 0) {
      end = i + 2;
      result += "**";
    } else {
      if (text[i] == '<' || text[i] == '*' || text[i] == '[' || text[i] == ']' || text[i] == '|') {
        result += '\\';
      }
      result += text[i];
    }
    i = end;
  }
  return result;
}

std::string Markdown::paragraphs(const std::string& comment,
                                 const std::vector<std::string>& parameters) const {
  std::istringstream lines(comment);
  std::string result, text, kept;
  const auto end_text = [&] {
    std::istringstream parts(with_errors_apart(one_line(text)));
    for (std::string part; std::getline(parts, part);) {
      if (!part.empty()) result += wrapped(inline_text(part, parameters)) + "\n";
    }
    text.clear();
  };
  const auto end_kept = [&] {
    while (!kept.empty() && kept.back() == '\n') kept.pop_back();
    if (!kept.empty()) result += "```\n" + outdented(kept) + "\n```\n\n";
    kept.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    const bool indented = line.rfind("  ", 0) == 0;
    if (indented) {
      end_text();
      kept += line + "\n";
    } else if (line.empty()) {
      end_text();
      if (!kept.empty()) kept += "\n";
    } else {
      end_kept();
      text += line + " ";
    }
  }
  end_text();
  end_kept();
  return result;
}

std::string Markdown::cell(const std::string& comment) const {
  return inline_text(one_line(comment), {});
}

std::string Markdown::first_sentence(const std::string& comment) const {
  std::string text = one_line(comment.substr(0, comment.find("\n\n")));
  for (const std::string begin : {"[c] if the module is sharded. ", "[c] "}) {
    if (text.rfind(begin, 0) == 0) text.erase(0, begin.size());
  }
  for (size_t end = 0; (end = text.find(". ", end)) != std::string::npos; ++end) {
    const bool in_brackets =
        text.rfind('(', end) != std::string::npos && text.find(')', text.rfind('(', end)) > end;
    const bool says_something = text.find(' ') < end;
    if (!in_brackets && says_something) return cell(text.substr(0, end + 1));
  }
  return cell(text);
}

}  // namespace generate
