package io.fsdp2.internal;

/** Chooses the dim that a parameter is sharded on; {@code fsdp2_shard_dim_fn} of shard.h. */
@FunctionalInterface
public interface ShardDim {
  /**
   * @param info the parameter
   * @return the dim, negative from the end; all ranks answer alike
   */
  int shardDim(ShardDimInfo info) throws Exception;
}
