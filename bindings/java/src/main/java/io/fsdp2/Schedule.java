package io.fsdp2;

import io.fsdp2.internal.Raw;

/** How the learning rate goes on after the warm-up. */
public enum Schedule {
  /** It stays. */
  CONSTANT(Raw.FSDP2_SCHEDULE_CONSTANT),
  /** It falls on a line. */
  LINEAR(Raw.FSDP2_SCHEDULE_LINEAR),
  /** It falls on half a cosine. */
  COSINE(Raw.FSDP2_SCHEDULE_COSINE);

  private final int number;

  Schedule(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static Schedule of(int number) {
    for (Schedule known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("Schedule: no number " + number);
  }
}
