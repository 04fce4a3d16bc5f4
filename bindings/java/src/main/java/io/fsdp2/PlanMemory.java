package io.fsdp2;

import io.fsdp2.internal.fsdp2_plan_memory;

/**
 * Bytes on this rank at the moment of a step when they are most.
 *
 * @param peakBytes the following three together
 * @param modelBytes of shards, gathered parameters, gradients and buffers
 * @param activationBytes of what forward keeps for backward, what is being computed, and
 *     communication buffers
 * @param optimizerBytes of the optimizer's state
 */
public record PlanMemory(
    long peakBytes, long modelBytes, long activationBytes, long optimizerBytes) {
  static PlanMemory of(fsdp2_plan_memory raw) {
    return new PlanMemory(
        raw.getPeak_bytes(),
        raw.getModel_bytes(),
        raw.getActivation_bytes(),
        raw.getOptimizer_bytes());
  }
}
