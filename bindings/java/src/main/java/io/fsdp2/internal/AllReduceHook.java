package io.fsdp2.internal;

/** Sees the reduced gradients of a unit; {@code fsdp2_all_reduce_hook_fn} of hook.h. */
@FunctionalInterface
public interface AllReduceHook {
  /**
   * @param info whose they are
   * @param gradients a tensor: 1-D, summed over the ranks but not divided or cast yet; may be
   *     overwritten
   */
  void allReduce(AllReduceInfo info, long gradients) throws Exception;
}
