// The patterns, one a file. Each is found from its last node backwards.
#pragma once

#include <optional>

#include "core/exported/fusions/dataflow.h"
#include "core/exported/fusions/fusion.h"
#include "core/exported/operators/operations.h"

namespace fsdp2::exported {

// RMSNorm as transformers writes it: weight * (x * rsqrt(mean(x^2, -1) + eps)), where x may be
// widened to fp32 before and what the weight multiplies be narrowed again.
std::optional<Fusion> match_rms_norm(const Dataflow& flow, const Operation& last);
// silu(gate) * up.
std::optional<Fusion> match_gate(const Dataflow& flow, const Operation& last);
// x * cos + cat(-x[second half], x[first half]) * sin, where the angles of both halves are the
// same. What one of these finds shares the angles that backward needs.
Match rotary_matches();
// A linear layer, for the products of nn/kernels/linear_product.h.
std::optional<Fusion> match_linear(const Dataflow& flow, const Operation& last);

}  // namespace fsdp2::exported
