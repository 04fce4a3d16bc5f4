// Which nodes of a program run as one of our own operators.
#pragma once

#include <functional>
#include <vector>

#include "core/exported/fusions/fusion.h"
#include "core/exported/operators/operations.h"
#include "core/exported/program/program.h"

namespace fsdp2::exported {

// Ordered by their last nodes, and without a node in common. All nodes of one run in one mode; the
// program reads what they make nowhere else, and changes nothing in place that they read or make.
// is_written: by value, whether that happens to it. may_join: whether nodes, ascending, may run
// where the last of them does.
std::vector<Fusion> find_fusions(const Program& program, const std::vector<Operation>& operations,
                                 const std::vector<bool>& is_written,
                                 const std::function<bool(const std::vector<int32_t>&)>& may_join);

}  // namespace fsdp2::exported
