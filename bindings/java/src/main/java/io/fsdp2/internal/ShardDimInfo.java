package io.fsdp2.internal;

/**
 * A parameter that is to be sharded; {@code fsdp2_shard_dim_info} of shard.h.
 *
 * @param parameter its name
 * @param shape of the whole parameter
 * @param dtype the module's
 */
public record ShardDimInfo(String parameter, long[] shape, int dtype) {}
