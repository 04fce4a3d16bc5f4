// What models take of a config.json, good and bad.
#include "core/models/config/decoder_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "tests/support/errors.h"

namespace fsdp2::models {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
using Read = DecoderConfig(const ConfigReader&);

DecoderConfig read_with(const Json& changes, Read* read = read_llama_config,
                        const char* left_out = "") {
  Json config = {{"vocab_size", 40},         {"hidden_size", 16},
                 {"intermediate_size", 24},  {"num_hidden_layers", 1},
                 {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                 {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 32}};
  config.update(changes);
  config.erase(left_out);
  return read(ConfigReader(config.dump()));
}

// Expects that the config is refused with a message that has all these parts.
void expect_refused(const Json& changes, const std::vector<std::string>& parts,
                    Read* read = read_llama_config, Code code = Code::kInvalidArgument) {
  const std::string message = message_of_error([&] { read_with(changes, read); }, code);
  for (const std::string& part : parts) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

void expect_unsupported(const Json& changes, const std::vector<std::string>& parts,
                        Read* read = read_llama_config) {
  expect_refused(changes, parts, read, Code::kUnsupported);
}

Json with_experts(const Json& changes) {
  Json config = {{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 8}};
  config.update(changes);
  return config;
}

TEST(DecoderConfig, WithAMissingKeyNamesIt) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "max_position_embeddings"}) {
    expect_refused({{key, nullptr}}, {key, "has no"});
  }
}

TEST(DecoderConfig, WithAWrongTypeNamesKeyExpectedAndFound) {
  expect_refused({{"vocab_size", "many"}}, {"\"vocab_size\"", "an integer", "\"many\""});
  expect_refused({{"hidden_size", 16.5}}, {"\"hidden_size\"", "16.5"});
  expect_refused({{"rms_norm_eps", "1e-5"}}, {"\"rms_norm_eps\""});
  expect_refused({{"tie_word_embeddings", 1}}, {"\"tie_word_embeddings\"", "true or false", "1"});
  expect_refused({{"rope_scaling", 8}}, {"\"rope_scaling\"", "object"});
}

TEST(DecoderConfig, RefusesAbsurdSizes) {
  for (const Json& value : {Json(0), Json(-5), Json(int64_t{1} << 40), Json(UINT64_MAX)}) {
    for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "num_key_value_heads", "head_dim"}) {
      expect_refused({{key, value}}, {key, value.dump()});
    }
  }
}

TEST(DecoderConfig, RefusesHeadsThatDoNotFit) {
  expect_refused({{"num_key_value_heads", 3}},
                 {"\"num_key_value_heads\" (3)", "\"num_attention_heads\" (4)"});
  expect_refused({{"hidden_size", 18}}, {"\"hidden_size\" (18)"});
  expect_refused({{"head_dim", 7}}, {"even", "7"});
}

// Those of transformers 4.57, which builds no Qwen3-MoE where the key is null.
TEST(DecoderConfig, HasTheUsualHeadsWhereKeysAreLeftOut) {
  struct Usual {
    Read* read;
    int64_t kv_heads;
    int64_t head_dim;
  };
  for (const Usual& usual :
       {Usual{read_llama_config, 32, 4}, Usual{read_mistral_config, 8, 4},
        Usual{read_qwen2_config, 32, 4}, Usual{read_qwen3_config, 32, 128},
        Usual{read_qwen3_moe_config, 4, 4}, Usual{read_mixtral_config, 8, 4}}) {
    const Json heads = {{"hidden_size", 128}, {"num_attention_heads", 32}};
    const DecoderConfig left_out =
        read_with(with_experts(heads), usual.read, "num_key_value_heads");
    EXPECT_EQ(left_out.kv_heads, usual.kv_heads) << left_out.family;
    EXPECT_EQ(left_out.head_dim, usual.head_dim) << left_out.family;
    Json null = heads;
    null["num_key_value_heads"] = nullptr;
    EXPECT_EQ(read_with(with_experts(null), usual.read).kv_heads, 32) << left_out.family;
  }
}

// transformers takes such a Mistral for a Ministral.
TEST(DecoderConfig, OfMistralSaysWhichLayersSlide) {
  const Json all = {{"sliding_window", 16}, {"num_hidden_layers", 3}};
  Json some = all;
  some["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  const auto windows = [](const DecoderConfig& decoder) {
    return std::vector<int64_t>{decoder.window_of(0), decoder.window_of(1), decoder.window_of(2)};
  };
  EXPECT_EQ(windows(read_with(all, read_mistral_config)), (std::vector<int64_t>{16, 16, 16}));
  EXPECT_EQ(windows(read_with(some, read_mistral_config)), (std::vector<int64_t>{16, 0, 16}));
  expect_unsupported({{"layer_types", {"chunked_attention"}}}, {"chunked_attention"},
                     read_mistral_config);
}

