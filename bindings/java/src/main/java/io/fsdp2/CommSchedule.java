package io.fsdp2;

import io.fsdp2.internal.Raw;

/** When units are gathered and reduced. */
public enum CommSchedule {
  /** Once per forward and backward, in one order on all ranks. */
  AGREED(Raw.FSDP2_COMM_SCHEDULE_AGREED),
  /** When this rank uses them, as in PyTorch. */
  ON_USE(Raw.FSDP2_COMM_SCHEDULE_ON_USE);

  private final int number;

  CommSchedule(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static CommSchedule of(int number) {
    for (CommSchedule known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("CommSchedule: no number " + number);
  }
}
