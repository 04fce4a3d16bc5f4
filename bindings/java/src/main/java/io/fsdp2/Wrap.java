package io.fsdp2;

import io.fsdp2.internal.Raw;

/** Which modules become units. */
public enum Wrap {
  /** Each module of the model's no-split classes. */
  DEFAULT(Raw.FSDP2_WRAP_DEFAULT),
  /** No class makes units. */
  NONE(Raw.FSDP2_WRAP_NONE),
  /** Each module of the classes in {@code wrapKinds}. */
  KINDS(Raw.FSDP2_WRAP_KINDS);

  private final int number;

  Wrap(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static Wrap of(int number) {
    for (Wrap known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("Wrap: no number " + number);
  }
}
