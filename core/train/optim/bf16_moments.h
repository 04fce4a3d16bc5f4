// The update of AdamW whose moments are in bf16; adamw.h says how they are rounded.
#pragma once

#include "core/fsdp/fully_shard.h"
#include "core/train/optim/adamw.h"
#include "core/train/optim/fused_optimizer.h"

namespace fsdp2::train {

// What the random bits of a shard's elements follow from, beside the step.
ChanceOfElements chance_of(const fsdp::ShardedParam& param);

// Over what AdamWMoments::list has listed: the fused loop on CPUs, ATen's operators elsewhere, with
// the same random bits.
void update_adamw_with_bf16_moments(FusedLists& lists, const AdamWOptions& options, double lr,
                                    const GradScale& scale);

// The same by ATen's operators alone, wherever the tensors are: what the loop is tested against.
void update_adamw_by_operators(FusedLists& lists, const AdamWOptions& options, double lr,
                               const GradScale& scale);

}  // namespace fsdp2::train