// Those of transformers 4.57.
TEST(DecoderConfig, HasMixtralsUsualValuesWhereKeysAreLeftOut) {
  const DecoderConfig decoder =
      read_with(with_experts(Json::object()), read_mixtral_config, "rms_norm_eps");
  EXPECT_EQ(decoder.norm_eps, 1e-5);
  EXPECT_EQ(decoder.rope.theta, 1e6);
  EXPECT_EQ(decoder.window, 0);
  const Json window = with_experts({{"sliding_window", 16}});
  EXPECT_EQ(read_with(window, read_mixtral_config).window, 16);
}

TEST(DecoderConfig, RefusesUnsupportedFeatures) {
  expect_unsupported({{"hidden_act", "gelu_fast"}}, {"hidden_act", "gelu_fast", "relu, silu"});
  expect_unsupported({{"rope_scaling", {{"rope_type", "spiral"}, {"factor", 4.0}}}},
                     {"spiral", "default, linear, dynamic, yarn, llama3, longrope"});
  expect_unsupported({{"partial_rotary_factor", 0.5}}, {"0.5"});
  expect_unsupported(
      {{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}},
      {"rope_parameters.partial_rotary_factor", "0.5"});
  expect_unsupported({{"layer_types", {"linear_attention"}}},
                     {"linear_attention", "full_attention, sliding_attention"}, read_qwen3_config);
}

TEST(DecoderConfig, HasTheTanhThatGemmasFirstFilesMeanByGelu) {
  const auto activation = [](const char* name) {
    const Json changes = {{"num_key_value_heads", 4}, {"hidden_act", name}};
    return read_with(changes, read_gemma_config).activation;
  };
  EXPECT_EQ(activation("gelu"), nn::Activation::kGeluTanh);
  EXPECT_EQ(activation("relu"), nn::Activation::kRelu);
}

// Those of transformers 4.57, whose models have no row for a padding token beyond the vocabulary.
TEST(DecoderConfig, HasGemmasUsualValuesWhereKeysAreLeftOut) {
  for (Read* read : {read_gemma_config, read_gemma2_config, read_gemma3_text_config}) {
    const DecoderConfig decoder = read_with({{"num_key_value_heads", 4}}, read);
    EXPECT_EQ(decoder.head_dim, 256);
    EXPECT_EQ(decoder.activation, nn::Activation::kGeluTanh);
    EXPECT_EQ(decoder.padding_token, 0);
    EXPECT_EQ(decoder.embedding_scale, 4);
    EXPECT_TRUE(decoder.tie_word_embeddings);
    EXPECT_TRUE(decoder.norms_add_one);
  }
  const DecoderConfig gemma3 = read_with({{"num_hidden_layers", 7}}, read_gemma3_text_config);
  EXPECT_EQ(gemma3.score_scale, 1.0 / 16);
  EXPECT_EQ(gemma3.rope.theta, 1e6);
  EXPECT_EQ(gemma3.sliding_rope->theta, 1e4);
  const Json by_type = {{"sliding_attention", {{"rope_type", "default"}}},
                        {"full_attention", {{"rope_type", "default"}}}};
  const DecoderConfig named =
      read_with({{"rope_theta", 5e5}, {"rope_parameters", by_type}}, read_gemma3_text_config);
  EXPECT_EQ(named.rope.theta, 5e5);
  EXPECT_EQ(named.sliding_rope->theta, 1e4);
  EXPECT_EQ(gemma3.window, 4096);
  EXPECT_EQ(gemma3.sliding_layers, (std::vector<bool>{true, true, true, true, true, false, true}));
}

TEST(DecoderConfig, CapsGemma2sScoresAndLogitsUnlessTheConfigSaysNull) {
  const DecoderConfig gemma2 = read_with({{"num_hidden_layers", 3}}, read_gemma2_config);
  EXPECT_EQ(gemma2.score_cap, 50);
  EXPECT_EQ(gemma2.logit_cap, 30);
  EXPECT_EQ(gemma2.rope.theta, 1e4);
  EXPECT_EQ(gemma2.sliding_layers, (std::vector<bool>{true, false, true}));
  const Json without = {{"attn_logit_softcapping", nullptr}, {"final_logit_softcapping", nullptr}};
  EXPECT_EQ(read_with(without, read_gemma2_config).score_cap, 0);
  EXPECT_EQ(read_with(without, read_gemma2_config).logit_cap, 0);
  const Json own = {{"final_logit_softcapping", 20.0}};
  EXPECT_EQ(read_with(own, read_gemma3_text_config).logit_cap, 20);
  EXPECT_EQ(read_with(Json::object(), read_gemma3_text_config).logit_cap, 0);
}

