package io.fsdp2;

import io.fsdp2.internal.fsdp2_unit_settings;

/**
 * What has been set about one unit, apart from its prefetch lists.
 *
 * @param requiresGradientSync whether backward reduces gradients
 * @param requiresAllReduce whether replicas reduce them too
 * @param reshardAfterForward {@link Reshard#ALWAYS}, {@link Reshard#NEVER}, or {@link Reshard#AUTO}
 *     for the option of that name
 * @param reshardAfterBackward whether backward frees gathered parameters
 * @param unshardInBackward whether backward gathers the unit
 * @param reduceUnusedParameters whether a parameter without a gradient gets zeros
 * @param forceSumReduction whether collectives only sum
 * @param gradientDivideFactor 0: the number of data-parallel ranks
 * @param allocateMemoryFromProcessGroup whether groups of ranks give memory for their collectives
 */
public record UnitSettings(
    boolean requiresGradientSync,
    boolean requiresAllReduce,
    int reshardAfterForward,
    boolean reshardAfterBackward,
    boolean unshardInBackward,
    boolean reduceUnusedParameters,
    boolean forceSumReduction,
    double gradientDivideFactor,
    boolean allocateMemoryFromProcessGroup) {
  static UnitSettings of(fsdp2_unit_settings raw) {
    return new UnitSettings(
        raw.getRequires_gradient_sync() != 0,
        raw.getRequires_all_reduce() != 0,
        raw.getReshard_after_forward(),
        raw.getReshard_after_backward() != 0,
        raw.getUnshard_in_backward() != 0,
        raw.getReduce_unused_parameters() != 0,
        raw.getForce_sum_reduction() != 0,
        raw.getGradient_divide_factor(),
        raw.getAllocate_memory_from_process_group() != 0);
  }

  /** The caller closes it. */
  fsdp2_unit_settings toRaw() {
    fsdp2_unit_settings raw = new fsdp2_unit_settings();
    raw.setRequires_gradient_sync(requiresGradientSync ? 1 : 0);
    raw.setRequires_all_reduce(requiresAllReduce ? 1 : 0);
    raw.setReshard_after_forward(reshardAfterForward);
    raw.setReshard_after_backward(reshardAfterBackward ? 1 : 0);
    raw.setUnshard_in_backward(unshardInBackward ? 1 : 0);
    raw.setReduce_unused_parameters(reduceUnusedParameters ? 1 : 0);
    raw.setForce_sum_reduction(forceSumReduction ? 1 : 0);
    raw.setGradient_divide_factor(gradientDivideFactor);
    raw.setAllocate_memory_from_process_group(allocateMemoryFromProcessGroup ? 1 : 0);
    return raw;
  }
}
