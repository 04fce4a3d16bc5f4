#include "core/comm/mesh_numbers.h"

#include <ATen/ops/empty.h>

#include <algorithm>

namespace fsdp2 {

void mesh_barrier(const Mesh& mesh) { mesh.team().control().barrier(); }

void mesh_reduce_numbers(const Mesh& mesh, double* values, size_t n, ReduceOp op) {
  const at::Tensor buffer =
      at::empty({static_cast<int64_t>(n)}, at::device(at::kCPU).dtype(at::kDouble));
  std::copy_n(values, n, buffer.mutable_data_ptr<double>());
  mesh.team().control().all_reduce(buffer, op).wait();
  std::copy_n(buffer.const_data_ptr<double>(), n, values);
}

}  // namespace fsdp2
