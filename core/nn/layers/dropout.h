// Dropout whose masks follow from keys instead of from a generator's state: whether an element is
// kept depends on the key of its row of the batch and on its index in that row. So a row meets the
// same mask on whichever rank it is and whatever rows are beside it, a second forward in backward
// (activation checkpointing) meets it again, and backward needs the keys alone. The masks are the
// same on every device, and the host waits for none.
//
// Shapes: B batch, S sequence.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp2::nn {

// A key for each row of tokens [B,S] int64: [B] int32 on the tokens' device, from the tokens and
// the next number of the generator (of the CPU). Rows of the same tokens share a key.
at::Tensor draw_row_keys(at::Generator& generator, const at::Tensor& tokens);

// The keys for one of several uses of dropout (layers, places in a layer), each with masks of its
// own. Undefined keys, for no dropout, stay undefined.
at::Tensor keys_for(const at::Tensor& keys, int64_t use);

// x [B,...]: an element becomes 0 with this probability, in [0,1), and else is divided by
// 1 - probability. keys: [B] int32; x stays as it is if they are undefined or the probability is 0.
// part: x's rows are this one of the equal parts of longer rows, whose masks they meet.
at::Tensor with_dropout(const at::Tensor& x, const at::Tensor& keys, double probability,
                        int64_t part = 0);

}  // namespace fsdp2::nn
