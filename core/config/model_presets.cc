#include "core/config/model_presets.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

namespace fsdp2::config {

namespace {

using Json = nlohmann::ordered_json;

// Rows of the table of tokens: GPT-2's 50,257 and more, up to a multiple of 128.
constexpr int64_t kVocabulary = 50304;

Json gpt2(int64_t layers, int64_t width, int64_t heads) {
  return {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"activation_function", "gelu_new"},
      {"attn_pdrop", 0.0},
      {"embd_pdrop", 0.0},
      {"resid_pdrop", 0.0},
      {"bos_token_id", 0},
      {"eos_token_id", 0},
      {"initializer_range", 0.02},
      {"layer_norm_epsilon", 1e-5},
      {"n_embd", width},
      {"n_head", heads},
      {"n_inner", nullptr},
      {"n_layer", layers},
      {"n_positions", 1024},
      {"tie_word_embeddings", true},
      {"use_cache", false},
      {"vocab_size", kVocabulary},
  };
}

Json encoder(int64_t layers, int64_t width, int64_t heads) {
  return {
      {"architectures", {"EncoderForMaskedLM"}},
      {"model_type", "encoder"},
      {"dropout", 0.1},
      {"hidden_act", "gelu"},
      {"hidden_size", width},
      {"initializer_range", 0.02},
      {"intermediate_size", 4 * width},
      {"layer_norm_eps", 1e-5},
      {"mask_probability", 0.15},
      {"mask_token_id", kVocabulary - 1},
      {"max_position_embeddings", 512},
      {"num_attention_heads", heads},
      {"num_hidden_layers", layers},
      {"tie_word_embeddings", true},
      {"vocab_size", kVocabulary},
  };
}

const std::map<std::string, Json>& presets() {
  static const std::map<std::string, Json> kPresets = {{"encoder-45m", encoder(6, 512, 8)},
                                                       {"gpt-90m", gpt2(12, 640, 10)},
                                                       {"gpt-300m", gpt2(20, 1024, 16)}};
  return kPresets;
}

}  // namespace

std::vector<std::string> model_presets() {
  std::vector<std::string> names;
  for (const auto& [name, config] : presets()) {
    names.push_back(name);
  }
  return names;
}

bool is_model_preset(const std::string& name) { return presets().count(name) > 0; }

std::string config_of_preset(const std::string& name) { return presets().at(name).dump(2); }

}  // namespace fsdp2::config
