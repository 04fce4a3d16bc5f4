// What a model does with its part of sequences that peers share (sequence_peers.h).
//
// Gradients are those of a loss that every peer computes alike, of which each rank keeps the share
// of its own part, multiplied by the number of peers: the mean over all ranks that sharding takes
// then is the gradient of one rank that has the whole sequence.
//
// All of these are collective over the peers but part_of. Null peers: nothing is shared, and the
// input comes back.
//
// Shapes: B batch, S sequence, P peers, L = ceil(S / P) the length of a part, H heads, E dim of a
// head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/nn/sequence_peers.h"

namespace fsdp2::nn {

using PeersPointer = std::shared_ptr<SequencePeers>;

// Which part this rank has, from 0.
inline int64_t part_number(const PeersPointer& peers) {
  return peers == nullptr ? 0 : peers->rank();
}

// This rank's part of x along a dim of length S: L of it, padded with `padding` at the end.
at::Tensor part_of(const at::Tensor& x, int64_t dim, const PeersPointer& peers,
                   int64_t padding = 0);

// [B,L,...] -> [B,S,...], the same on all peers.
at::Tensor whole_of(const at::Tensor& part, int64_t length, const PeersPointer& peers);

// The sum over the peers of what each has made of its part.
at::Tensor sum_of_parts(const at::Tensor& x, const PeersPointer& peers);

// All of [B,L,H,E], each with an H of its own that P divides -> [B,P*L,H/P,E]: the whole sequence,
// padding included, of this rank's heads. One collective for all of them.
std::vector<at::Tensor> share_heads(const std::vector<at::Tensor>& parts,
                                    const PeersPointer& peers);
// The way back: [B,P*L,H/P,E] -> [B,L,H,E].
at::Tensor share_sequence(const at::Tensor& heads, const PeersPointer& peers);

}  // namespace fsdp2::nn
