package io.fsdp2;

import io.fsdp2.internal.Raw;

/** How the values of ranks become one. */
public enum Reduction {
  /** Their sum. */
  SUM(Raw.FSDP2_REDUCE_SUM),
  /** Their mean. */
  AVERAGE(Raw.FSDP2_REDUCE_AVERAGE),
  /** The largest. */
  MAX(Raw.FSDP2_REDUCE_MAX);

  private final int number;

  Reduction(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static Reduction of(int number) {
    for (Reduction known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("Reduction: no number " + number);
  }
}
