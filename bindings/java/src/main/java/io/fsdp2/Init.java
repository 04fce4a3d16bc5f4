package io.fsdp2;

import io.fsdp2.internal.Raw;

/** What a parameter begins with, the same at any world size. */
public enum Init {
  /** Normally distributed around 0. */
  NORMAL(Raw.FSDP2_INIT_NORMAL),
  /** Zeros. */
  ZEROS(Raw.FSDP2_INIT_ZEROS),
  /** Ones. */
  ONES(Raw.FSDP2_INIT_ONES);

  private final int number;

  Init(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static Init of(int number) {
    for (Init known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("Init: no number " + number);
  }
}
