// Full state dicts of a sharded tree: parameters gathered one at a time (memory on any rank stays
// bounded by the largest), and what is whole on every rank: ignored parameters and persistent
// buffers. Written by rank 0, read back rows by rows.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/formats/make_full_writer.h"
#include "core/fsdp/fully_shard.h"

namespace fsdp2::ckpt {

// Collective; the outcome is the same on all ranks. What is written appears whole or not at all.
// Safetensors and model directories hold each parameter under its own name, ties once; a .pth file
// all names, ties sharing memory, as a model's state_dict() has it. format: see make_full_writer.
// dtype: what floating-point parameters are rounded to in the file; they stay as they are.
void save_full_state_dict(fsdp::Unit& root, const std::string& path, CheckpointFormat format,
                          const FullWriterOptions& options,
                          std::optional<at::ScalarType> dtype = std::nullopt);

// Collective. Each rank writes what it holds into `directory` (made if it is missing), without
// communication of tensor data; see per_rank_files.h.
void save_per_rank(fsdp::Unit& root, const std::string& directory, int64_t step);

// Collective, from any format. Each rank reads only its own rows. A tie may stand under any of its
// names.
void load_full_state_dict(fsdp::Unit& root, const std::string& path);

}  // namespace fsdp2::ckpt
