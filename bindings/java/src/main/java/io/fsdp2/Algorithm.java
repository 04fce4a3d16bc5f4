package io.fsdp2;

import io.fsdp2.internal.Raw;

/** What an optimizer computes. */
public enum Algorithm {
  /** AdamW. */
  ADAMW(Raw.FSDP2_OPTIMIZER_ADAMW),
  /** SGD with momentum. */
  SGD(Raw.FSDP2_OPTIMIZER_SGD),
  /** Muon, and AdamW for what is no matrix of a hidden layer. */
  MUON(Raw.FSDP2_OPTIMIZER_MUON),
  /** Only comes out: what a later version of the library knows. */
  OTHER(Integer.MIN_VALUE);

  private final int number;

  Algorithm(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static Algorithm of(int number) {
    for (Algorithm known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    return OTHER;
  }
}
