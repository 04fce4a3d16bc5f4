package io.fsdp2;

import io.fsdp2.internal.fsdp2_step_result;

/**
 * What a step did.
 *
 * @param applied false: skipped, nothing was updated
 * @param step counts from 0
 * @param tokens over all ranks
 * @param loss before the update
 * @param gradNorm before clipping
 * @param lr the learning rate
 * @param seconds how long it took
 * @param tokensPerSecond over all ranks
 * @param peakUnshardedBytes of gathered parameters on this rank, so far
 * @param lossScale 1: none
 * @param finite false: the loss or the norm is infinite or NaN
 * @param skipsInRow steps not applied up to this one
 * @param labels that count, over all ranks
 * @param meanOverMicroBatches one of the two means
 * @param meanOverLabels the other mean
 */
public record StepResult(
    boolean applied,
    long step,
    long tokens,
    double loss,
    double gradNorm,
    double lr,
    double seconds,
    double tokensPerSecond,
    long peakUnshardedBytes,
    double lossScale,
    boolean finite,
    int skipsInRow,
    long labels,
    double meanOverMicroBatches,
    double meanOverLabels) {
  static StepResult of(fsdp2_step_result raw) {
    return new StepResult(
        raw.getApplied() != 0,
        raw.getStep(),
        raw.getN_tokens(),
        raw.getLoss(),
        raw.getGrad_norm(),
        raw.getLr(),
        raw.getSeconds(),
        raw.getTokens_per_second(),
        raw.getPeak_unsharded_bytes(),
        raw.getLoss_scale(),
        raw.getFinite() != 0,
        raw.getSkips_in_row(),
        raw.getN_labels(),
        raw.getMean_over_micro_batches(),
        raw.getMean_over_labels());
  }
}
