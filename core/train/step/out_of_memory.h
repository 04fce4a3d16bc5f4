// What a user needs to act on a step that memory did not suffice for.
#pragma once

#include <string>

#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

// Rethrows the exception that is being handled. One that says that memory ran out, of the host
// (kOutOfMemory) or of a device (kDeviceMemory), also says then at which place of the step it was
// (fsdp::Scheduler::place), what the model and the optimizer hold on this rank, what a plan of the
// step foresees without activations, and, of a device, what its allocator holds. Only in a catch
// block, with the tree idle again.
[[noreturn]] void rethrow_with_memory(Optimizer& optimizer, const std::string& where);

}  // namespace fsdp2::train
