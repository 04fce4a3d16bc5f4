#include "core/ckpt/hugging_face/config_dtype.h"

#include <c10/core/ScalarType.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "core/base/json_depth.h"

namespace fsdp2::ckpt {

namespace {

const char* dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kDouble:
      return "float64";
    default:
      return nullptr;
  }
}

std::optional<at::ScalarType> widest_of(const std::vector<TensorSpec>& tensors) {
  std::optional<at::ScalarType> widest;
  for (const TensorSpec& tensor : tensors) {
    if (dtype_name(tensor.dtype) != nullptr) {
      widest = widest ? c10::promoteTypes(*widest, tensor.dtype) : tensor.dtype;
    }
  }
  return widest;
}

}  // namespace

std::string config_for(const std::string& config_json, const std::vector<TensorSpec>& tensors) {
  FSDP2_CHECK(!is_nested_deeper(config_json, kMostJsonDepth), Code::kCorruptData,
              "config.json: is nested more than {} deep", kMostJsonDepth);
  auto config = nlohmann::ordered_json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  FSDP2_CHECK(config.is_object(), Code::kCorruptData,
              "config.json: is no JSON object, expected a model's configuration");
  const auto dtype = widest_of(tensors);
  const char* key = config.contains("dtype") ? "dtype" : "torch_dtype";
  if (!dtype || (config.contains(key) && config[key] == dtype_name(*dtype))) {
    return config_json;
  }
  config[key] = dtype_name(*dtype);
  return config.dump(2) + "\n";
}

}  // namespace fsdp2::ckpt
