// What ranks that share sequences exchange in attention, worked out without running it.
#pragma once

#include <cstdint>

#include "core/fsdp/unit.h"
#include "core/plan/unit_plan.h"

namespace fsdp2::plan {

// In one forward and backward of so many rows of so many tokens; units are modules of attention.
// Nothing where no sequences are shared.
Traffic exchange_traffic(fsdp::Unit& root, int64_t rows, int64_t sequence_length);

}  // namespace fsdp2::plan
