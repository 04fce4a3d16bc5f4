// A stack whose blocks are units, and its inputs.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/comm/mesh.h"
#include "core/comm/world.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {

struct ShardedStack {
  std::shared_ptr<TinyStack> model;
  std::shared_ptr<Unit> root;
};

inline ShardedStack shard_stack(const std::shared_ptr<World>& world,
                                const TinyStackOptions& options, const Policy& policy = {}) {
  ShardedStack sharded;
  sharded.model = std::make_shared<TinyStack>(options);
  sharded.root =
      fully_shard_by_kind(sharded.model, Mesh::for_fsdp(world, 0), policy, {"TinyBlock"});
  return sharded;
}

inline at::Tensor ones_of(int64_t width) { return at::ones({2, width}); }

inline nn::Values route(int64_t width, std::vector<int64_t> blocks) {
  return {ones_of(width), std::move(blocks)};
}

}  // namespace fsdp2::fsdp
