#include "core/models/registry.h"

#include <fmt/ranges.h>

#include <array>

#include "core/base/error.h"
#include "core/models/config/config_reader.h"
#include "core/models/decoder.h"
#include "core/models/encoder.h"
#include "core/models/gpt2.h"
#include "core/models/vision_language.h"

namespace fsdp2::models {

namespace {

struct Architecture {
  const char* model_type;
  Builder build;
};

// For the architectures that differ in what they read from config.json alone.
template <DecoderConfig (*read_config)(const ConfigReader&)>
std::shared_ptr<nn::Module> build_decoder(const std::string& config_json, at::ScalarType dtype) {
  return make_decoder(read_config(ConfigReader(config_json)), config_json, dtype);
}

constexpr std::array<Architecture, 14> kArchitectures = {{
    {"encoder", build_encoder},
    {"gemma", build_decoder<read_gemma_config>},
    {"gemma2", build_decoder<read_gemma2_config>},
    {"gemma3_text", build_decoder<read_gemma3_text_config>},
    {"gpt2", build_gpt2},
    {"llama", build_decoder<read_llama_config>},
    {"mistral", build_decoder<read_mistral_config>},
    {"mixtral", build_decoder<read_mixtral_config>},
    {"phi3", build_decoder<read_phi3_config>},
    {"qwen2", build_decoder<read_qwen2_config>},
    {"qwen2_5_vl", build_qwen2_5_vl},
    {"qwen3", build_decoder<read_qwen3_config>},
    {"qwen3_moe", build_decoder<read_qwen3_moe_config>},
    {"qwen3_vl", build_qwen3_vl},
}};

// The files of such weights hold other numbers than the weights, and a saved config.json would
// announce quantized weights that are not there.
void refuse_quantized(const ConfigReader& config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    FSDP2_CHECK(!config.has(key), Code::kUnsupported,
                "config.json: \"{0}\" is not supported: expected weights that are not quantized "
                "(transformers makes them: model.dequantize(), then save_pretrained). If the files "
                "have such weights already, take {0} out of config.json",
                key);
  }
}

}  // namespace

Builder builder_of(const std::string& model_type) {
  for (const Architecture& architecture : kArchitectures) {
    if (model_type == architecture.model_type) {
      return architecture.build;
    }
  }
  fail(
      Code::kUnsupported,
      "config.json: the model_type \"{}\" is not supported; supported: {}; export any other model, "
      "python examples/python/export_model.py MODEL model.pt2, and give that file to "
      "fsdp2_module_from_exported or fsdp2 train --model",
      model_type, fmt::join(model_types(), ", "));
}

std::shared_ptr<nn::Module> build(const std::string& config_json, at::ScalarType dtype) {
  FSDP2_CHECK(
      dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf, Code::kUnsupported,
      "models have parameters of type float32, bfloat16 or float16, not {}", c10::toString(dtype));
  const ConfigReader config(config_json);
  const Builder builder = builder_of(config.text("model_type"));
  refuse_quantized(config);
  return builder(config_json, dtype);
}

std::vector<std::string> model_types() {
  std::vector<std::string> types;
  for (const Architecture& architecture : kArchitectures) {
    types.emplace_back(architecture.model_type);
  }
  return types;
}

}  // namespace fsdp2::models
