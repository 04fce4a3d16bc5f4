// A stretch of forward that is run again in backward, instead of keeping what it computed.
//
// Note [How a segment is recomputed]
// In forward every tensor that an operation of the segment saves for backward is dropped and takes
// a number (its slot). The first time that backward asks for one, the segment runs again on the
// inputs it had, in the context it had, and what its operations save is recorded by the same
// numbers, detached; then backward takes its tensors from the record. The run is stopped as soon as
// the last tensor that can still be asked for is there, unless it should run to its end, or
// somebody else's frame is on the stack (foreign_frame.h). The graph made by it is dropped:
// gradients flow through the graph of the first forward alone, so hooks on parameters fire there,
// once.
//
// Memory: a segment costs its inputs, and in backward what it would have saved in forward, one
// segment at a time. A tensor is handed out once in a backward; asked again, the segment runs
// again. What is left of a record goes when its backward ends.
#pragma once

#include <ATen/core/Generator.h>

#include <string>
#include <vector>

#include "core/nn/module.h"

namespace fsdp2::nn {

// Runs body(inputs) as a segment and returns its output, whatever its structure. `body` is kept
// until the graph is freed; it must do the same whenever it is called with equal inputs, parameters
// and random numbers. Its inputs must not be changed in place before backward. Without grad mode it
// is just called.
//
// name: for messages. generators: random generators that body draws from, besides the default ones
// and those of which about_to_draw_from hears.
// early_stop false: the second run goes to its end, for a body whose collectives all ranks make.
//
// Errors: kUnsupported if another autograd engine is in the way (saved_tensor_hooks.h). From
// backward: kWrongState if the second run differs from the first, or if it changed in place what
// backward needs; what body throws, as it is.
//
// Segments may nest, also in several forwards before one backward. Threads: as the graph's, that is
// backward may run on others than forward did, several at once.
c10::IValue run_as_segment(const std::string& name, const ForwardBody& body, Values inputs,
                           const std::vector<at::Generator>& generators = {},
                           bool early_stop = true);

// To be called before something draws from a generator that may be none of those above: segments
// whose first run is under way on this thread draw the same from it the second time.
void about_to_draw_from(const at::Generator& generator);

// Whether this thread is running a segment again.
bool is_recomputing();

}  // namespace fsdp2::nn
