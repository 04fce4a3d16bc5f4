package io.fsdp2;

import io.fsdp2.internal.Raw;

/** What becomes of a step whose loss or gradient norm is infinite or NaN. */
public enum NotFinite {
  /** It fails on all ranks and updates nothing. */
  ERROR(Raw.FSDP2_NOT_FINITE_ERROR),
  /** It counts, but updates nothing. */
  SKIP(Raw.FSDP2_NOT_FINITE_SKIP),
  /** It is applied as if nothing were wrong. */
  APPLY(Raw.FSDP2_NOT_FINITE_APPLY);

  private final int number;

  NotFinite(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static NotFinite of(int number) {
    for (NotFinite known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("NotFinite: no number " + number);
  }
}
