#include "core/comm/all_gather_numbers.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace fsdp2 {

std::vector<int64_t> all_gather_numbers(Comm& comm, const std::vector<int64_t>& mine) {
  const at::TensorOptions on_host = at::device(at::kCPU).dtype(at::kLong);
  const auto count = static_cast<int64_t>(mine.size());
  const at::Tensor in = at::empty({count}, on_host);
  std::copy(mine.begin(), mine.end(), in.mutable_data_ptr<int64_t>());
  const at::Tensor out = at::empty({count * comm.size()}, on_host);
  if (count > 0) {
    comm.all_gather(out, in).wait();
  }
  const auto* data = out.const_data_ptr<int64_t>();
  return {data, data + out.numel()};
}

}  // namespace fsdp2
