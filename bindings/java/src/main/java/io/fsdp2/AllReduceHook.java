package io.fsdp2;

/** Sees the reduced gradients of a unit. */
@FunctionalInterface
public interface AllReduceHook {
  /**
   * Called after the gradients were summed over the ranks. It may overwrite them, and make
   * collective calls on tensors over another mesh.
   *
   * @param unit its name; empty for the root
   * @param unitIndex its index
   * @param gradients of all its parameters, 1-D, summed but not divided or cast yet
   */
  void allReduce(String unit, int unitIndex, Tensor gradients) throws Exception;
}
