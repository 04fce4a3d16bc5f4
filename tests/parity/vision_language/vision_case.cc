#include "tests/parity/vision_language/vision_case.h"

#include <ATen/ATen.h>

#include <fstream>

#include "core/ckpt/hugging_face/hugging_face_directory.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/models/language_model.h"
#include "core/models/registry.h"

namespace fsdp2 {

namespace {

const std::string kHere = "tests/parity/vision_language/";

// Undefined if the file has none.
c10::IValue read_tensor(const ckpt::SafetensorsFile& file, const std::string& name) {
  const ckpt::SafetensorsEntry* entry = file.find(name);
  if (entry == nullptr) {
    return {};
  }
  const at::Tensor tensor = at::empty(entry->shape, at::device(at::kCPU).dtype(entry->dtype));
  file.read(*entry, 0, entry->bytes, tensor.mutable_data_ptr());
  return tensor;
}

nlohmann::json read_expected(const std::string& model, const std::string& name) {
  std::ifstream file(kHere + model + ".json");
  for (const nlohmann::json& each : nlohmann::json::parse(file)) {
    if (each.at("name") == name) {
      return each;
    }
  }
  throw std::out_of_range(model + " has no case " + name);
}

}  // namespace

std::string vision_directory(const std::string& model) { return kHere + model; }

std::shared_ptr<nn::Module> build_vision_model(const std::string& model, at::ScalarType dtype) {
  return models::build(ckpt::HuggingFaceDirectory(vision_directory(model)).config_json(), dtype);
}

std::shared_ptr<nn::Module> load_vision_model(const std::string& model, at::ScalarType dtype) {
  auto built = build_vision_model(model, dtype);
  ckpt::HuggingFaceDirectory source(vision_directory(model));
  nn::materialize(*built, source);
  return built;
}

bool is_of_encoder(const std::string& parameter) {
  return parameter.find("visual.") != std::string::npos;
}

void freeze_encoder(nn::Module& model) {
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(model)) {
    if (is_of_encoder(parameter.names.front())) {
      parameter.tensor.set_requires_grad(false);
    }
  }
}

VisionCase::VisionCase(const std::string& model, const std::string& name)
    : expected(read_expected(model, name)) {
  const ckpt::SafetensorsFile file(kHere + expected.at("inputs").get<std::string>());
  const at::Tensor tokens = read_tensor(file, "input_ids").toTensor();
  const at::Tensor mask = read_tensor(file, "attention_mask").toTensor();
  const at::Tensor labels = read_tensor(file, "labels").toTensor().masked_fill(mask.eq(0), -100);
  const bool has_padding = mask.eq(0).any().item<bool>();
  inputs = {tokens, labels, {}, has_padding ? c10::IValue(mask) : c10::IValue()};
  for (const char* further :
       {"pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw"}) {
    inputs.push_back(read_tensor(file, further));
  }
  if (const c10::IValue seconds = read_tensor(file, "second_per_grid_ts"); seconds.isTensor()) {
    inputs.push_back(seconds);
  }
}

nn::Values VisionCase::rows(const nn::Module& model, int64_t first, int64_t count) const {
  nn::Values cut(4);
  for (size_t place = 0; place < 4; ++place) {
    if (inputs[place].isTensor()) {
      cut[place] = inputs[place].toTensor().narrow(0, first, count).contiguous();
    }
  }
  const nn::Values images =
      models::language_model(model, "a test").images_of_rows(inputs, first, count);
  cut.insert(cut.end(), images.begin(), images.end());
  return cut;
}

}  // namespace fsdp2
