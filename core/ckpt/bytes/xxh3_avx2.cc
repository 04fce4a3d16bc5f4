// Nothing but the library's functions, which are static, may be included here: an inline function
// of a header, compiled for AVX2, could be the one that the linker keeps for everybody.
#include "core/ckpt/bytes/xxh3_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdp2::ckpt {

uint64_t xxh3_avx2(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

void xxh3_avx2_update(void* state, const void* data, size_t bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, bytes);
}

}  // namespace fsdp2::ckpt