TEST(DecoderConfig, TakesGemmasActivationByItsKey) {
  EXPECT_EQ(read_with({{"hidden_act", "silu"}}, read_gemma_config).activation,
            nn::Activation::kSilu);
  EXPECT_EQ(read_with({{"hidden_activation", "relu"}}, read_gemma3_text_config).activation,
            nn::Activation::kRelu);
}

TEST(DecoderConfig, RefusesWhatGemma3DoesNotHaveHere) {
  expect_unsupported({{"attn_logit_softcapping", 30.0}}, {"attn_logit_softcapping", "30", "null"},
                     read_gemma3_text_config);
  expect_refused({{"final_logit_softcapping", 0}}, {"final_logit_softcapping", "above 0"},
                 read_gemma3_text_config);
  expect_refused({{"sliding_window", nullptr}}, {"sliding_window", "found null"},
                 read_gemma3_text_config);
  expect_refused({{"query_pre_attn_scalar", 0}}, {"query_pre_attn_scalar", "above 0"},
                 read_gemma3_text_config);
}

TEST(DecoderConfig, RefusesGemmasWhoseTokensSeeThoseBehindThem) {
  for (Read* read : {read_gemma_config, read_gemma2_config, read_gemma3_text_config}) {
    expect_unsupported({{"use_bidirectional_attention", true}}, {"use_bidirectional_attention"},
                       read);
    read_with({{"use_bidirectional_attention", nullptr}}, read);
  }
}

TEST(DecoderConfig, TakesThePaddingTokenAsTransformers) {
  const auto padding = [](const Json& token, Read* read = read_llama_config) {
    return read_with({{"pad_token_id", token}}, read).padding_token;
  };
  EXPECT_EQ(read_with(Json::object()).padding_token, -1);
  EXPECT_EQ(padding(7), 7);
  EXPECT_EQ(padding(-1), 39);
  EXPECT_EQ(padding(nullptr, read_gemma_config), -1);
  EXPECT_EQ(read_with(Json::object(), read_phi3_config).padding_token, -1);  // 32000 is beyond it
  expect_refused({{"pad_token_id", 40}}, {"pad_token_id", "-40 to 39", "found 40"});
}

// As in transformers, where the class's own default does not stand in for it.
TEST(DecoderConfig, TakesNullForFalseWhateverTheDefault) {
  for (Read* read : {read_gemma_config, read_gemma2_config, read_gemma3_text_config}) {
    EXPECT_TRUE(read_with(Json::object(), read).tie_word_embeddings);
    EXPECT_FALSE(read_with({{"tie_word_embeddings", nullptr}}, read).tie_word_embeddings);
  }
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 2.0}, {"truncate", nullptr}};
  const auto scaling = read_with({{"rope_scaling", yarn}}).rope.scaling;
  EXPECT_FALSE(std::get<nn::YarnScaling>(scaling).truncate);
}

TEST(DecoderConfig, RotatesAPartOfEachHeadOfPhi3) {
  EXPECT_EQ(read_with({{"partial_rotary_factor", 0.5}}, read_phi3_config).rotary_dim, 2);
  EXPECT_EQ(
      read_with({{"rope_parameters", {{"rope_type", "default"}, {"partial_rotary_factor", 0.75}}},
                 {"head_dim", 8}},
                read_phi3_config)
          .rotary_dim,
      6);
  for (const Json& share : {Json(0.0), Json(-0.5), Json(1.5), Json(1e300), Json(0.3)}) {
    expect_refused({{"partial_rotary_factor", share}}, {"partial_rotary_factor", "even number of"},
                   read_phi3_config);
  }
}

TEST(SlidingWindow, MayHoldAllPositions) {
  const auto config =
      read_with({{"use_sliding_window", true}, {"sliding_window", 32}}, read_qwen2_config);
  EXPECT_EQ(config.window, 32);
}

TEST(SlidingWindow, IsRefusedWhereTheLayersDoNotFitIt) {
  expect_refused({{"layer_types", {"sliding_attention"}}, {"sliding_window", 16}},
                 {"layer_types", "use_sliding_window"}, read_qwen3_config);
  expect_refused({{"layer_types", {"full_attention", "full_attention"}}},
                 {"layer_types", "1 layers", "found 2"}, read_qwen2_config);
  expect_refused({{"use_sliding_window", true}, {"sliding_window", 0}},
                 {"sliding_window", "found 0"}, read_qwen2_config);
}

