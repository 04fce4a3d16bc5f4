#include "core/ckpt/hugging_face/model_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

int64_t bytes_of(const TensorSpec& spec) {
  auto bytes = static_cast<int64_t>(c10::elementSize(spec.dtype));
  for (const int64_t size : spec.shape) {
    bytes *= size;
  }
  return bytes;
}

std::string file_name(size_t number, size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
}

std::vector<ModelFile> by_size(const std::vector<TensorSpec>& plan, int64_t max_bytes) {
  std::vector<ModelFile> files(1);
  int64_t bytes = 0;
  for (const TensorSpec& spec : plan) {
    if (!files.back().tensors.empty() && bytes_of(spec) > max_bytes - bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().tensors.push_back(spec);
    bytes += bytes_of(spec);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name = files.size() == 1 ? "model.safetensors" : file_name(i + 1, files.size());
  }
  return files;
}

// Numbers of which there is no tensor have no file.
std::vector<ModelFile> by_number(const std::vector<TensorSpec>& plan, const FileNumbers& numbers) {
  std::map<int64_t, std::vector<TensorSpec>> tensors;
  for (const TensorSpec& spec : plan) {
    const auto number = numbers.find(spec.name);
    FSDP2_CHECK(number != numbers.end() && number->second >= 1, Code::kInvalidArgument,
                "{}: has no file number, expected one from 1 on", printable_name(spec.name));
    tensors[number->second].push_back(spec);
  }
  int64_t count = 1;
  for (const auto& [name, number] : numbers) {
    count = std::max(count, number);
  }
  std::vector<ModelFile> files;
  for (auto& [number, in_file] : tensors) {
    files.push_back(
        {file_name(static_cast<size_t>(number), static_cast<size_t>(count)), std::move(in_file)});
  }
  return files;
}

}  // namespace

std::vector<ModelFile> plan_model_files(std::vector<TensorSpec> plan,
                                        const FullWriterOptions& options) {
  sort_by_item_size(plan);
  return options.file_numbers.empty() ? by_size(plan, options.max_file_bytes)
                                      : by_number(plan, options.file_numbers);
}

std::vector<TensorSpec> tensors_of(const std::vector<ModelFile>& files) {
  std::vector<TensorSpec> all;
  for (const ModelFile& file : files) {
    all.insert(all.end(), file.tensors.begin(), file.tensors.end());
  }
  return all;
}

bool has_index(const std::vector<ModelFile>& files, const FullWriterOptions& options) {
  return files.size() > 1 || !options.file_numbers.empty();
}

std::string model_index_text(const std::vector<ModelFile>& files) {
  int64_t total = 0;
  nlohmann::ordered_json weights = nlohmann::ordered_json::object();
  for (const ModelFile& file : files) {
    for (const TensorSpec& spec : file.tensors) {
      weights[spec.name] = file.name;
      total += bytes_of(spec);
    }
  }
  return nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", weights}}
             .dump(2) +
         "\n";
}

}  // namespace fsdp2::ckpt
