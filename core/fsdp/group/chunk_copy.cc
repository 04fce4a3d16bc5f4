#include "core/fsdp/group/chunk_copy.h"

#include <utility>

#include "core/nn/kernels/device_kernels.h"

namespace fsdp2::fsdp {

namespace {

// One rank's chunk of a dim other than 0 is a block of columns of the parameter as a matrix
// [outer, world * run].
at::Tensor columns_by_rank(const ShardLayout& layout, const at::Tensor& parameter) {
  const int64_t outer = layout.outer_numel();
  return parameter.view({outer, layout.world, layout.padded_numel() / outer}).transpose(0, 1);
}

bool can_be_listed(const at::Tensor& from, const at::Tensor& to, const nn::DeviceKernels* kernels) {
  return kernels != nullptr && from.device() == to.device() && nn::device_kernels(from) == kernels;
}

}  // namespace

void CopyList::add(at::Tensor from, at::Tensor to) {
  from_.push_back(std::move(from));
  to_.push_back(std::move(to));
}

void CopyList::run() {
  const nn::DeviceKernels* kernels = nullptr;
  std::vector<at::Tensor> from;
  std::vector<at::Tensor> to;
  for (size_t i = 0; i < from_.size(); ++i) {
    const nn::DeviceKernels* own = nn::device_kernels(to_[i]);
    if (can_be_listed(from_[i], to_[i], own)) {
      kernels = own;
      from.push_back(std::move(from_[i]));
      to.push_back(std::move(to_[i]));
    } else {
      to_[i].copy_(from_[i], /*non_blocking=*/true);
    }
  }
  if (kernels != nullptr) {
    kernels->copy_each(from, to);
  }
  from_.clear();
  to_.clear();
}

void chunks_to_parameter(const ShardLayout& layout, const at::Tensor& rows,
                         const at::Tensor& parameter) {
  if (layout.padded_numel() == 0) {
    return;
  }
  if (layout.chunks_are_contiguous()) {
    parameter.narrow(0, 0, rows.numel()).view(rows.sizes()).copy_(rows);
    return;
  }
  const at::Tensor columns = columns_by_rank(layout, parameter.narrow(0, 0, layout.global_numel()));
  columns.copy_(rows.reshape(columns.sizes()));
}

void parameter_to_chunks(const ShardLayout& layout, const at::Tensor& values,
                         const at::Tensor& rows, CopyList& copies) {
  const int64_t width = layout.padded_numel();
  if (!values.defined()) {
    rows.zero_();
    return;
  }
  if (width == 0) {
    return;
  }
  const at::Tensor flat = values.reshape({-1});
  if (!layout.chunks_are_contiguous()) {
    const at::Tensor columns = columns_by_rank(layout, flat);
    rows.view(columns.sizes()).copy_(columns);
    return;
  }
  const int64_t full = flat.numel() / width;
  const int64_t rest = flat.numel() - full * width;
  if (full > 0) {
    copies.add(flat.narrow(0, 0, full * width).view({full, width}), rows.narrow(0, 0, full));
  }
  if (rest > 0) {
    copies.add(flat.narrow(0, full * width, rest), rows[full].narrow(0, 0, rest));
    rows[full].narrow(0, rest, width - rest).zero_();
  }
  const int64_t begun = full + (rest > 0 ? 1 : 0);
  if (begun < rows.size(0)) {
    rows.narrow(0, begun, rows.size(0) - begun).zero_();
  }
}

}  // namespace fsdp2::fsdp
