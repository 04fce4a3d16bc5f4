// Writers of whole tensors, by format.
//
//   auto writer = make_full_writer(path, CheckpointFormat::kSafetensors, plan, {});
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/hugging_face/model_files.h"
#include "core/ckpt/state/full_writer.h"

namespace fsdp2::ckpt {

// format: kSafetensors, kPth (a flat dict) or kHuggingFaceDirectory (which is made, or replaced as
// a whole); others are kUnsupported. Errors: those of the format's writer.
std::unique_ptr<FullWriter> make_full_writer(const std::string& path, CheckpointFormat format,
                                             std::vector<TensorSpec> plan,
                                             const FullWriterOptions& options);

// The order of such a writer's plan(), for ranks that do not write.
std::vector<TensorSpec> order_of_writing(std::vector<TensorSpec> plan, CheckpointFormat format,
                                         const FullWriterOptions& options);

}  // namespace fsdp2::ckpt
