package io.fsdp2;

import io.fsdp2.internal.fsdp2_evaluation;

/**
 * The loss of a batch.
 *
 * @param labels that count, over all ranks
 * @param loss their mean cross-entropy; NaN if there are none
 */
public record Evaluation(long labels, double loss) {
  static Evaluation of(fsdp2_evaluation raw) {
    return new Evaluation(raw.getN_labels(), raw.getLoss());
  }
}
