#include "core/fsdp/group/shard_layout.h"

#include <algorithm>

#include "core/base/error.h"

namespace fsdp2::fsdp {

namespace {

int64_t product(const std::vector<int64_t>& sizes) {
  int64_t numel = 1;
  for (const int64_t size : sizes) {
    numel *= size;
  }
  return numel;
}

// Without a shape in between: every gather and reduction asks for each of its parameters.
int64_t numel_with_size(const std::vector<int64_t>& shape, int dim, int64_t size) {
  int64_t numel = size;
  for (size_t i = 0; i < shape.size(); ++i) {
    numel *= i == static_cast<size_t>(dim) ? 1 : shape[i];
  }
  return numel;
}

std::vector<int64_t> with_size(std::vector<int64_t> shape, int dim, int64_t size) {
  shape[static_cast<size_t>(dim)] = size;
  return shape;
}

}  // namespace

ShardLayout ShardLayout::make(at::IntArrayRef global_shape, int dim, int rank, int world) {
  FSDP2_CHECK(!global_shape.empty(), Code::kInvalidArgument,
              "a parameter of 0 dims cannot be sharded; make it a tensor of shape [1]");
  const auto n_dims = static_cast<int>(global_shape.size());
  FSDP2_CHECK(dim >= -n_dims && dim < n_dims, Code::kInvalidArgument,
              "shard dim {} is invalid for a {}-D parameter, expected one in [{}, {}]", dim, n_dims,
              -n_dims, n_dims - 1);
  dim = dim < 0 ? dim + n_dims : dim;
  FSDP2_CHECK(dim == 0 || global_shape[static_cast<size_t>(dim)] % world == 0, Code::kUnsupported,
              "an uneven split on dim {} is not supported: {} elements over {} ranks (dim 0 may be "
              "uneven)",
              dim, global_shape[static_cast<size_t>(dim)], world);
  ShardLayout layout;
  layout.global_shape = global_shape.vec();
  layout.dim = dim;
  layout.world = world;
  layout.rank = rank;
  const int64_t rows = global_shape[static_cast<size_t>(dim)];
  layout.chunk = (rows + world - 1) / world;
  layout.start = std::min(rank * layout.chunk, rows);
  layout.length = std::min(layout.chunk, rows - layout.start);
  return layout;
}

std::vector<int64_t> ShardLayout::local_shape() const {
  return with_size(global_shape, dim, length);
}

std::vector<int64_t> ShardLayout::padded_shape() const {
  return with_size(global_shape, dim, chunk);
}

int64_t ShardLayout::outer_numel() const {
  return product({global_shape.begin(), global_shape.begin() + dim});
}

int64_t ShardLayout::global_numel() const { return product(global_shape); }
int64_t ShardLayout::local_numel() const { return numel_with_size(global_shape, dim, length); }
int64_t ShardLayout::padded_numel() const { return numel_with_size(global_shape, dim, chunk); }

}  // namespace fsdp2::fsdp
