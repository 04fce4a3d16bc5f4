package io.fsdp2;

/** Whose affair a failure is: the hundreds digit of its code, which never changes. */
public enum ErrorClass {
  /** The caller's mistake. */
  CALLER(1),
  /** Not available. */
  UNAVAILABLE(2),
  /** Memory. */
  MEMORY(3),
  /** Communication and devices. */
  COMMUNICATION(4),
  /** The program's own callback. */
  CALLBACK(5),
  /** Data. */
  DATA(6),
  /** A defect of the library. */
  INTERNAL(9),
  /** A class that only a later version knows. */
  OTHER(-1);

  private final int digit;

  ErrorClass(int digit) {
    this.digit = digit;
  }

  static ErrorClass of(int status) {
    for (ErrorClass known : values()) {
      if (known.digit == status / 100) {
        return known;
      }
    }
    return OTHER;
  }
}
