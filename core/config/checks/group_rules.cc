#include "core/config/checks/group_rules.h"

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "core/config/checks/require.h"
#include "core/config/config_error.h"

namespace fsdp2::config {

namespace {

LrScale read_scale(const std::string& flag, const std::string& what, const std::string& part) {
  const size_t equals = part.rfind('=');
  const bool is_whole = equals != std::string::npos && equals > 0 && equals + 1 < part.size();
  const std::string number = is_whole ? part.substr(equals + 1) : "";
  char* end = nullptr;
  const double factor = std::strtod(number.c_str(), &end);
  require(is_whole && *end == '\0' && std::isfinite(factor) && factor >= 0.0,
          flag + " " + part + ": expected " + what + "=FACTOR, where the factor is at least 0");
  return {part.substr(0, equals), factor};
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

// The matcher of that kind takes time in proportion to the name, whatever the expression. The
// compiler of expressions calls itself for each parenthesis.
LrPlan::LrPlan(const std::string& text) {
  constexpr size_t kMostBytes = 1000;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    const LrScale scale = read_scale("--lr-plan", "EXPRESSION", part);
    require(scale.pattern.size() <= kMostBytes,
            "--lr-plan: expected expressions of at most " + std::to_string(kMostBytes) +
                " bytes, found one of " + std::to_string(scale.pattern.size()));
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
