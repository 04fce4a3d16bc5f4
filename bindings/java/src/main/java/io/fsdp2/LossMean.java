package io.fsdp2;

import io.fsdp2.internal.Raw;

/** What the loss of a step is the mean of. */
public enum LossMean {
  /** The losses of the micro batches, however many labels they have. */
  MICRO_BATCHES(Raw.FSDP2_LOSS_MEAN_MICRO_BATCHES),
  /** The labels that count, in all micro batches and ranks. */
  LABELS(Raw.FSDP2_LOSS_MEAN_LABELS);

  private final int number;

  LossMean(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static LossMean of(int number) {
    for (LossMean known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("LossMean: no number " + number);
  }
}
