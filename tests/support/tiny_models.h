// Small modules for tests of sharding, built on plain ATen so that nothing of the core but the
// module base is under test with them.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "core/nn/module.h"

namespace fsdp2 {

// y = x W^T + b.
class TinyLinear : public nn::Module {
 public:
  TinyLinear(int64_t in, int64_t out, bool bias = true);
  // Makes another module's parameter this one's weight too.
  void tie_weight(const at::Tensor& other);
  at::Tensor weight;
  at::Tensor bias;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

// linear -> relu -> linear.
class TinyBlock : public nn::Module {
 public:
  TinyBlock(int64_t width, int64_t inner);
  std::shared_ptr<TinyLinear> in;
  std::shared_ptr<TinyLinear> out;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

struct TinyStackOptions {
  int64_t width = 5;
  int64_t inner = 7;
  int64_t blocks = 3;
  bool tied = false;          // the last block shares its first weight with the root's own
  bool frozen_bias = false;   // blocks' first biases do not train
  bool frozen_block = false;  // nothing of block 1 trains
};

// scale * block_n(... block_0(x + x E)): the root owns E [width, width] and scale [width].
// Values come from a seed that is the same on every rank. forward(x) -> [rows, width];
// with a second input, an int list, the blocks of these indices run instead of all, in that order.
class TinyStack : public nn::Module {
 public:
  explicit TinyStack(const TinyStackOptions& options);
  at::Tensor embedding;
  at::Tensor scale;
  std::vector<std::shared_ptr<TinyBlock>> blocks;

 protected:
  c10::IValue forward(nn::Values inputs) override;
};

}  // namespace fsdp2
