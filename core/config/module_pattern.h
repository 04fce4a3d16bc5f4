// Patterns of dotted names, as MindSpeed-MM writes them: {*} is any whole number, {3-7} one of
// these,
// * any text, ? one letter; everything else is itself. A name without any of these is a pattern
// that matches itself.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fsdp2::config {

class ModulePattern {
 public:
  // Throws ConfigError for braces that hold anything else.
  explicit ModulePattern(const std::string& pattern);

  bool matches(const std::string& name) const;

 private:
  struct Piece {
    enum class Kind { kLetter, kAnyLetter, kAnyText, kNumber };
    Kind kind;
    char letter = 0;  // of kLetter
    long least = 0;   // of kNumber
    long most = 0;
  };

  static Piece range_of(const std::string& pattern, const std::string& inside);
  static size_t end_of(const Piece& piece, const std::string& name, size_t at);

  std::vector<Piece> pieces_;
};

// Those of `names` that a pattern matches, in their order. Throws ConfigError, which begins with
// `what`, for a pattern that matches none.
std::vector<std::string> select(const std::vector<std::string>& patterns,
                                const std::vector<std::string>& names, const std::string& what);

}  // namespace fsdp2::config
