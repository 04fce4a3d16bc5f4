// What a user needs to act on a step that memory did not suffice for.
#pragma once

#include <string>

#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

// For the exception that is being handled, if it says that memory ran out, of the host
// (kOutOfMemory) or of a device (kDeviceMemory): what to add to its message. That is the stage of
// the step, or where the scheduler was (fsdp::Scheduler::place) if it is null; what the model and
// the optimizer hold on this rank; what a plan of the step foresees without activations, where
// there can be one; and, of a device, what its allocator holds. "" for any other exception, and
// where there is no memory for the text. Only in a catch block, before the step is dropped, all of
// whose activations are gone by then.
std::string memory_story(Optimizer& optimizer, const char* stage) noexcept;

// Rethrows the exception that is being handled, as an Error with `story` behind its message unless
// that is empty.
[[noreturn]] void rethrow_with(const std::string& story);

}  // namespace fsdp2::train
