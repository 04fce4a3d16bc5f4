#include "core/config/model_presets.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

namespace fsdp2::config {

namespace {

struct Gpt2 {
  int64_t layers, width, heads;
};

const std::map<std::string, Gpt2> kPresets = {{"gpt-90m", {12, 640, 10}},
                                              {"gpt-300m", {20, 1024, 16}}};

}  // namespace

std::vector<std::string> model_presets() {
  std::vector<std::string> names;
  for (const auto& [name, model] : kPresets) {
    names.push_back(name);
  }
  return names;
}

bool is_model_preset(const std::string& name) { return kPresets.count(name) > 0; }

std::string config_of_preset(const std::string& name) {
  const Gpt2& model = kPresets.at(name);
  const nlohmann::ordered_json config = {
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
      {"n_embd", model.width},
      {"n_head", model.heads},
      {"n_inner", nullptr},
      {"n_layer", model.layers},
      {"n_positions", 1024},
      {"tie_word_embeddings", true},
      {"use_cache", false},
      {"vocab_size", 50304},
  };
  return config.dump(2);
}

}  // namespace fsdp2::config
