#include "core/nn/layers/packed_sequences.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"

namespace fsdp2::nn {

std::vector<int64_t> read_boundaries(const at::Tensor& cu_seqlens, int64_t batch, int64_t length) {
  FSDP2_CHECK(
      cu_seqlens.dim() == 1 && cu_seqlens.is_cpu() &&
          at::isIntegralType(cu_seqlens.scalar_type(), /*includeBool=*/false),
      Code::kInvalidArgument,
      "cumulative lengths of sequences: expected integers of one dim on the CPU, got {} [{}] "
      "on {}",
      c10::toString(cu_seqlens.scalar_type()), fmt::join(cu_seqlens.sizes(), ", "),
      cu_seqlens.device().str());
  const at::Tensor wide = cu_seqlens.to(at::kLong).contiguous();
  const auto* data = wide.const_data_ptr<int64_t>();
  std::vector<int64_t> boundaries(data, data + wide.numel());
  const int64_t tokens = batch * length;
  FSDP2_CHECK(
      boundaries.size() >= 2 && boundaries.front() == 0 && boundaries.back() == tokens,
      Code::kInvalidArgument,
      "cumulative lengths of sequences: expected 0 to {} ({} rows of {} tokens), got {} numbers{}",
      tokens, batch, length, boundaries.size(),
      boundaries.empty() ? "" : fmt::format(", {} to {}", boundaries.front(), boundaries.back()));
  for (size_t i = 1; i < boundaries.size(); ++i) {
    FSDP2_CHECK(boundaries[i] > boundaries[i - 1], Code::kInvalidArgument,
                "cumulative lengths of sequences: expected rising numbers, got {} after {}",
                boundaries[i], boundaries[i - 1]);
    FSDP2_CHECK(
        (boundaries[i] - 1) / length == boundaries[i - 1] / length, Code::kInvalidArgument,
        "cumulative lengths of sequences: expected sequences within a row of {} tokens, got "
        "one from {} to {}",
        length, boundaries[i - 1], boundaries[i]);
  }
  return boundaries;
}

at::Tensor positions_in(const std::vector<int64_t>& boundaries, int64_t batch, int64_t length) {
  at::Tensor positions = at::empty({batch, length}, at::device(at::kCPU).dtype(at::kLong));
  auto* data = positions.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    for (int64_t token = boundaries[i]; token < boundaries[i + 1]; ++token) {
      data[token] = token - boundaries[i];
    }
  }
  return positions;
}

at::Tensor find_boundaries(const at::Tensor& positions) {
  const at::Tensor host = positions.to(at::kCPU, at::kLong).contiguous();
  const auto* data = host.const_data_ptr<int64_t>();
  const int64_t length = host.size(1);
  std::vector<int64_t> boundaries;
  for (int64_t token = 0; token < host.numel(); ++token) {
    if (token % length == 0 || data[token] != data[token - 1] + 1) {
      boundaries.push_back(token);
    }
  }
  if (static_cast<int64_t>(boundaries.size()) == host.size(0)) {
    return {};
  }
  boundaries.push_back(host.numel());
  return at::tensor(boundaries, at::device(at::kCPU).dtype(at::kLong));
}

at::Tensor mask_of_padding(const at::Tensor& is_token) {
  const at::Tensor index = at::arange(is_token.size(1), is_token.device());
  const at::Tensor query = index.unsqueeze(1);
  const at::Tensor seen = is_token.ne(0).unsqueeze(1).unsqueeze(1);  // [B,1,1,S]
  return index.le(query).logical_and(seen).logical_or(index.eq(query));
}

at::Tensor mask_of_window(int64_t length, int64_t window, at::Device device) {
  if (window == 0 || window >= length) {
    return {};
  }
  return at::ones({1, 1, length, length}, at::device(device).dtype(at::kBool))
      .tril()
      .triu(1 - window);
}

}  // namespace fsdp2::nn
