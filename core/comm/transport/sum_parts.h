// The sum of what several ranks have, in one pass over memory.
#pragma once

#include <c10/util/ArrayRef.h>
#include <c10/util/BFloat16.h>

#include <cstdint>

namespace fsdp2 {

// out[i] = (parts[0][i] + parts[1][i] + ...) / divisor for n elements, added in this order, in fp32
// and rounded once. out may be one of the parts.
void sum_parts(c10::ArrayRef<const float*> parts, float divisor, float* out, int64_t n);
void sum_parts(c10::ArrayRef<const c10::BFloat16*> parts, float divisor, c10::BFloat16* out,
               int64_t n);
void sum_parts(c10::ArrayRef<const c10::BFloat16*> parts, float divisor, float* out, int64_t n);
void sum_parts(c10::ArrayRef<const float*> parts, float divisor, c10::BFloat16* out, int64_t n);

}  // namespace fsdp2
