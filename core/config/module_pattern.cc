#include "core/config/module_pattern.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <regex>

#include "core/base/nearest.h"
#include "core/config/config_error.h"

namespace fsdp2::config {

namespace {

constexpr size_t kMostDigits = 9;

bool is_digits(const std::string& text) {
  return !text.empty() && text.size() <= kMostDigits &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

ModulePattern::ModulePattern(const std::string& pattern) {
  for (size_t at = 0; at < pattern.size(); ++at) {
    const char letter = pattern[at];
    if (letter == '{') {
      const size_t end = std::min(pattern.find('}', at), pattern.size());
      pieces_.push_back(range_of(pattern, pattern.substr(at + 1, end - at - 1)));
      at = end;
    } else if (letter == '*') {
      pieces_.push_back({Piece::Kind::kAnyText});
    } else {
      pieces_.push_back({letter == '?' ? Piece::Kind::kAnyLetter : Piece::Kind::kLetter, letter});
    }
  }
}

ModulePattern::Piece ModulePattern::range_of(const std::string& pattern,
                                             const std::string& inside) {
  if (inside == "*") {
    return {Piece::Kind::kNumber, 0, 0, std::numeric_limits<long>::max()};
  }
  const size_t dash = inside.find('-');
  const std::string first = inside.substr(0, dash);
  const std::string last = dash == std::string::npos ? first : inside.substr(dash + 1);
  if (!is_digits(first) || !is_digits(last)) {
    throw ConfigError("'" + pattern + "': expected {*} or {3-7} in braces, got {" + inside + "}");
  }
  return {Piece::Kind::kNumber, 0, std::strtol(first.c_str(), nullptr, 10),
          std::strtol(last.c_str(), nullptr, 10)};
}

// The end of what `piece` matches at `at`; npos if it does not match.
size_t ModulePattern::end_of(const Piece& piece, const std::string& name, size_t at) {
  if (at == name.size()) {
    return std::string::npos;
  }
  if (piece.kind != Piece::Kind::kNumber) {
    const bool matches = piece.kind == Piece::Kind::kAnyLetter || name[at] == piece.letter;
    return matches ? at + 1 : std::string::npos;
  }
  const size_t end = std::min(name.find_first_not_of("0123456789", at), name.size());
  const std::string digits = name.substr(at, end - at);
  const long number = is_digits(digits) ? std::strtol(digits.c_str(), nullptr, 10) : -1;
  return number < piece.least || number > piece.most ? std::string::npos : end;
}

// What follows a * is tried from one letter further on each time that it fails. Only the last * can
// need that: a later start never ends earlier.
bool ModulePattern::matches(const std::string& name) const {
  size_t piece = 0;
  size_t at = 0;
  size_t star = std::string::npos;  // the piece after the last *
  size_t star_at = 0;
  while (piece < pieces_.size() || at < name.size()) {
    if (piece < pieces_.size() && pieces_[piece].kind == Piece::Kind::kAnyText) {
      star = ++piece;
      star_at = at;
      continue;
    }
    const size_t end =
        piece < pieces_.size() ? end_of(pieces_[piece], name, at) : std::string::npos;
    if (end != std::string::npos) {
      ++piece;
      at = end;
    } else if (star != std::string::npos && star_at < name.size()) {
      piece = star;
      at = ++star_at;
    } else {
      return false;
    }
  }
  return true;
}

std::vector<std::string> select(const std::vector<std::string>& patterns,
                                const std::vector<std::string>& names, const std::string& what) {
  std::vector<bool> taken(names.size());
  for (const std::string& text : patterns) {
    const ModulePattern pattern(text);
    bool matches_any = false;
    for (size_t i = 0; i < names.size(); ++i) {
      const bool matches = pattern.matches(names[i]);
      taken[i] = taken[i] || matches;
      matches_any = matches_any || matches;
    }
    if (!matches_any) {
      static const std::regex braces("\\{[^}]*\\}");
      const std::string meant = nearest(std::regex_replace(text, braces, "0"), names);
      throw ConfigError(what + ": nothing is called " + text +
                        (meant.empty() ? "" : "; did you mean " + meant + "?"));
    }
  }
  std::vector<std::string> selected;
  for (size_t i = 0; i < names.size(); ++i) {
    if (taken[i]) {
      selected.push_back(names[i]);
    }
  }
  return selected;
}

}  // namespace fsdp2::config
