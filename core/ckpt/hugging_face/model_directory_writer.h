// Whole tensors into a model directory: config.json, and model.safetensors or an index and its
// shards, beside what else is in the directory already: a tokenizer and more. Weights that were
// there go with the old directory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/hugging_face/model_files.h"
#include "core/ckpt/state/full_writer.h"

namespace fsdp2::ckpt {

// Its plan is that of the files, one after the other; the config.json says the tensors' dtype (see
// config_dtype.h). Errors: kInvalidArgument without a config.json; kCorruptData for one that is no
// JSON object; those of plan_model_files, PendingDirectory and SafetensorsWriter.
std::unique_ptr<FullWriter> make_model_directory_writer(const std::string& path,
                                                        std::vector<TensorSpec> plan,
                                                        const FullWriterOptions& options);

}  // namespace fsdp2::ckpt
