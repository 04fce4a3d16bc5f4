#include "core/models/registry.h"

#include <fmt/ranges.h>

#include <array>

#include "core/base/error.h"
#include "core/models/config_reader.h"
#include "core/models/decoder.h"

namespace fsdp2::models {

namespace {

struct Architecture {
  const char* model_type;
  DecoderConfig (*read_config)(const ConfigReader& config);
};

constexpr std::array<Architecture, 4> kArchitectures = {{
    {"llama", read_llama_config},
    {"qwen2", read_qwen2_config},
    {"qwen3", read_qwen3_config},
    {"qwen3_moe", read_qwen3_moe_config},
}};

}  // namespace

std::shared_ptr<CausalLM> build(const std::string& config_json, at::ScalarType dtype) {
  FSDP2_CHECK(
      dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf, Code::kUnsupported,
      "models have parameters of type float32, bfloat16 or float16, not {}", c10::toString(dtype));
  const ConfigReader config(config_json);
  const std::string model_type = config.text("model_type");
  for (const Architecture& architecture : kArchitectures) {
    if (model_type == architecture.model_type) {
      return std::make_shared<DecoderForCausalLM>(architecture.read_config(config), config_json,
                                                  dtype);
    }
  }
  fail(Code::kUnsupported, "config.json: the model_type \"{}\" is not supported; supported: {}",
       model_type, fmt::join(model_types(), ", "));
}

std::vector<std::string> model_types() {
  std::vector<std::string> types;
  for (const Architecture& architecture : kArchitectures) {
    types.emplace_back(architecture.model_type);
  }
  return types;
}

}  // namespace fsdp2::models
