// Whole tensors into one safetensors file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/state/full_writer.h"

namespace fsdp2::ckpt {

// Its plan is sorted_by_item_size. Errors: those of SafetensorsWriter.
std::unique_ptr<FullWriter> make_safetensors_writer(const std::string& path,
                                                    std::vector<TensorSpec> plan);

std::vector<TensorSpec> sorted_by_item_size(std::vector<TensorSpec> plan);

}  // namespace fsdp2::ckpt
