// What the options of forward-only work have in common.
#pragma once

#include <cstdint>
#include <optional>

#include "capi/argument.h"
#include "include/fsdp2/shard.h"

namespace fsdp2::capi {

// reshard_after_forward of a run of forwards; unset: as the units have it.
inline std::optional<bool> read_infer_reshard(int32_t reshard) {
  return read_enum<std::optional<bool>>(
      reshard,
      {{FSDP2_RESHARD_AUTO, std::nullopt},
       {FSDP2_RESHARD_ALWAYS, true},
       {FSDP2_RESHARD_NEVER, false}},
      "options.reshard_after_forward: expected FSDP2_RESHARD_AUTO (0), _ALWAYS (1) or _NEVER (-1)");
}

}  // namespace fsdp2::capi
