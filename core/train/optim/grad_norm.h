// The global norm of a tree's gradients, and what clipping does with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/fsdp/fully_shard.h"

namespace fsdp2::train {

// This rank's part of the squared norm: over its shards of all parameters, divided by the number of
// replicas, so that the sum over all ranks of the mesh is the squared norm. Accumulated in double
// (LibTorch's own CPU norm of a large fp32 tensor drifts). Finite if the gradients are, whatever
// their dtype, but for fp64 beyond 1e154.
double grad_square_sum(fsdp::Unit& root);

// The p-norm of all gradients, p > 0 or infinity. Empty shards count as nothing. Collective: one
// scalar all-reduce.
double global_grad_norm(fsdp::Unit& root, double p = 2.0);

// Whether some rank's gradients hold an infinity or a NaN; all ranks get the same answer.
// Collective: one scalar all-reduce.
bool gradients_overflow(fsdp::Unit& root);

// The first of root.parameters() whose gradient's rows on this rank hold an infinity or a NaN.
struct BadGradient {
  size_t parameter;
  bool has_nan;
};
std::optional<BadGradient> first_bad_gradient(fsdp::Unit& root);

// What is left to know of gradients that do not stay until all have come.
class TakenGradients {
 public:
  explicit TakenGradients(fsdp::Unit& root);
  void clear();

  // Those that these parameters, of one unit, have now. Once a parameter until clear. The host
  // waits for no device.
  void add(const std::vector<fsdp::ShardedParam*>& params);
  bool has(const fsdp::ShardedParam& param) const { return sums_[index_of_.at(&param)].is_there; }
  // As the functions above. The sum is the same to the bit where gradients are in the host's
  // memory. A device's that are beyond 1e19 in fp32 count as infinite.
  double square_sum() const;
  // It may be another parameter of the same unit where gradients are on a device.
  std::optional<BadGradient> first_bad() const;

 private:
  struct Sum {
    bool is_there = false;
    bool is_fused = false;  // by a fused loop
    double value = 0.0;     // of a gradient in the host's memory
    at::Tensor on_device;   // of those that came with it
  };
  // By parameter; those of a device have been read.
  std::vector<Sum> read_sums() const;

  fsdp::Unit& root_;
  std::unordered_map<const fsdp::ShardedParam*, size_t> index_of_;  // in root.parameters()
  std::vector<Sum> sums_;                                           // by parameter
};

// What gradients are divided by so that their norm is at most max_norm: max(1, (norm + 1e-6) /
// max_norm), as clip_grad_norm_ of PyTorch has it: NaN if the norm is. 1 if max_norm is 0 (no
// clipping).
double clip_divisor(double norm, double max_norm);

// Divides gradients by a divisor that fp32 does not hold, as a huge norm over max_norm may be, and
// returns 1; returns any other divisor, which kernels apply on the way.
double divide_if_huge(fsdp::Unit& root, double divisor);
// Divides all gradients in place.
void divide_gradients(fsdp::Unit& root, double divisor);
// Multiplies all gradients in place.
void scale_gradients(fsdp::Unit& root, double factor);

}  // namespace fsdp2::train
