// Several sequences one after the other in a row of tokens, which do not see each other.
//
// They are told by cumulative lengths, `cu_seqlens` in transformers and in flash attention:
// integers [n + 1] over the tokens of all rows, one row after the other: 0, ..., B * S, rising,
// each row beginning a sequence. They decide which kernels run, so they are on the CPU: no device
// is waited for.
//
// Shapes: B batch, S sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fsdp2::nn {

// Checked. Error: kInvalidArgument, naming the first number that is wrong.
std::vector<int64_t> read_boundaries(const at::Tensor& cu_seqlens, int64_t batch, int64_t length);

// Positions [B,S] int64 on the CPU that begin at 0 in each sequence.
at::Tensor positions_in(const std::vector<int64_t>& boundaries, int64_t batch, int64_t length);

// The cumulative lengths of the sequences that positions [B,S] show, as transformers finds them:
// one begins wherever a position is not the one before it plus 1. Undefined if each row is one
// sequence. Waits for the device of positions.
at::Tensor find_boundaries(const at::Tensor& positions);

// The 4-D mask, true where a position is seen, of tokens [B,S] of which some are padding (0 or
// false): causal, padding unseen but by itself, so that no position sees nothing.
at::Tensor mask_of_padding(const at::Tensor& is_token);

// The mask [1,1,S,S], true where a position is seen: itself and at most window - 1 before it.
// Undefined where that says no more than the causal order: for a window of 0 (none) or of all S.
at::Tensor mask_of_window(int64_t length, int64_t window, at::Device device);

}  // namespace fsdp2::nn
