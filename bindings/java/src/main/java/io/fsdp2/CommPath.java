package io.fsdp2;

import io.fsdp2.internal.Raw;

/** How parameters travel. */
public enum CommPath {
  /** Chosen per parameter, by size and layout. */
  AUTO(Raw.FSDP2_COMM_PATH_AUTO),
  /** Straight into its storage where the layout allows. */
  DIRECT(Raw.FSDP2_COMM_PATH_DIRECT),
  /** One buffer and one collective per unit. */
  PACKED(Raw.FSDP2_COMM_PATH_PACKED);

  private final int number;

  CommPath(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static CommPath of(int number) {
    for (CommPath known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("CommPath: no number " + number);
  }
}
