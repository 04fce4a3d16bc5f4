// A c10d backend of one rank that plays a group of any size: calls end at once and move nothing.
//
// It assumes that every other rank passes what this one passes, so that outputs are finite and
// agreements hold: a gather repeats this rank's piece, a sum is this rank's value times the number
// of ranks, an average or maximum is this rank's value, a broadcast changes nothing. A piece
// scattered by another rank is zero. Meta tensors pass through.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace fsdp2 {

c10::intrusive_ptr<c10d::Backend> make_fake_backend(int rank, int size);

}  // namespace fsdp2
