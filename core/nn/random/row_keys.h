// Keys of the rows of a batch. What is drawn for a row follows from its key, so that the row meets
// the same numbers on whichever rank it is and whatever rows are beside it.
//
// Shapes: B batch.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fsdp2::nn {

// Hashes each number of x (int32) in place, so that near numbers get unlike ones.
at::Tensor hashed(const at::Tensor& x);
// The hashes of first to first + count - 1, int32, on like's device.
at::Tensor hashed_indices(int64_t count, const at::Tensor& like, int64_t first = 0);

// What tells the rows of a batch [B,...] of tokens or numbers apart: [B] int32 on its device, from
// their values. Error: kInvalidArgument for a batch without rows.
at::Tensor hash_rows(const at::Tensor& batch);
// The generator's next number, all of its bits. REQUIRES: a generator of the CPU.
int32_t draw_number(at::Generator& generator);
// A key for each of these rows, from the next number of the generator (of the CPU): [B] int32.
// Equal rows share a key.
at::Tensor draw_keys(at::Generator& generator, const at::Tensor& rows);

}  // namespace fsdp2::nn
