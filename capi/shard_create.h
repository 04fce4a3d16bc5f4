// Sharding a module, with an outcome that is the same on every rank.
#pragma once

#include <cstdint>

#include "capi/object.h"
#include "include/fsdp2/shard.h"

namespace fsdp2::capi {

// Collective over the mesh. Returns a new shard's id; `out` is only checked.
uint64_t create_shard(Call& call, fsdp2_module module, fsdp2_mesh mesh,
                      const fsdp2_shard_options* options, const fsdp2_shard* out);

}  // namespace fsdp2::capi
