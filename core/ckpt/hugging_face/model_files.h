// Which files of a model directory hold which tensors, and the index that says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/safetensors/sharding.h"
#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

struct FullWriterOptions {
  std::string config_json;  // kHuggingFaceDirectory: written as config.json
  // kHuggingFaceDirectory: weights above this size are split into files of at most this size (a
  // larger tensor has one to itself), with an index.
  int64_t max_file_bytes = int64_t{5} << 30;
  // kHuggingFaceDirectory: what stands in which file, rather than by size; with an index always.
  FileNumbers file_numbers = {};
};

struct ModelFile {
  std::string name;
  std::vector<TensorSpec> tensors;  // in the order in which they are written
};

// By the options' numbers or sizes. At least one file. kInvalidArgument for a tensor without a
// number where there are numbers.
std::vector<ModelFile> plan_model_files(std::vector<TensorSpec> plan,
                                        const FullWriterOptions& options);

// All tensors, file after file.
std::vector<TensorSpec> tensors_of(const std::vector<ModelFile>& files);

// Whether the directory has an index: of one file that has no number it needs none.
bool has_index(const std::vector<ModelFile>& files, const FullWriterOptions& options);

inline constexpr char kModelIndex[] = "model.safetensors.index.json";

// {"metadata": {"total_size": 128}, "weight_map": {"w": "model-00001-of-00002.safetensors", ...}}
std::string model_index_text(const std::vector<ModelFile>& files);

}  // namespace fsdp2::ckpt
