package io.fsdp2;

import io.fsdp2.internal.fsdp2_shard_stats;

/**
 * What a shard has moved since it was made or last reset, and what it holds.
 *
 * @param units with parameters
 * @param allGathers of units
 * @param reduceScatters of units
 * @param allReduces of units
 * @param allGatherBytes received by this rank
 * @param reduceScatterBytes received by this rank
 * @param allReduceBytes received by this rank
 * @param unshardedBytes of gathered parameters now
 * @param peakUnshardedBytes of gathered parameters at most
 * @param allToAlls of attention, where ranks share sequences
 * @param allToAllBytes received by this rank
 * @param keptBytes of keepBuffers: kept now, and not in use
 */
public record ShardStats(
    int units,
    long allGathers,
    long reduceScatters,
    long allReduces,
    long allGatherBytes,
    long reduceScatterBytes,
    long allReduceBytes,
    long unshardedBytes,
    long peakUnshardedBytes,
    long allToAlls,
    long allToAllBytes,
    long keptBytes) {
  static ShardStats of(fsdp2_shard_stats raw) {
    return new ShardStats(
        raw.getN_units(),
        raw.getAll_gathers(),
        raw.getReduce_scatters(),
        raw.getAll_reduces(),
        raw.getAll_gather_bytes(),
        raw.getReduce_scatter_bytes(),
        raw.getAll_reduce_bytes(),
        raw.getUnsharded_bytes(),
        raw.getPeak_unsharded_bytes(),
        raw.getAll_to_alls(),
        raw.getAll_to_all_bytes(),
        raw.getKept_bytes());
  }
}
