#include "core/models/config/rope_config.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/models/config/config_limits.h"

namespace fsdp2::models {

namespace {

nn::Llama3Scaling read_llama3_scaling(const ConfigReader& rope) {
  nn::Llama3Scaling scaling;
  scaling.factor = rope.positive("factor");
  scaling.low_frequency_factor = rope.positive("low_freq_factor");
  scaling.high_frequency_factor = rope.positive("high_freq_factor");
  scaling.original_max_positions = rope.size("original_max_position_embeddings", kMaxPositions);
  FSDP2_CHECK(scaling.high_frequency_factor > scaling.low_frequency_factor, Code::kInvalidArgument,
              "config.json: \"{}\" should be above \"{}\" ({}), found {}",
              rope.path_of("high_freq_factor"), rope.path_of("low_freq_factor"),
              scaling.low_frequency_factor, scaling.high_frequency_factor);
  return scaling;
}

double yarn_attention_factor(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

// The keys and their defaults are those of the transformers library, which takes 0 for absent.
nn::YarnScaling read_yarn_scaling(const ConfigReader& rope, int64_t max_positions) {
  const auto number_or = [&](const char* key, double usual) {
    const double number = rope.number(key, usual);
    return number == 0 ? usual : number;
  };
  nn::YarnScaling scaling;
  scaling.factor = rope.positive("factor");
  scaling.beta_fast = number_or("beta_fast", scaling.beta_fast);
  scaling.beta_slow = number_or("beta_slow", scaling.beta_slow);
  FSDP2_CHECK(
      scaling.beta_fast > scaling.beta_slow && scaling.beta_slow > 0, Code::kInvalidArgument,
      "config.json: \"{}\" should be above \"{}\", and that above 0, found {} and {}",
      rope.path_of("beta_fast"), rope.path_of("beta_slow"), scaling.beta_fast, scaling.beta_slow);
  scaling.original_max_positions =
      rope.size("original_max_position_embeddings", kMaxPositions, max_positions);
  scaling.truncate = rope.boolean("truncate", true);
  const double scale = rope.number("mscale", 0.0);
  const double scale_of_all = rope.number("mscale_all_dim", 0.0);
  const double inferred = scale != 0 && scale_of_all != 0
                              ? yarn_attention_factor(scaling.factor, scale) /
                                    yarn_attention_factor(scaling.factor, scale_of_all)
                              : yarn_attention_factor(scaling.factor, 1);
  scaling.attention_factor = rope.positive("attention_factor", inferred);
  return scaling;
}

// For positions of three axes; without them nothing changes.
std::vector<int64_t> read_rope_sections(const ConfigReader& rope, int64_t head_dim) {
  std::vector<int64_t> sections = rope.integers("mrope_section", kMaxHeadDim);
  const int64_t sum = std::accumulate(sections.begin(), sections.end(), int64_t{0});
  FSDP2_CHECK(
      sections.empty() || sum == head_dim / 2, Code::kInvalidArgument,
      "config.json: \"{}\" should be of {} frequencies in all, half the dim of a head, found "
      "{}",
      rope.path_of("mrope_section"), head_dim / 2, sum);
  return sections;
}

nn::LinearScaling read_linear_scaling(const ConfigReader& rope) {
  return {rope.positive("factor")};
}

nn::DynamicScaling read_dynamic_scaling(const ConfigReader& rope, int64_t head_dim,
                                        int64_t max_positions) {
  FSDP2_CHECK(
      head_dim > 2, Code::kInvalidArgument,
      "config.json: the dim of a head should be above 2 for the rope type dynamic, found {}",
      head_dim);
  const double factor = rope.positive("factor");
  FSDP2_CHECK(factor >= 1, Code::kInvalidArgument,
              "config.json: \"{}\" should be at least 1, found {}", rope.path_of("factor"), factor);
  return {factor, max_positions};
}

std::vector<double> read_factors(const ConfigReader& rope, const std::string& key,
                                 int64_t head_dim) {
  std::vector<double> factors = rope.numbers(key);
  FSDP2_CHECK(
      static_cast<int64_t>(factors.size()) == head_dim / 2 &&
          std::all_of(factors.begin(), factors.end(), [](double f) { return f > 0; }),
      Code::kInvalidArgument,
      "config.json: \"{}\" should be {} numbers above 0, half the dims of a head that rotate, "
      "found {}",
      rope.path_of(key), head_dim / 2, factors.size());
  return factors;
}

// The trained context stands beside max_position_embeddings (Phi-3), and their ratio is then the
// factor, or it is one of the newer rope_parameters, which may have a factor as well.
nn::LongRopeScaling read_longrope_scaling(const ConfigReader& config, const ConfigReader& rope,
                                          int64_t head_dim, int64_t max_positions,
                                          int64_t usual_original) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  nn::LongRopeScaling scaling;
  scaling.short_factors = read_factors(rope, "short_factor", head_dim);
  scaling.long_factors = read_factors(rope, "long_factor", head_dim);
  const ConfigReader& place = config.has(kOriginal) ? config : rope;
  scaling.original_max_positions =
      place.size(kOriginal, kMaxPositions, usual_original > 0 ? usual_original : max_positions);
  const auto original = static_cast<double>(scaling.original_max_positions);
  const double ratio = static_cast<double>(max_positions) / original;
  const bool is_ratio = config.has(kOriginal) || usual_original > 0;
  const double factor = is_ratio ? ratio : rope.positive("factor", ratio);
  const double usual =
      factor <= 1 || original <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  scaling.attention_factor = rope.positive("attention_factor", usual);
  return scaling;
}

// Where a family has longrope alone: its older files call it otherwise.
std::string longrope_or_default(const std::string& type) {
  if (type == "su" || type == "yarn") {
    return "longrope";
  }
  FSDP2_CHECK(
      type == "longrope" || type == "default", Code::kUnsupported,
      "config.json: the rope type \"{}\" is not supported in this model_type; supported: default, "
      "longrope",
      type);
  return type;
}

// Under either of its two keys. "mrope" is how Qwen2.5-VL's own files call the default type with
// sections.
std::string read_rope_type(const ConfigReader& rope, bool has_longrope_alone) {
  const auto read = [&](const char* key) {
    const std::string type = rope.text(key);
    return has_longrope_alone ? longrope_or_default(type) : type == "mrope" ? "default" : type;
  };
  const std::string type = read(rope.has("rope_type") ? "rope_type" : "type");
  FSDP2_CHECK(!rope.has("type") || read("type") == type, Code::kInvalidArgument,
              "config.json: \"{}\" is \"{}\" and \"{}\" is \"{}\": expected the same, or one of "
              "them alone",
              rope.path_of("rope_type"), rope.text("rope_type"), rope.path_of("type"),
              rope.text("type"));
  return type;
}

nn::RotaryScaling read_scaling(const ConfigReader& config, const ConfigReader& rope, double theta,
                               int64_t head_dim, int64_t max_positions,
                               int64_t longrope_positions) {
  const std::string type = read_rope_type(rope, longrope_positions > 0);
  if (type == "linear") {
    return read_linear_scaling(rope);
  }
  if (type == "dynamic") {
    return read_dynamic_scaling(rope, head_dim, max_positions);
  }
  if (type == "llama3") {
    return read_llama3_scaling(rope);
  }
  if (type == "yarn") {
    FSDP2_CHECK(theta > 1, Code::kInvalidArgument,
                "config.json: \"rope_theta\" should be above 1 for the rope type yarn, found {}",
                theta);
    return read_yarn_scaling(rope, max_positions);
  }
  if (type == "longrope") {
    return read_longrope_scaling(config, rope, head_dim, max_positions, longrope_positions);
  }
  FSDP2_CHECK(type == "default", Code::kUnsupported,
              "config.json: the rope type \"{}\" is not supported; supported: default, linear, "
              "dynamic, yarn, llama3, longrope",
              type);
  return std::monostate();
}

constexpr const char* kRotatedShare = "partial_rotary_factor";

}  // namespace

int64_t read_rotary_dim(const ConfigReader& config, int64_t head_dim, const RopeRules& rules) {
  const char* newer = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const bool is_inside = config.has(newer) && config.object(newer).has(kRotatedShare);
  const ConfigReader place = is_inside ? config.object(newer) : config;
  const double share = place.number(kRotatedShare, 1.0);
  FSDP2_CHECK(share == 1 || rules.may_rotate_partly, Code::kUnsupported,
              "config.json: \"{}\" {} is not supported; supported: 1", place.path_of(kRotatedShare),
              share);
  const int64_t dim =
      share > 0 && share <= 1 ? static_cast<int64_t>(static_cast<double>(head_dim) * share) : 0;
  FSDP2_CHECK(dim > 0 && dim % 2 == 0, Code::kInvalidArgument,
              "config.json: \"{}\" should make an even number of the {} dims of a head rotate, "
              "found {}",
              place.path_of(kRotatedShare), head_dim, share);
  return dim;
}

nn::RotaryOptions read_rope(const ConfigReader& config, int64_t rotary_dim, int64_t max_positions,
                            double usual_theta, int64_t longrope_positions, const char* layers) {
  nn::RotaryOptions options;
  options.theta = config.positive("rope_theta", usual_theta);
  const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!config.has(key)) {
    return options;
  }
  const ConfigReader all = config.object(key);
  const ConfigReader rope = layers != nullptr && all.has(layers) ? all.object(layers) : all;
  options.theta = rope.positive("rope_theta", options.theta);
  options.scaling =
      read_scaling(config, rope, options.theta, rotary_dim, max_positions, longrope_positions);
  options.sections = read_rope_sections(rope, rotary_dim);
  return options;
}

}  // namespace fsdp2::models
