// The weights of a Hugging Face directory as a checkpoint to read from, and what tells such a
// directory from others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ckpt/state/listed_tensor.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/store/path_content.h"
#include "core/ckpt/store/pending_directory.h"

namespace fsdp2::ckpt {

inline constexpr char kModelDirectoryFormat[] = "a Hugging Face directory";

// By the names of its files. REQUIRES: they are not those of several ranks, which end alike (see
// safetensors/sharding.h).
bool is_model_directory(const PathContent& content);

// Needs no config.json. Errors: those of WeightFiles.
std::unique_ptr<StateSource> open_model_directory(const std::string& path);

// Lists all *.safetensors in it, whatever the index says. Errors: those of SafetensorsFile.
std::vector<ListedTensor> list_model_directory(const std::string& directory);

// A model directory replaces any other: its writer keeps what else is there.
Replaceable replaceable_by_model();

}  // namespace fsdp2::ckpt
