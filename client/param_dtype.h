// --param-dtype auto.
#pragma once

#include "client/library.h"
#include "core/config/plan.h"

namespace fsdp2::client {

// Collective. Makes an `auto` the dtype that the devices of all ranks compute fast in, and turns
// loss scaling on for fp16 unless somebody has given a --loss-scale; a note of the plan says which
// dtype it is and why.
void settle_param_dtype(config::Plan* plan, fsdp2_mesh mesh);

}  // namespace fsdp2::client
