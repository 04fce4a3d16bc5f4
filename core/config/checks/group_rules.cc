#include "core/config/checks/group_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <utility>

#include "core/config/checks/require.h"
#include "core/config/config_error.h"
#include "core/config/locale_free.h"

namespace fsdp2::config {

namespace {

LrScale read_scale(const std::string& flag, const std::string& what, const std::string& part) {
  const size_t equals = part.rfind('=');
  const bool is_whole = equals != std::string::npos && equals > 0 && equals + 1 < part.size();
  constexpr double kNone = -1;
  const double factor = is_whole ? decimal_in(part.substr(equals + 1)).value_or(kNone) : kNone;
  require(factor >= 0,
          flag + " " + part + ": expected " + what + "=FACTOR, where the factor is at least 0");
  return {part.substr(0, equals), factor};
}

constexpr size_t kMostBytes = 1000;

// The largest number in a text such as {2,30}, from 1 to beyond kMostBytes.
size_t largest_number(const std::string& text) {
  size_t largest = 1;
  size_t number = 0;
  for (const char letter : text) {
    const bool is_digit = letter >= '0' && letter <= '9';
    number =
        is_digit ? std::min(10 * number + static_cast<size_t>(letter - '0'), kMostBytes + 1) : 0;
    largest = std::max(largest, number);
  }
  return largest;
}

// At least the bytes that the pattern has once its counts {n} and {n,m} are written out, each taken
// for a count of the whole of it. Stops beyond kMostBytes.
size_t bytes_written_out(const std::string& pattern) {
  size_t bytes = pattern.size();
  for (size_t open = pattern.find('{'); open != std::string::npos;
       open = pattern.find('{', open + 1)) {
    const size_t close = std::min(pattern.find('}', open), pattern.size());
    const size_t count = largest_number(pattern.substr(open, close - open));
    bytes = std::min(bytes * count, kMostBytes + 1);
  }
  return bytes;
}

// The compiler of expressions calls itself for each parenthesis and each letter, and the matcher
// for each part of the expression that may be empty, counts written out: on any thread's stack.
void check_size(const std::string& pattern) {
  constexpr int64_t kMostParentheses = 50;
  require(pattern.size() <= kMostBytes, "--lr-plan: expected expressions of at most " +
                                            std::to_string(kMostBytes) + " bytes, found one of " +
                                            std::to_string(pattern.size()));
  const int64_t parentheses = std::count(pattern.begin(), pattern.end(), '(');
  require(parentheses <= kMostParentheses,
          "--lr-plan " + pattern + ": expected at most " + std::to_string(kMostParentheses) +
              " parentheses that open, found " + std::to_string(parentheses));
  require(bytes_written_out(pattern) <= kMostBytes,
          "--lr-plan " + pattern + ": expected counts such as {1,3} that, written out, leave it " +
              "at most " + std::to_string(kMostBytes) + " bytes");
}

}  // namespace

NoDecay read_no_decay(const std::string& text) {
  NoDecay exempt;
  for (const std::string& kind : parts_of(text)) {
    require(kind == "norm" || kind == "bias",
            "--no-decay " + text + ": expected norm, bias, or norm,bias");
    (kind == "norm" ? exempt.norms : exempt.biases) = true;
  }
  return exempt;
}

std::vector<LrScale> read_lr_scales(const std::string& text) {
  std::vector<LrScale> scales;
  for (const std::string& part : parts_of(text)) {
    scales.push_back(read_scale("--lr-scale", "PATTERN", part));
  }
  return scales;
}

// The matcher of that kind takes time in proportion to the name, whatever the expression.
LrPlan::LrPlan(const std::string& text) {
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    const LrScale scale = read_scale("--lr-plan", "EXPRESSION", part);
    check_size(scale.pattern);
    try {
      expressions_.push_back(
          {scale.pattern,
           std::regex(scale.pattern, std::regex::ECMAScript | std::regex_constants::__polynomial),
           scale.factor});
    } catch (const std::regex_error& error) {
      throw ConfigError("--lr-plan " + scale.pattern +
                        ": expected a regular expression without back-references: " + error.what());
    }
  }
}

std::vector<LrPlan::Rule> LrPlan::rules_for(const std::vector<std::string>& names) const {
  std::vector<Rule> rules;
  std::vector<bool> is_taken(names.size());
  for (const Expression& expression : expressions_) {
    Rule rule{expression.factor, {}};
    bool matches_any = false;
    for (size_t i = 0; i < names.size(); ++i) {
      if (std::regex_search(names[i], expression.regex, std::regex_constants::match_continuous)) {
        matches_any = true;
        if (!is_taken[i]) {
          is_taken[i] = true;
          rule.names.push_back(names[i]);
        }
      }
    }
    require(matches_any,
            "--lr-plan " + expression.text + ": matches the name of no parameter that trains");
    if (!rule.names.empty()) {
      rules.push_back(std::move(rule));
    }
  }
  return rules;
}

}  // namespace fsdp2::config
