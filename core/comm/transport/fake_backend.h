// A c10d backend of one rank that plays a group of any size: calls end at once and move nothing.
//
// Every other rank is taken to pass what this one passes, so that outputs are finite and agreements
// hold: a gather repeats the own piece, a sum is the own value times the number of ranks, averages
// and maxima are the own value, a broadcast leaves it. A piece scattered by another rank is zero.
// Meta tensors pass through.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace fsdp2 {

c10::intrusive_ptr<c10d::Backend> make_fake_backend(int rank, int size);

}  // namespace fsdp2
