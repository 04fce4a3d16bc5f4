// The one way in which this library reduces the values of several ranks on the CPU.
//
// Rank 0 first, then 1, 2, ..., so that the result depends neither on timing nor on the transport.
// Values of 16 bits are accumulated in fp32 and rounded once; an average is the sum divided by the
// number of ranks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include "core/comm/transport/reduce_op.h"

namespace fsdp2 {

// out = op(parts[0], parts[1], ...), all 1-D and of one length. out may have another dtype, and may
// be one of the parts.
void reduce_in_rank_order(const at::Tensor& out, at::TensorList parts, ReduceOp op);

// An all-reduce in which each rank reduces one slice for all. A transport moves the bytes, twice:
//   1. slice(peer) goes to the peer, part(peer) comes from it; then reduce().
//   2. slice(rank) goes to all others, slice(peer) comes from the peer; then finish().
class SlicedReduction {
 public:
  // In place, of a contiguous 1-D tensor.
  SlicedReduction(at::Tensor tensor, ReduceOp op, int rank, int size);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(parts_.size()); }
  at::Tensor slice(int owner) const { return padded_.narrow(0, owner * length_, length_); }
  const at::Tensor& part(int source) const { return parts_[static_cast<size_t>(source)]; }
  void reduce() const { reduce_in_rank_order(slice(rank_), parts_, op_); }
  void finish() const;

 private:
  at::Tensor tensor_;
  at::Tensor padded_;              // to equal slices; the tensor itself if it divides into them
  int64_t length_;                 // of a slice
  std::vector<at::Tensor> parts_;  // by source, of this rank's slice
  ReduceOp op_;
  int rank_;
};

}  // namespace fsdp2