TEST(RopeConfig, HasTwoSpellings) {
  const Json llama3 = {{"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  Json old_spelling = llama3;
  old_spelling["type"] = "llama3";
  Json new_spelling = llama3;
  new_spelling["rope_type"] = "llama3";
  new_spelling["rope_theta"] = 500000.0;
  for (const Json& changes :
       {Json{{"rope_scaling", old_spelling}}, Json{{"rope_parameters", new_spelling}}}) {
    const nn::RotaryOptions rope = read_with(changes).rope;
    EXPECT_EQ(std::get<nn::Llama3Scaling>(rope.scaling).factor, 8.0);
  }
}

TEST(RopeConfig, TakesYarnAsQwen25HasIt) {
  for (const Json& scaling :
       {Json{{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}},
        Json{{"rope_type", "yarn"}, {"factor", 4.0}}}) {
    const nn::RotaryOptions rope = read_with({{"rope_scaling", scaling}}, read_qwen2_config).rope;
    EXPECT_EQ(std::get<nn::YarnScaling>(rope.scaling).factor, 4.0);
  }
}

TEST(RopeConfig, StretchesThePositionsThatTheModelWasTrainedWith) {
  const auto positions = [](const Json& scaling) {
    return read_with({{"rope_scaling", scaling}, {"max_position_embeddings", 4096}}).max_positions;
  };
  Json scaling = {{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_EQ(positions(scaling), 16384);
  scaling["original_max_position_embeddings"] = 4096;
  EXPECT_EQ(positions(scaling), 16384);
  scaling["original_max_position_embeddings"] = 512;
  EXPECT_EQ(positions(scaling), 4096);
  scaling["factor"] = 1e300;
  EXPECT_EQ(positions(scaling), int64_t{1} << 31);
  EXPECT_EQ(positions({{"rope_type", "dynamic"}, {"factor", 2.0}}), 8192);
  EXPECT_EQ(positions({{"rope_type", "linear"}, {"factor", 2.0}}), 4096);
}

// Those of transformers 4.57: 4096 positions where the key is left out.
TEST(RopeConfig, OfPhi3IsLongropeByItsThreeNames) {
  Json scaling = {{"short_factor", {1.0, 2.0}}, {"long_factor", {3.0, 4.0}}};
  for (const char* type : {"longrope", "su", "yarn"}) {
    scaling["type"] = type;
    const nn::RotaryOptions rope =
        read_with({{"rope_scaling", scaling}, {"max_position_embeddings", 8192}}, read_phi3_config)
            .rope;
    const auto& longrope = std::get<nn::LongRopeScaling>(rope.scaling);
    EXPECT_EQ(longrope.original_max_positions, 4096);
    EXPECT_EQ(longrope.attention_factor, std::sqrt(1 + std::log(2.0) / std::log(4096.0)));
  }
  expect_unsupported({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}}},
                     {"linear", "default, longrope"}, read_phi3_config);
}

// The newer transformers write both into rope_parameters.
TEST(RopeConfig, OfLongropeTakesAFactorBesideTheTrainedContext) {
  Json rope = {{"rope_type", "longrope"},
               {"short_factor", {1.0, 2.0}},
               {"long_factor", {3.0, 4.0}},
               {"original_max_position_embeddings", 32}};
  const auto attention_factor = [&](const Json& further) {
    Json changes = {{"rope_parameters", rope}};
    changes.update(further);
    return std::get<nn::LongRopeScaling>(read_with(changes).rope.scaling).attention_factor;
  };
  EXPECT_EQ(attention_factor(Json::object()), 1);
  rope["factor"] = 4.0;
  EXPECT_EQ(attention_factor(Json::object()), std::sqrt(1 + std::log(4.0) / std::log(32.0)));
  EXPECT_EQ(attention_factor({{"original_max_position_embeddings", 16}}),
            std::sqrt(1 + std::log(2.0) / std::log(16.0)));
}

TEST(RopeConfig, WithMistakesNamesTheNestedKey) {
  const auto refused = [](const Json& scaling, const std::vector<std::string>& parts) {
    expect_refused({{"rope_scaling", scaling}}, parts);
  };
  refused({{"rope_type", "linear"}}, {"rope_scaling.factor"});
  refused({{"rope_type", "dynamic"}, {"factor", 0.5}}, {"rope_scaling.factor", "at least 1"});
  refused({{"rope_type", "longrope"}, {"short_factor", {1.0, 2.0}}, {"long_factor", {1.0}}},
          {"rope_scaling.long_factor", "2 numbers", "found 1"});
  refused({{"rope_type", "longrope"}, {"short_factor", {1.0, -2.0}}, {"long_factor", {1.0, 2.0}}},
          {"rope_scaling.short_factor", "above 0"});
  refused({{"rope_type", "longrope"}, {"short_factor", {1.0, "2"}}},
          {"rope_scaling.short_factor", "finite numbers"});
  refused({{"rope_type", "yarn"}}, {"rope_scaling.factor"});
  refused({{"rope_type", "yarn"}, {"factor", 4.0}, {"beta_fast", 0.5}},
          {"rope_scaling.beta_fast", "rope_scaling.beta_slow"});
  refused({{"rope_type", "llama3"}, {"factor", 8.0}}, {"rope_scaling.low_freq_factor"});
  refused({{"type", "default"}, {"mrope_section", {1, 1, 1}}},
          {"rope_scaling.mrope_section", "2 frequencies", "found 3"});
}

TEST(ExpertsConfig, IsRefusedWhereItMakesNoSense) {
  expect_refused(with_experts({{"num_experts_per_tok", 5}}), {"num_experts_per_tok", "1 to 4"},
                 read_qwen3_moe_config);
  expect_refused(with_experts({{"mlp_only_layers", {-1}}}), {"mlp_only_layers", "-1"},
                 read_qwen3_moe_config);
  expect_refused(with_experts({{"router_aux_loss_coef", -1}}), {"router_aux_loss_coef", "-1"},
                 read_qwen3_moe_config);
  expect_unsupported(with_experts({{"router_jitter_noise", 0.1}}), {"router_jitter_noise", "0.1"},
                     read_mixtral_config);
}

TEST(ExpertsConfig, HasARouterLossWhereItsLogitsAreAskedFor) {
  for (Read* read : {read_qwen3_moe_config, read_mixtral_config}) {
    const auto factor = [&](const Json& changes) {
      return read_with(with_experts(changes), read).experts->router_loss_factor;
    };
    EXPECT_EQ(factor(Json::object()), 0);
    EXPECT_EQ(factor({{"router_aux_loss_coef", 0.5}}), 0);
    EXPECT_EQ(factor({{"output_router_logits", true}}), 0.001);
    EXPECT_EQ(factor({{"output_router_logits", true}, {"router_aux_loss_coef", 0.5}}), 0.5);
  }
}

TEST(ExpertsConfig, IsRefusedWhereItFitsInNoMemory) {
  expect_refused(with_experts({{"num_experts", 4096}, {"num_hidden_layers", 4096}}),
                 {"\"num_experts\" 4096", "4096 layers"}, read_qwen3_moe_config);
}

TEST(ExpertsConfig, TakesTheirNumberByEitherName) {
  for (Read* read : {read_mixtral_config, read_qwen3_moe_config}) {
    EXPECT_EQ(read_with(with_experts({{"num_experts", 3}}), read).experts->experts, 3);
    EXPECT_EQ(read_with(with_experts({{"num_experts", nullptr}, {"num_local_experts", 5}}), read)
                  .experts->experts,
              5);
    expect_refused(with_experts({{"num_local_experts", 5}}),
                   {"\"num_experts\" 4 and \"num_local_experts\" 5 should be the same"}, read);
  }
}

TEST(DecoderConfig, WithTwoRopeTypesThatDisagreeIsRefused) {
  expect_refused(
      {{"rope_scaling", {{"rope_type", "linear"}, {"type", "yarn"}, {"factor", 2.0}}}},
      {"\"rope_scaling.rope_type\" is \"linear\" and \"rope_scaling.type\" is \"yarn\""});
  read_with({{"rope_scaling", {{"rope_type", "default"}, {"type", "mrope"}}}});
}

TEST(Gemma3, TakesRopesByTheTypeOfTheLayer) {
  const Json ropes = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 5e3}}}};
  const DecoderConfig decoder =
      read_with({{"rope_parameters", ropes}, {"head_dim", 8}}, read_gemma3_text_config);
  EXPECT_EQ(decoder.rope.theta, 1e6);
  EXPECT_EQ(std::get<nn::LinearScaling>(decoder.rope.scaling).factor, 8);
  EXPECT_EQ(decoder.sliding_rope->theta, 5e3);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(decoder.sliding_rope->scaling));
  expect_refused({{"rope_parameters", ropes}}, {"\"rope_parameters.type\""});  // others have one
}

}  // namespace
}  // namespace fsdp2::models
