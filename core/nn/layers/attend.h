// The middle of attention, between its projections: values mixed by who sees whom.
//
// Shapes: B batch, S sequence, L length of a part of it, H heads, K key-value heads, E dim of a
// head.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>

#include "core/nn/layers/sequence_parts.h"

namespace fsdp2::nn {

// Drops weights with which values are mixed; see dropout.h.
struct AttentionDropout {
  double probability = 0;
  at::Tensor keys;   // [B] int32; undefined: nothing is dropped
  int64_t part = 0;  // which of the equal parts of all heads those at hand are

  bool is_on() const { return keys.defined() && probability > 0; }
};

// What becomes of scores before they are weights.
struct ScoreRules {
  int64_t window = 0;  // a position sees itself and window - 1 before it; 0: all
  double scale = 0;    // of q k; 0: 1 / sqrt(E)
  // Above 0, scores are soft_capped(). Weights [B,H,S,S] are then held, which no fused attention
  // makes of such scores.
  double cap = 0;
  bool both_ways = false;  // without the causal order. REQUIRES: no window
};

// q [B,S,H,E], k and v [B,S,K,E] -> [B,S,H,E]. What a position sees is said by `seen`:
//   None                   the positions up to itself; both ways: all
//   integers [n + 1]       those of them that are of its own sequence (packed_sequences.h)
//   [B, H or 1, S, S]      where a boolean is true; numbers are added to the scores
// A mask [B, H or 1, S, S] is taken as it is, whatever the window. Error: kInvalidArgument for
// another mask. REQUIRES: K divides H.
at::Tensor attend(const at::Tensor& q, at::Tensor k, at::Tensor v, const c10::IValue& seen,
                  const AttentionDropout& dropout, const ScoreRules& rules = {});

// The same both ways, without dropout and rows: q, k and v [S,H,E] -> [S,H,E]; boundaries [n + 1]
// as of packed_sequences.h. Sequences of one length that follow one another are one product.
at::Tensor attend_both_ways(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& boundaries);

// attend() where peers share the sequences: q, k, v and what comes back have [B,L,...] of this
// rank's part. `seen` is about the whole sequence, as are the keys. REQUIRES: check_head_peers;
// with both_ways and padded parts, a `seen` whose size is the length.
at::Tensor attend_with(const PeersPointer& peers, const at::Tensor& q, const at::Tensor& k,
                       const at::Tensor& v, const c10::IValue& seen,
                       const AttentionDropout& dropout, const ScoreRules& rules = {});

// What attend_with exchanges, of heads of dim `head_dim`.
ExchangedNumel exchanged_heads(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ranks);

// Error: kInvalidArgument if ranks cannot have as many heads each, or as many key-value heads,
// which are repeated where there are fewer of them than ranks. kind: of the module, for the
// message.
void check_head_peers(const std::string& kind, int64_t heads, int64_t kv_heads, int64_t ranks);

}  // namespace fsdp2::nn
