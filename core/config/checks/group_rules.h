// The flags by which parameters get a weight decay or a learning rate of their own.
#pragma once

#include <regex>
#include <string>
#include <vector>

namespace fsdp2::config {

struct NoDecay {
  bool norms = false;
  bool biases = false;
};
// "norm,bias". Throws ConfigError.
NoDecay read_no_decay(const std::string& text);

struct LrScale {
  std::string pattern;
  double factor = 1.0;
};
// "lm_head.*=0.1,*.bias=2". Throws ConfigError.
std::vector<LrScale> read_lr_scales(const std::string& text);

// "visual\\..*=0.1;.*norm.*=2": regular expressions of ECMAScript without back-references, which
// match from the beginning of a name, and of which the first that matches counts.
class LrPlan {
 public:
  // Throws ConfigError.
  explicit LrPlan(const std::string& text);

  struct Rule {
    double factor = 1.0;
    std::vector<std::string> names;
  };
  // The names of each rule that has any. Throws ConfigError for a rule that matches none of the
  // names, not even ones that an earlier rule has.
  std::vector<Rule> rules_for(const std::vector<std::string>& names) const;

 private:
  struct Expression {
    std::string text;
    std::regex regex;
    double factor = 1.0;
  };
  std::vector<Expression> expressions_;
};

}  // namespace fsdp2::config
