// XXH3, 64 bits, compiled for AVX2: the same sums, of what is in the cache three times as fast as
// with the vectors that every x86-64 CPU has. Elsewhere than on x86-64 as the compiler's flags say.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdp2::ckpt {

// REQUIRES of both: on x86-64, a CPU with AVX2.
uint64_t xxh3_avx2(const void* data, size_t bytes);
// `state` is an XXH3_state_t.
void xxh3_avx2_update(void* state, const void* data, size_t bytes);

}  // namespace fsdp2::ckpt
