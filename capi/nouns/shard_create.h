// From a module and fsdp2_shard_options to a shard.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capi/guard.h"
#include "capi/object.h"
#include "include/fsdp2/shard.h"

namespace fsdp2::capi {

// Collective. The id of the new shard; `out` is only checked, before anything is changed.
uint64_t create_shard(Call& call, fsdp2_module module, fsdp2_mesh mesh,
                      const fsdp2_shard_options* given, const fsdp2_shard* out);

// Collective. All of fsdp2_shard_modules.
void shard_modules(Call& call, fsdp2_module module, fsdp2_mesh mesh, const char* const* names,
                   size_t n_names, const fsdp2_shard_options* given);

// Collective. REQUIRES: entered.
// kWrongState unless the parameters still wait for their values.
void check_awaits_values(const ShardObject& shard);
void load_values(ShardObject& shard);

}  // namespace fsdp2::capi
