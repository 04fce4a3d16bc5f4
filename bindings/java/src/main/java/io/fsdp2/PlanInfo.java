package io.fsdp2;

import io.fsdp2.internal.fsdp2_plan_info;

/**
 * What a sharded model holds and moves in one step; bytes are those of this rank.
 *
 * @param units with parameters
 * @param numel of the sharded parameters, ties counted once
 * @param shardBytes of its rows
 * @param gradientBytes of their gradients
 * @param optimizerBytes of the optimizer's state
 * @param peakUnshardedBytes of gathered parameters at most
 * @param peakUnreducedGradientBytes of gradients before they are reduced, at most
 * @param allGathers of units
 * @param reduceScatters of units
 * @param allReduces of units
 * @param allGatherBytes received
 * @param reduceScatterBytes received
 * @param allReduceBytes received
 * @param allToAlls of attention, where ranks share sequences
 * @param allToAllBytes received
 */
public record PlanInfo(
    int units,
    long numel,
    long shardBytes,
    long gradientBytes,
    long optimizerBytes,
    long peakUnshardedBytes,
    long peakUnreducedGradientBytes,
    long allGathers,
    long reduceScatters,
    long allReduces,
    long allGatherBytes,
    long reduceScatterBytes,
    long allReduceBytes,
    long allToAlls,
    long allToAllBytes) {
  static PlanInfo of(fsdp2_plan_info raw) {
    return new PlanInfo(
        raw.getN_units(),
        raw.getNumel(),
        raw.getShard_bytes(),
        raw.getGradient_bytes(),
        raw.getOptimizer_bytes(),
        raw.getPeak_unsharded_bytes(),
        raw.getPeak_unreduced_gradient_bytes(),
        raw.getAll_gathers(),
        raw.getReduce_scatters(),
        raw.getAll_reduces(),
        raw.getAll_gather_bytes(),
        raw.getReduce_scatter_bytes(),
        raw.getAll_reduce_bytes(),
        raw.getAll_to_alls(),
        raw.getAll_to_all_bytes());
  }
}
