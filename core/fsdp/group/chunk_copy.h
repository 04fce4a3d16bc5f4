// Copies between a parameter's own layout and the ranks' chunks of it, one row a rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "core/fsdp/group/shard_layout.h"

namespace fsdp2::fsdp {

// Copies that are made together: on a device with kernels for it (core/nn/kernels) in few launches,
// where one for each small parameter would cost the host more than the device.
class CopyList {
 public:
  // to = from, cast to its dtype; both are flat or [rows, n], with rows that are contiguous and may
  // lie apart. Nothing happens before run(). No `to` overlaps another tensor of the list.
  void add(at::Tensor from, at::Tensor to);
  // On the current stream. The list is empty then.
  void run();

 private:
  std::vector<at::Tensor> from_;
  std::vector<at::Tensor> to_;
};

// rows [world, padded_numel] -> parameter (flat, at least global_numel elements). Dtypes are equal.
void chunks_to_parameter(const ShardLayout& layout, const at::Tensor& rows,
                         const at::Tensor& parameter);

// values (the parameter's shape; undefined: zeros) -> rows [world, padded_numel], padding zeroed.
// Casts to the rows' dtype. What can wait for others is left to `copies`.
void parameter_to_chunks(const ShardLayout& layout, const at::Tensor& values,
                         const at::Tensor& rows, CopyList& copies);

}  // namespace fsdp2::fsdp
