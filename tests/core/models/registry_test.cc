// Building models from config.json.
#include "core/models/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/models/configured_model.h"
#include "core/models/language_model.h"
#include "core/nn/own_generator.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json small_config() {
  return {{"model_type", "llama"},    {"vocab_size", 40},
          {"hidden_size", 16},        {"intermediate_size", 24},
          {"num_hidden_layers", 1},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 32},
          {"rms_norm_eps", 1e-5},     {"tie_word_embeddings", false}};
}

std::shared_ptr<nn::Module> build_with(const Json& changes) {
  Json config = small_config();
  config.update(changes);
  return build(config.dump());
}

// Expects build to fail with this code and a message that has all these parts.
void expect_refused(const std::string& config, Code code, const std::vector<std::string>& parts) {
  try {
    build(config);
    ADD_FAILURE() << "was accepted: " << config;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    for (const std::string& part : parts) {
      EXPECT_THAT(error.message(), HasSubstr(part));
    }
  }
}

void expect_refused_with(const Json& changes, Code code, const std::vector<std::string>& parts) {
  Json config = small_config();
  config.update(changes);
  expect_refused(config.dump(), code, parts);
}

std::vector<std::string> names_of(const nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& parameter : module.named_parameters()) {
    names.push_back(parameter.key());
  }
  return names;
}

TEST(ModelTypes, AreTheSupportedOnes) {
  EXPECT_THAT(model_types(), ElementsAre("encoder", "gemma", "gemma2", "gemma3_text", "gpt2",
                                         "llama", "mistral", "mixtral", "phi3", "qwen2",
                                         "qwen2_5_vl", "qwen3", "qwen3_moe", "qwen3_vl"));
}

TEST(Build, GivesParametersTheNamesOfTransformers) {
  EXPECT_THAT(
      names_of(*build_with(Json::object())),
      ElementsAre(
          "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
          "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
          "model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.gate_proj.weight",
          "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
          "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
          "model.norm.weight", "lm_head.weight"));
}

TEST(Build, GivesQwen2BiasesOnQueriesKeysAndValuesOnly) {
  const auto names = names_of(*build_with({{"model_type", "qwen2"}}));
  EXPECT_THAT(names, ::testing::Contains("model.layers.0.self_attn.v_proj.bias"));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains("model.layers.0.self_attn.o_proj.bias")));
}

TEST(Build, GivesQwen3NormsOfQueriesAndKeys) {
  const auto model = build_with({{"model_type", "qwen3"}});
  EXPECT_THAT(names_of(*model), ::testing::Contains("model.layers.0.self_attn.q_norm.weight"));
  // Without head_dim it is 128 there, whatever the hidden size.
  EXPECT_EQ(model->named_parameters()["model.layers.0.self_attn.q_proj.weight"].size(0), 4 * 128);
}

TEST(Build, GivesBiasesWhereTheConfigAsks) {
  const auto names = names_of(*build_with({{"attention_bias", true}, {"mlp_bias", true}}));
  EXPECT_THAT(names, ::testing::IsSupersetOf({"model.layers.0.self_attn.o_proj.bias",
                                              "model.layers.0.self_attn.q_proj.bias",
                                              "model.layers.0.mlp.down_proj.bias"}));
}

TEST(Build, GivesPhi3OneLayerForQueriesKeysAndValuesAndOneForGateAndUp) {
  const auto model = build_with({{"model_type", "phi3"}});
  EXPECT_THAT(
      names_of(*model),
      ElementsAre(
          "model.embed_tokens.weight", "model.layers.0.self_attn.qkv_proj.weight",
          "model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.gate_up_proj.weight",
          "model.layers.0.mlp.down_proj.weight", "model.layers.0.input_layernorm.weight",
          "model.layers.0.post_attention_layernorm.weight", "model.norm.weight", "lm_head.weight"));
  EXPECT_EQ(model->kind(), "Phi3ForCausalLM");
}

TEST(Build, GivesGemma3FourNormsALayerAndTheClassesOfTransformers) {
  const auto model = build_with({{"model_type", "gemma3_text"}});
  EXPECT_THAT(names_of(*model),
              ::testing::IsSupersetOf({"model.layers.0.self_attn.k_norm.weight",
                                       "model.layers.0.post_attention_layernorm.weight",
                                       "model.layers.0.pre_feedforward_layernorm.weight",
                                       "model.layers.0.post_feedforward_layernorm.weight"}));
  EXPECT_EQ(model->kind(), "Gemma3ForCausalLM");
  EXPECT_EQ(model->child_modules()[0].second->kind(), "Gemma3TextModel");
  EXPECT_THAT(model->no_split_kinds(), ElementsAre("Gemma3DecoderLayer"));
}

