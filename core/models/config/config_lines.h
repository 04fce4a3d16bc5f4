// What a model computes, as its config.json says it: lines that are equal for two models that
// compute the same (nn/computation.h). Keys are config.json's where it has one, and values are
// those in effect, so that a key that is left out equals one that says the usual value.
#pragma once

#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "core/models/config/decoder_config.h"
#include "core/models/config/vision_language_config.h"
#include "core/nn/computation.h"
#include "core/nn/layers/activation.h"

namespace fsdp2::models {

class ConfigLines {
 public:
  // prefix: of all keys.
  explicit ConfigLines(std::string prefix = {}) : prefix_(std::move(prefix)) {}

  template <typename T>
  void add(const char* key, const T& value) {
    lines_.emplace_back(prefix_ + key, fmt::format("{}", value));
  }
  void add(const char* key, nn::Activation activation);
  void append(nn::ComputationLines lines);

  nn::ComputationLines take() { return std::move(lines_); }

 private:
  const std::string prefix_;
  nn::ComputationLines lines_;
};

nn::ComputationLines lines_of(const DecoderConfig& config, const std::string& prefix = {});
nn::ComputationLines lines_of(const VisionLanguageConfig& config);

}  // namespace fsdp2::models
