package io.fsdp2.internal;

/**
 * What a parameter is gathered from and to; {@code fsdp2_gather_info} of hook.h.
 *
 * @param parameter its name
 * @param parameterIndex its index
 * @param unitIndex that of its unit
 * @param computeDtype gathered and computed in
 * @param shardRank this rank's number in the group that gathers
 * @param shardRanks ranks of that group
 */
public record GatherInfo(
    String parameter,
    int parameterIndex,
    int unitIndex,
    int computeDtype,
    int shardRank,
    int shardRanks) {}
