// The texts of values.h.
#include <map>

#include "tests/fuzz/abi/values.h"

namespace fsdp2::fuzz {

namespace {

const std::vector<std::string> kDims = {"fsdp", "fsdp", "fsdp",     "fsdp", "ddp",
                                        "a",    "b",    "ddp_fsdp", "flat"};
const std::vector<std::string> kUnits = {
    "",        "",      "model.layers.0", "model.layers.1", "model.layers.0.mlp",
    "lm_head", "model", "nothing"};
const std::vector<std::string> kParameters = {"model.norm.weight",
                                              "model.embed_tokens.weight",
                                              "lm_head.weight",
                                              "model.layers.0.mlp.down_proj.weight",
                                              "model.layers.1.self_attn.q_proj.weight",
                                              "model.layers.0",
                                              "nothing"};
const std::vector<std::string> kPaths = {"one",           "one",
                                         "one",           "run",
                                         "run",           "two",
                                         "three.pth",     "four.safetensors",
                                         "nothing",       "tokens",
                                         "new/directory", "run/step-00000001",
                                         "run",           "run/step-00000002"};
const std::vector<std::string> kKinds = {
    "LlamaDecoderLayer", "Qwen3DecoderLayer", "LlamaMLP", "Qwen2DecoderLayer", "Linear", "Nothing"};

const std::vector<std::string> kOperators = {"aten::abs",         "aten::add.Tensor",
                                             "aten::mul.Tensor",  "aten::relu",
                                             "aten::sum",         "aten::mm",
                                             "aten::linear",      "aten::embedding",
                                             "aten::cat",         "aten::split.Tensor",
                                             "aten::unbind.int",  "aten::softmax.int",
                                             "aten::item",        "aten::index.Tensor",
                                             "aten::layer_norm",  "aten::cross_entropy_loss",
                                             "aten::view",        "aten::detach",
                                             "aten::to.dtype",    "aten::topk",
                                             "aten::add_.Tensor", "aten::where.self",
                                             "aten::dropout",     "aten::equal",
                                             "aten::transpose_",  "aten::set_.source_Tensor",
                                             "aten::_softmax",    "aten::nothing",
                                             "prims::mul"};

const std::vector<std::string> kCustomParameters = {"v", "w", "a.v", "b.v", "a.w", "weight"};

std::string config(const char* type, int width, bool tied) {
  const std::string size = std::to_string(width);
  return std::string("{\"model_type\": \"") + type +
         "\", \"vocab_size\": 32, \"hidden_size\": " + size +
         ", \"head_dim\": 4, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
         "\"intermediate_size\": 12, \"num_hidden_layers\": 2, \"max_position_embeddings\": 32, "
         "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"initializer_range\": 0.2, "
         "\"tie_word_embeddings\": " +
         (tied ? "true" : "false") +
         ", \"hidden_act\": \"silu\", \"attention_bias\": false, \"mlp_bias\": false, "
         "\"moe_intermediate_size\": 8, \"num_experts\": 4, \"num_experts_per_tok\": 2, "
         "\"norm_topk_prob\": true, \"decoder_sparse_step\": 1, \"mlp_only_layers\": []}";
}

const std::string kEncoder =
    "{\"model_type\": \"encoder\", \"vocab_size\": 32, \"hidden_size\": 8, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
    "\"max_position_embeddings\": 32, \"mask_token_id\": 31}";

const std::vector<std::string> kConfigs = {
    config("llama", 8, false),
    config("llama", 8, false),
    config("llama", 16, true),
    config("qwen3", 8, false),
    config("qwen2", 16, true),
    config("qwen3_moe", 8, false),
    config("nothing", 8, false),
    kEncoder,
    "{}",
    "{\"model_type\": \"llama\"",
};

const std::vector<std::string> kLayers = {"Linear",     "Linear", "Embedding", "RMSNorm",
                                          "Sequential", "ReLU",   "Dropout",   "Nothing"};
const std::vector<std::string> kLayerOptions = {"{}",
                                                "{\"in_features\": 4, \"out_features\": 4}",
                                                "{\"num_embeddings\": 32, \"embedding_dim\": 4}",
                                                "{\"normalized_shape\": 4}",
                                                "{\"p\": 0.5}",
                                                "{\"in_features\": 1e9"};

const std::vector<std::string> kRunConfigs = {
    "lr: 1e-3\nmicro_batch: 2",
    "fsdp: true\ntrain_batch: 8",
    "actor_train: {strategy_args: {strategy_config: {fsdp_size: 2}}}",
    "parallel: {fully_shard_parallel_size: auto}",
    "sharding_size: 2",
    "lr: fast",
    "[",
    ""};

// By name, and by owner and name where the name alone says too little.
const std::map<std::string, std::vector<std::string>>& good_texts() {
  static const std::map<std::string, std::vector<std::string>> kTexts = {
      {"config", kRunConfigs},
      {"config_name", {"run.yaml", ""}},
      {"config_path", kPaths},
      {"device_type", {"cpu", "cpu", "cpu", "cuda", "meta", "tpu"}},
      {"directory", {"one", "two", "nothing"}},
      {"from", kPaths},
      {"fsdp2_mesh_flatten names", kDims},
      {"fsdp2_mesh_from_group name", kDims},
      {"fsdp2_mesh_flatten name", kDims},
      {"fsdp2_mesh_get_dim_index name", kDims},
      {"fsdp2_mesh_get_submesh names", kDims},
      {"fsdp2_mesh_options names", kDims},
      {"fsdp2_module_create_layer json", kLayerOptions},
      {"fsdp2_module_create_layer kind", kLayers},
      {"fsdp2_module_forward_submodule path",
       {"lm_head", "model.embed_tokens", "model", "nothing"}},
      {"fsdp2_module_add_buffer name", {"t", "u", "a"}},
      {"fsdp2_module_add_child name", {"a", "b", "w"}},
      {"fsdp2_module_add_parameter name", {"v", "w", "a"}},
      {"fsdp2_module_get_buffer name", {"t", "u", "a.t", "b.u"}},
      {"fsdp2_module_tie_parameter name", kCustomParameters},
      {"fsdp2_op_call name", kOperators},
      {"fsdp2_op_get_schema name", kOperators},
      {"fsdp2_optimizer_get_state name", {"exp_avg", "exp_avg_sq", "step", "momentum_buffer"}},
      {"config_overrides", {"{\"rope_theta\": 100.0}", "{\"nothing\": 1}", "{", ""}},
      {"fsdp2_shard_apply_strategy name",
       {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "hybrid_shard", "HYBRID_SHARD_ZERO2", "NONE"}},
      {"fsdp2_shard_make_unit names", kUnits},
      {"fsdp2_loader_open path", {"tokens", "tokens", "tokens", "one", "nothing"}},
      {"fsdp2_loader_open_mixture paths", {"tokens", "tokens", "tokens", "nothing"}},
      {"fsdp2_state_add_tensor name", {"x", "y"}},
      {"fsdp2_state_add_value name", {"u", "v", "x"}},
      {"fsdp2_state_add_value json",
       {"1", "null", "\"text\"", "[1, [2, true]]", "{}", "[[[", "1e999"}},
      {"fsdp2_state_get_tensor name", {"x", "y", "u"}},
      {"fsdp2_state_get_value name", {"u", "v", "x"}},
      {"ignored_names", kParameters},
      {"json", kConfigs},
      {"key", {"lr", "global_batch", "global-batch", "lrr", ""}},
      {"kind", {"LlamaMLP", "Custom", "Nothing"}},
      {"kinds", kKinds},
      {"message", {"the fuzzer's own failure", ""}},
      {"name", kParameters},
      {"names", kParameters},
      {"other", kCustomParameters},
      {"path", kPaths},
      {"pattern", {"*bias", "model.*", "lm_head.weight", "*", "[", "nothing"}},
      {"patterns", kParameters},
      {"plan",
       {"lr: 1e-3", "lr: 1e-3\nsteps: 2  # a comment", "", "lr: [", "fsdp: true",
        "model: one\ntokens: tokens\nglobal_batch: 4\nseq_len: 8", "model: nothing",
        "strategy: no_shard\noptimizer: muon", "epochs: 2\nwarmup_ratio: 0.1", "timeout_s: 1.0"}},
      {"rendezvous", {"thread://alone", "fake://", "nowhere://"}},
      {"role", {"actor_train", "", "critic"}},
      {"sets", {"lr=1e-2", "steps=3", "training.lr=1", "lr", "a.b.c={d: [1, 2]}"}},
      {"text", {"a=1", "a=1\nb=2", ""}},
      {"fsdp2_tokenizer_encode_record text", {"{\"text\": \"a\"}", "{\"messages\": []}", "{", ""}},
      {"fsdp2_tokenizer_encode_prompt text",
       {"{\"text\": \"a\"}", "{\"prompt\": \"<image>\", \"images\": [\"one\"]}", "{", ""}},
      {"to", kPaths},
      {"tokenizer", {"one", "nothing"}},
      {"trace_file", {"trace.json", "one", "nothing/trace.json"}},
      {"unit", kUnits},
      {"units", kUnits},
      {"vision_model", {"one", "nothing"}},
      {"what", {"settings"}},
      {"wrap_kinds", kKinds},
      {"wrap_names", kUnits},
  };
  return kTexts;
}

}  // namespace

const std::vector<std::string>* texts_of(const std::string& owner, const std::string& name) {
  const auto& all = good_texts();
  const auto own = all.find(owner + " " + name);
  const auto by_name = all.find(name);
  return own != all.end() ? &own->second : by_name != all.end() ? &by_name->second : nullptr;
}

std::string good_text(const std::string& owner, const std::string& name, Random& random) {
  return random.of(*texts_of(owner, name));
}

std::string bad_text(Random& random) {
  static const std::vector<std::string> kTexts = {
      "\xff", "cut \xe2\x82", "", std::string(5000, 'x'), "a\nb", "a/../b", "\x01", "%s%n"};
  return random.of(kTexts);
}

}  // namespace fsdp2::fuzz
