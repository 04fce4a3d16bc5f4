package io.fsdp2;

import io.fsdp2.internal.Raw;

/** The order in which a loader takes the windows of its file. */
public enum Order {
  /** In file order, wrapping around. */
  SEQUENTIAL(Raw.FSDP2_ORDER_SEQUENTIAL),
  /** A new permutation for each epoch, by seed. */
  SHUFFLED(Raw.FSDP2_ORDER_SHUFFLED);

  private final int number;

  Order(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static Order of(int number) {
    for (Order known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("Order: no number " + number);
  }
}
