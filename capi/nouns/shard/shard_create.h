// From a module and fsdp2_shard_options to a shard. Collective.
#pragma once

#include <cstddef>
#include <cstdint>

#include "capi/guard.h"
#include "capi/object.h"
#include "include/fsdp2/shard.h"

namespace fsdp2::capi {

// The id of the new shard; `out` is only checked, before anything is changed.
uint64_t create_shard(Call& call, fsdp2_module module, fsdp2_mesh mesh,
                      const fsdp2_shard_options* given, const fsdp2_shard* out);

void make_units(Call& call, fsdp2_module module, fsdp2_mesh mesh, const fsdp2_shard_options* given);

void make_unit(Call& call, fsdp2_module module, fsdp2_mesh mesh, const char* const* names,
               size_t n_names, const fsdp2_shard_options* given);

}  // namespace fsdp2::capi
