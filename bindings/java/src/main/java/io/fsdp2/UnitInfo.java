package io.fsdp2;

import io.fsdp2.internal.fsdp2_unit_info;

/**
 * A unit of a shard.
 *
 * @param state what its parameters are now
 * @param modules modules in it
 * @param parameters its own; 0: the units below have them all
 * @param dtype of the first parameter
 * @param computeDtype for computing
 * @param shardDim -1: parameters differ in it, or there are none
 * @param isRoot whether it is the whole module
 * @param numel global elements
 * @param shardedBytes of this rank's part, with padding
 * @param unshardedBytes of the gathered parameters in full
 * @param liveBytes of the gathered parameters that are alive now
 */
public record UnitInfo(
    UnitState state,
    int modules,
    int parameters,
    DType dtype,
    DType computeDtype,
    int shardDim,
    boolean isRoot,
    long numel,
    long shardedBytes,
    long unshardedBytes,
    long liveBytes) {
  static UnitInfo of(fsdp2_unit_info raw) {
    return new UnitInfo(
        UnitState.of(raw.getState()),
        raw.getN_modules(),
        raw.getN_parameters(),
        DType.of(raw.getDtype()),
        DType.of(raw.getCompute_dtype()),
        raw.getShard_dim(),
        raw.getIs_root() != 0,
        raw.getNumel(),
        raw.getSharded_bytes(),
        raw.getUnsharded_bytes(),
        raw.getLive_bytes());
  }
}