TEST(Build, BeginsWithNormsThatMultiplyByOne) {
  const auto first_weight_of_norms = [](const char* model_type) {
    const auto model = build_with({{"model_type", model_type}});
    return configured_model(*model, "a test").initial_norm_weight();
  };
  EXPECT_EQ(first_weight_of_norms("gemma"), 0);
  EXPECT_EQ(first_weight_of_norms("phi3"), 1);
}

TEST(Build, SaysWhichEmbeddingBeginsAsZeros) {
  const auto padding_token = [](const Json& changes) {
    return configured_model(*build_with(changes), "a test").padding_token();
  };
  EXPECT_EQ(padding_token({{"model_type", "gemma"}}), 0);
  EXPECT_EQ(padding_token({{"model_type", "qwen3"}, {"pad_token_id", 7}}), 7);
  EXPECT_EQ(padding_token(Json::object()), -1);
}

TEST(Build, TiesTheHeadToTheEmbedding) {
  const auto model = build_with({{"tie_word_embeddings", true}});
  const auto parameters = nn::named_unique_parameters(*model);
  EXPECT_THAT(parameters[0].names, ElementsAre("model.embed_tokens.weight", "lm_head.weight"));
  EXPECT_EQ(parameters.size(), 11U);
}

TEST(Build, NamesModuleKindsAsTransformers) {
  const auto model = build_with({{"model_type", "qwen2"}});
  EXPECT_EQ(model->kind(), "Qwen2ForCausalLM");
  EXPECT_THAT(model->no_split_kinds(), ElementsAre("Qwen2DecoderLayer"));
  const auto inner = model->child_modules()[0].second;
  EXPECT_EQ(inner->kind(), "Qwen2Model");
  const auto layer = inner->child_modules()[1].second->child_modules()[0].second;
  EXPECT_EQ(layer->kind(), "Qwen2DecoderLayer");
}

TEST(Build, GivesExpertsAKindOfTheirOwnAndTheClassOfTransformers) {
  const auto model = build_with({{"model_type", "qwen3_moe"},
                                 {"num_hidden_layers", 2},
                                 {"mlp_only_layers", {0}},
                                 {"num_experts", 3},
                                 {"num_experts_per_tok", 2},
                                 {"moe_intermediate_size", 8}});
  int experts = 0;
  int mlps = 0;
  for (const auto& below : model->modules()) {
    const auto& module = dynamic_cast<const nn::Module&>(*below);
    experts += module.is_of_class("Qwen3MoeExpert") ? 1 : 0;
    mlps += module.is_of_any_class({"Qwen3MoeMLP", "Other"}) ? 1 : 0;
  }
  EXPECT_EQ(experts, 3);
  EXPECT_EQ(mlps, 4);  // and that of layer 0
}

TEST(Build, GivesMixtralsExpertsTheNamesOfTransformers) {
  const auto model =
      build_with({{"model_type", "mixtral"}, {"num_local_experts", 2}, {"num_experts_per_tok", 1}});
  EXPECT_THAT(names_of(*model),
              ::testing::IsSupersetOf({"model.layers.0.block_sparse_moe.gate.weight",
                                       "model.layers.0.block_sparse_moe.experts.1.w1.weight",
                                       "model.layers.0.block_sparse_moe.experts.1.w2.weight",
                                       "model.layers.0.block_sparse_moe.experts.1.w3.weight"}));
  EXPECT_EQ(
      model->named_parameters()["model.layers.0.block_sparse_moe.experts.1.w2.weight"].sizes(),
      (std::vector<int64_t>{16, 24}));
  int experts = 0;
  for (const auto& below : model->modules()) {
    const auto& module = dynamic_cast<const nn::Module&>(*below);
    experts += module.is_of_class("MixtralBlockSparseTop2MLP") ? 1 : 0;
  }
  EXPECT_EQ(experts, 2);
}

TEST(Build, TakesNoMemory) {
  const auto model = build_with({{"vocab_size", 1 << 24}, {"hidden_size", 1 << 16}});
  for (const auto& parameter : model->parameters()) {
    EXPECT_TRUE(nn::has_no_memory(parameter));
  }
}

TEST(Build, UsesTheDtypeThatIsAsked) {
  const auto model = build(small_config().dump(), at::kBFloat16);
  EXPECT_EQ(model->parameters()[0].scalar_type(), at::kBFloat16);
  EXPECT_THROW(build(small_config().dump(), at::kInt), Error);
}

TEST(Build, KeepsTheConfig) {
  const std::string text = small_config().dump();
  const auto model = build(text);
  const ConfiguredModel& configured = configured_model(*model, "a test");
  EXPECT_EQ(configured.config_json(), text);
  EXPECT_EQ(configured.initializer_range(), 0.02);
  const LanguageModel& language = language_model(*model, "a test");
  EXPECT_EQ(language.vocab_size(), 40);
  EXPECT_EQ(language.max_positions(), 32);
}

