package io.fsdp2;

/** Chooses the dim that a parameter is cut on. */
@FunctionalInterface
public interface ShardDim {
  /**
   * Called once for each parameter.
   *
   * @param parameter its name
   * @param shape its global sizes
   * @param dtype the module's
   * @return the dim, negative from the end; all ranks answer alike
   */
  int shardDim(String parameter, long[] shape, DType dtype) throws Exception;
}
