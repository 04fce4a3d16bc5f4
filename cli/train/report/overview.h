// What a run tells of itself before its first step, for people.
#pragma once

#include <string>
#include <vector>

#include "cli/library.h"

namespace fsdp2::cli {

// One line each: the units, those alike and side by side as one; this rank's memory as planned,
// without activations, unless units are gathered in an order that no plan knows; the frozen
// parameters, if there are any. Not collective.
std::vector<std::string> overview(const Shard& shard, const Optimizer& optimizer);

}  // namespace fsdp2::cli