TEST(BuilderOf, GivesTheBuilderOfAModelTypeOrNamesThoseThatThereAre) {
  const auto model = builder_of("qwen3")(small_config().dump(), at::kFloat);
  EXPECT_EQ(model->kind(), "Qwen3ForCausalLM");
  try {
    builder_of("mamba");
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_THAT(error.message(),
                HasSubstr("\"mamba\" is not supported; supported: encoder, gemma, gemma2"));
    EXPECT_THAT(error.message(), HasSubstr("export any other model, python "
                                           "examples/python/export_model.py MODEL model.pt2, and"));
  }
}

// The code and text of what `ask` throws.
template <typename Ask>
std::string refusal_of(const Ask& ask) {
  try {
    ask();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    return error.message();
  }
  return "nothing";
}

TEST(Capabilities, AreRefusedByNameWhereAModuleLacksThem) {
  const TinyBlock other(2, 3);
  EXPECT_EQ(find_language_model(other), nullptr);
  EXPECT_EQ(
      refusal_of([&] { language_model(other, "generation"); }),
      "generation: expected a causal language model, found TinyBlock, which has no vocabulary");
  EXPECT_EQ(refusal_of([&] { configured_model(other, "path"); }),
            "path: expected a model that a config.json describes, found TinyBlock, which has none");
}

TEST(BadConfig, OfQuantizedWeightsIsRefused) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    auto config = small_config();
    config[key] = nullptr;
    EXPECT_NO_THROW(build(config.dump()));
    config[key] = {{"quant_method", "fp8"}};
    EXPECT_THAT(refusal_of([&] { build(config.dump()); }),
                HasSubstr(std::string("\"") + key + "\" is not supported: expected weights that"));
  }
}

TEST(BadConfig, WithAnUnknownModelTypeListsTheKnownOnes) {
  expect_refused_with({{"model_type", "mamba"}}, Code::kUnsupported,
                      {"\"mamba\"",
                       "encoder, gemma, gemma2, gemma3_text, gpt2, llama, mistral, mixtral, phi3, "
                       "qwen2, qwen2_5_vl, qwen3, "
                       "qwen3_moe, qwen3_vl"});
}

TEST(BadConfig, WithoutAModelTypeNamesIt) {
  expect_refused_with({{"model_type", nullptr}}, Code::kInvalidArgument, {"model_type", "has no"});
  expect_refused_with({{"model_type", 7}}, Code::kInvalidArgument, {"\"model_type\"", "a string"});
}

TEST(BadConfig, WithTextThatNoMessageHolds) {
  expect_refused_with({{"model_type", "two\nlines"}}, Code::kInvalidArgument,
                      {"\"model_type\"", "\"two\\nlines\""});
  expect_refused_with({{"hidden_act", std::string(10'000, 'x')}}, Code::kInvalidArgument,
                      {"\"hidden_act\"", "xxx..."});
}

TEST(Build, LetsSequencesGrowBeyondThePositionsOfTheRopeTypeDynamic) {
  const auto model = build_with({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 3.0}}}});
  EXPECT_EQ(language_model(*model, "a test").max_positions(), 3 * 32);
}

Json gpt2_config(const Json& changes = Json::object()) {
  Json config = {{"model_type", "gpt2"}, {"vocab_size", 40},  {"n_embd", 16},
                 {"n_layer", 1},         {"n_head", 4},       {"n_positions", 8},
                 {"embd_pdrop", 0.0},    {"attn_pdrop", 0.0}, {"resid_pdrop", 0.0}};
  config.update(changes);
  return config;
}

TEST(Gpt2, HasTheNamesAndKindsOfTransformers) {
  const auto model = build(gpt2_config().dump());
  EXPECT_THAT(names_of(*model),
              ElementsAre("transformer.wte.weight", "transformer.wpe.weight",
                          "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
                          "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias",
                          "transformer.h.0.attn.c_proj.weight", "transformer.h.0.attn.c_proj.bias",
                          "transformer.h.0.ln_2.weight", "transformer.h.0.ln_2.bias",
                          "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_fc.bias",
                          "transformer.h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj.bias",
                          "transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"));
  EXPECT_EQ(nn::named_unique_parameters(*model).size(), 16U);
  EXPECT_EQ(model->kind(), "GPT2LMHeadModel");
  EXPECT_THAT(model->no_split_kinds(), ElementsAre("GPT2Block"));
  const auto modules = model->named_modules();
  for (const auto& [name, kind] :
       {std::pair("transformer", "GPT2Model"), std::pair("transformer.h.0", "GPT2Block"),
        std::pair("transformer.h.0.attn", "GPT2Attention"),
        std::pair("transformer.h.0.attn.c_attn", "Conv1D"),
        std::pair("transformer.h.0.mlp", "GPT2MLP"), std::pair("transformer.ln_f", "LayerNorm")}) {
    EXPECT_EQ(dynamic_cast<const nn::Module&>(*modules[name]).kind(), kind);
  }
}

