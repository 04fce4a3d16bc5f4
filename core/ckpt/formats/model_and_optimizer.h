// Directories in which a trainer has saved a model and its optimizer side by side:
//
//   pytorch_model_fsdp_0/, optimizer_0/                  accelerate, SHARDED_STATE_DICT: DCP
//   pytorch_model_fsdp.bin, optimizer.bin                accelerate, FULL_STATE_DICT: torch.save
//   *.safetensors, optimizer.pt or optimizer.bin         transformers' Trainer, accelerate: DDP
//   files of each rank (torch/rank_files.h)              verl, accelerate without DCP, others
//
// They are one checkpoint, with the model under "model" and the optimizer beside it. What else is
// there (schedulers, random generators, a trainer's options) is left alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/state/listed_tensor.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/store/path_content.h"

namespace fsdp2::ckpt {

bool is_model_and_optimizer(const PathContent& content);
// Whether a file of that name beside the others is one of them.
bool is_model_or_optimizer_file(const std::string& name);
// Errors: those of the parts' readers; kInvalidArgument for several models or optimizers;
// kUnsupported for ranks' files of which nothing tells which part of a tensor they have.
std::unique_ptr<StateSource> open_model_and_optimizer(const std::string& directory);
std::vector<ListedTensor> list_model_and_optimizer(const std::string& directory);

}  // namespace fsdp2::ckpt
