// Gated MLPs in tiles of tokens: what lies between the projections, [tokens, intermediate] three
// times over, exists for one tile at a time. Forward keeps its input alone; backward computes each
// tile again.
//
// Tiles are runs of whole tokens, as torch.chunk cuts them: the same ones in forward and backward,
// and fewer than asked for where there are fewer tokens. The gradients of the weights are summed
// over the tiles in fp32 and handed over once, after the last tile, so that a unit reduces them
// once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/nn/layers/activation.h"
#include "core/nn/module.h"

namespace fsdp2::nn {

// Those of GatedMlp. Either all biases are there or none (undefined).
struct GatedMlpWeights {
  at::Tensor gate, up, down;
  at::Tensor gate_bias, up_bias, down_bias;
};

// down(activation(gate(x)) * up(x)), differentiable once: [..., hidden] -> [..., hidden], for any
// number of tokens. REQUIRES: tiles >= 1. Error: kInvalidArgument if x does not fit the weights.
at::Tensor tiled_gated_mlp(const at::Tensor& x, const GatedMlpWeights& weights,
                           Activation activation, int64_t tiles);

// From now on all GatedMlp at or below root, experts among them, run in as many tiles. Returns how
// many these are. Sharded they may be, alone or within a layer: what must not be are units of their
// projections, which would be gathered for a forward that they no longer have; their next forward
// says so. Errors, before anything is changed: kInvalidArgument for tiles < 1; kNotFound if there
// are none.
int64_t tile_mlps(Module& root, int64_t tiles);

}  // namespace fsdp2::nn