TEST(Gpt2, DrawsWhatIsAddedToTheHiddenStatesSmallerWithMoreLayers) {
  const auto model = build(gpt2_config({{"n_layer", 8}, {"initializer_range", 0.1}}).dump());
  EXPECT_EQ(configured_model(*model, "a test").initializer_range(), 0.1);
  EXPECT_DOUBLE_EQ(configured_model(*model, "a test").residual_range(), 0.025);
  const auto other = build_with({{"initializer_range", 0.1}});
  EXPECT_EQ(configured_model(*other, "a test").residual_range(), 0.1);
}

TEST(Gpt2, StoresMatricesTransposed) {
  const auto parameters = build(gpt2_config({{"n_inner", 24}}).dump())->named_parameters();
  EXPECT_EQ(parameters["transformer.h.0.attn.c_attn.weight"].sizes(), at::IntArrayRef({16, 48}));
  EXPECT_EQ(parameters["transformer.h.0.mlp.c_proj.weight"].sizes(), at::IntArrayRef({24, 16}));
}

TEST(Gpt2, TakesSizesByTheNamesOfOtherModels) {
  const Json sizes = {{"hidden_size", 24},
                      {"num_hidden_layers", 2},
                      {"num_attention_heads", 3},
                      {"max_position_embeddings", 5}};
  Json config = gpt2_config(sizes);
  for (const char* first : {"n_embd", "n_layer", "n_head", "n_positions"}) {
    config.erase(first);
  }
  const auto parameters = build(config.dump())->named_parameters();
  EXPECT_EQ(parameters["transformer.h.1.mlp.c_fc.weight"].sizes(), at::IntArrayRef({24, 96}));
  EXPECT_EQ(parameters["transformer.wpe.weight"].sizes(), at::IntArrayRef({5, 24}));
  config["num_attention_heads"] = 5;
  const std::vector<std::string> names = {"\"num_attention_heads\" (5)", "\"hidden_size\" (24)"};
  expect_refused(config.dump(), Code::kInvalidArgument, names);
  for (const auto& [second, size] : sizes.items()) {
    const std::vector<std::string> both = {"\"" + second + "\" " + size.dump() +
                                           " should be the same"};
    expect_refused(gpt2_config({{second, size}}).dump(), Code::kInvalidArgument, both);
  }
}

TEST(Gpt2, DrawsOnlyWhereTheConfigHasDropout) {
  EXPECT_FALSE(nn::own_generator_of(*build(gpt2_config().dump())));
  EXPECT_TRUE(nn::own_generator_of(*build(gpt2_config({{"attn_pdrop", 0.1}}).dump())));
  // transformers has dropout where the config does not say.
  EXPECT_TRUE(nn::own_generator_of(*build(gpt2_config({{"resid_pdrop", nullptr}}).dump())));
}

TEST(Gpt2, RefusesWhatItLacks) {
  const auto refused = [](const Json& changes, Code code, const std::vector<std::string>& parts) {
    expect_refused(gpt2_config(changes).dump(), code, parts);
  };
  refused({{"activation_function", "mish"}}, Code::kUnsupported,
          {"\"activation_function\" \"mish\"", "gelu_new, gelu_pytorch_tanh, gelu, relu, silu"});
  refused({{"add_cross_attention", true}}, Code::kUnsupported,
          {"add_cross_attention", "supported: false"});
  refused({{"n_head", 3}}, Code::kInvalidArgument, {"\"n_head\" (3)", "\"n_embd\" (16)"});
  refused({{"attn_pdrop", 1.0}}, Code::kInvalidArgument, {"attn_pdrop", "below 1"});
  refused({{"n_positions", nullptr}}, Code::kInvalidArgument, {"n_positions", "has no"});
}

TEST(MixtureOfExperts, IsInTheLayersThatTheConfigNames) {
  const auto model = build_with({{"model_type", "qwen3_moe"},
                                 {"num_hidden_layers", 4},
                                 {"decoder_sparse_step", 2},
                                 {"mlp_only_layers", {3}},
                                 {"num_experts", 4},
                                 {"num_experts_per_tok", 2},
                                 {"moe_intermediate_size", 8}});
  const auto modules = model->named_modules();
  EXPECT_FALSE(modules.contains("model.layers.0.mlp.experts"));
  EXPECT_TRUE(modules.contains("model.layers.1.mlp.experts.3"));
  EXPECT_FALSE(modules.contains("model.layers.2.mlp.experts"));
  EXPECT_FALSE(modules.contains("model.layers.3.mlp.experts"));
}

}  // namespace
}  // namespace fsdp2::models
