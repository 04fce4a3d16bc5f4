// The device_mapping of ROLL.
#pragma once

#include <cstdint>

#include "core/config/value.h"

namespace fsdp2::config {

// How many devices a list names: [0, 1], list(range(a,b)), list(range(a,b,step)), range(a,b), and
// these with + between them. ROLL runs the text as code; nothing else is taken here.
int64_t count_devices(const Value& value);

}  // namespace fsdp2::config
