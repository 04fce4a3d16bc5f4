package io.fsdp2;

import io.fsdp2.internal.Raw;

/** How serious a record of the log is. */
public enum LogLevel {
  /** For whoever looks for a defect. */
  DEBUG(Raw.FSDP2_LOG_DEBUG),
  /** What happens. */
  INFO(Raw.FSDP2_LOG_INFO),
  /** What may be a mistake. */
  WARNING(Raw.FSDP2_LOG_WARNING),
  /** What went wrong. */
  ERROR(Raw.FSDP2_LOG_ERROR),
  /** Above all records: nothing is logged. */
  OFF(Raw.FSDP2_LOG_OFF),
  /** Only comes out: what a later version of the library knows. */
  OTHER(Integer.MIN_VALUE);

  private final int number;

  LogLevel(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static LogLevel of(int number) {
    for (LogLevel known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    return OTHER;
  }
}
