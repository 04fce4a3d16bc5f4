package io.fsdp2;

/**
 * How a parameter is gathered.
 *
 * @param parameter its name
 * @param parameterIndex its index
 * @param unitIndex that of its unit
 * @param computeDtype for gathering and computing
 * @param shardRank this rank's number in the group that gathers
 * @param shardRanks the size of that group
 */
public record GatherInfo(
    String parameter,
    int parameterIndex,
    int unitIndex,
    DType computeDtype,
    int shardRank,
    int shardRanks) {
  static GatherInfo of(io.fsdp2.internal.GatherInfo raw) {
    return new GatherInfo(
        raw.parameter(),
        raw.parameterIndex(),
        raw.unitIndex(),
        DType.of(raw.computeDtype()),
        raw.shardRank(),
        raw.shardRanks());
  }
}
