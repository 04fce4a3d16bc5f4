package io.fsdp2;

import io.fsdp2.internal.fsdp2_plan_reshard;

/**
 * What {@link Plan#chooseReshard} has chosen.
 *
 * @param candidates units, without the root, whose parameters come from other ranks
 * @param kept of these, units that stay gathered after forward
 * @param peakBytes of a step then, as in {@link PlanMemory}
 * @param reshardedPeakBytes of a step in which none stays gathered
 */
public record PlanReshard(int candidates, int kept, long peakBytes, long reshardedPeakBytes) {
  static PlanReshard of(fsdp2_plan_reshard raw) {
    return new PlanReshard(
        raw.getN_candidates(), raw.getN_kept(), raw.getPeak_bytes(), raw.getResharded_peak_bytes());
  }
}
