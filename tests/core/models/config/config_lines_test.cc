// Whether two config.json mean the same model, as ranks find it out.
#include "core/models/config/config_lines.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace fsdp2::models {
namespace {

using Json = nlohmann::json;

nn::ComputationLines lines_with(const Json& changes) {
  Json config = {{"vocab_size", 40},         {"hidden_size", 16},
                 {"intermediate_size", 24},  {"num_hidden_layers", 2},
                 {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                 {"rms_norm_eps", 1e-6},     {"max_position_embeddings", 32}};
  config.update(changes);
  return lines_of(read_llama_config(ConfigReader(config.dump())));
}

// The keys of the lines that the usual model has not.
std::string difference(const Json& changes) {
  const nn::ComputationLines usual = lines_with(Json::object());
  std::string keys;
  for (const auto& line : lines_with(changes)) {
    if (std::find(usual.begin(), usual.end(), line) == usual.end()) {
      keys += line.first + "=" + line.second + ";";
    }
  }
  return keys;
}

TEST(ConfigLines, AKeyThatIsLeftOutEqualsItsUsualValue) {
  EXPECT_EQ(difference({{"hidden_act", "silu"}, {"head_dim", 4}, {"rope_theta", 10000}}), "");
  EXPECT_EQ(difference({{"rope_scaling", {{"rope_type", "default"}}}, {"mlp_bias", nullptr}}), "");
}

TEST(ConfigLines, NamesOfOneActivationAreEqual) {
  EXPECT_EQ(difference({{"hidden_act", "swish"}}), "");
}

TEST(ConfigLines, WhatOnlyOthersReadIsLeftOut) {
  EXPECT_EQ(difference({{"transformers_version", "9.9"}, {"initializer_range", 0.5}}), "");
}

TEST(ConfigLines, ADifferenceHasConfigJsonsKey) {
  EXPECT_EQ(difference({{"hidden_act", "gelu"}}), "hidden_act=gelu;");
  EXPECT_EQ(difference({{"rms_norm_eps", 1e-5}}), "rms_norm_eps=1e-05;");
  EXPECT_EQ(difference({{"rope_theta", 5e5}}), "rope_parameters.rope_theta=500000;");
  EXPECT_EQ(difference({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}),
            "rope_parameters.rope_type=linear;rope_parameters.factor=2;");
}

TEST(ConfigLines, NumbersThatDifferInTheLastBitDiffer) {
  EXPECT_NE(difference({{"rms_norm_eps", 1.0000000000000002e-6}}), "");
}

}  // namespace
}  // namespace fsdp2::models
