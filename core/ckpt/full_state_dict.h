// Full state dicts of a sharded tree: parameters gathered one at a time (memory on any rank stays
// bounded by the largest), written by rank 0, read back rows by rows.
#pragma once

#include <string>

#include "core/fsdp/fully_shard.h"

namespace fsdp2::ckpt {

// Collective; the outcome is the same on all ranks. The file appears whole or not at all. Each
// parameter stands under its own name, ties once.
void save_full_state_dict(fsdp::Unit& root, const std::string& path);

// Also writes `config_json` as config.json; makes the directory if it is missing.
void save_pretrained(fsdp::Unit& root, const std::string& config_json,
                     const std::string& directory);

// Collective. Each rank reads only its own rows. A tie may stand under any of its names.
void load_full_state_dict(fsdp::Unit& root, const std::string& path);

}  // namespace fsdp2::ckpt
