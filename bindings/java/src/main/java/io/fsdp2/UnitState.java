package io.fsdp2;

import io.fsdp2.internal.Raw;

/** What a unit's parameters are at a moment. */
public enum UnitState {
  /** Each rank has its rows. */
  SHARDED(Raw.FSDP2_UNIT_SHARDED),
  /** An all-gather is under way. */
  GATHERING(Raw.FSDP2_UNIT_GATHERING),
  /** This rank has them whole. */
  UNSHARDED(Raw.FSDP2_UNIT_UNSHARDED),
  /** Cut into slices over a smaller group. */
  SLICED(Raw.FSDP2_UNIT_SLICED),
  /** Only comes out: what a later version of the library knows. */
  OTHER(Integer.MIN_VALUE);

  private final int number;

  UnitState(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static UnitState of(int number) {
    for (UnitState known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    return OTHER;
  }
}
