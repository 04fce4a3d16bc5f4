package io.fsdp2.internal;

/** Chooses the dim that a parameter is sharded on; {@code fsdp2_shard_dim_fn} of shard.h. */
@FunctionalInterface
public interface ShardDim {
  /**
   * @param parameter its name
   * @param shape of the whole parameter
   * @return the dim, negative from the end; all ranks answer alike
   */
  int shardDim(String parameter, long[] shape) throws Exception;
}
