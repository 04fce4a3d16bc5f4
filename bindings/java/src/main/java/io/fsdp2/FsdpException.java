package io.fsdp2;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.fsdp2.internal.Callbacks;

/**
 * What a failed call of libfsdp2 left in its thread's record. The cause is what a callback has
 * thrown, if that is why.
 */
public final class FsdpException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final int status;
  private final String statusName;
  private final int rank;
  private final int nativeCode;
  private final String function;
  private final String detail;

  /** Called by the native code, in the call that failed. */
  private FsdpException(
      int status,
      int rank,
      int nativeCode,
      byte[] statusName,
      byte[] message,
      byte[] function,
      byte[] detail) {
    super(new String(message, UTF_8), Callbacks.takeThrown());
    this.status = status;
    this.statusName = new String(statusName, UTF_8);
    this.rank = rank;
    this.nativeCode = nativeCode;
    this.function = new String(function, UTF_8);
    this.detail = new String(detail, UTF_8);
  }

  /** The status code; its hundreds digit is its class. */
  public int status() {
    return status;
  }

  /** The status code's name, such as {@code FSDP2_E_TIMEOUT}. */
  public String statusName() {
    return statusName;
  }

  /** The rank that the call was about, or -1. */
  public int rank() {
    return rank;
  }

  /** The operating system's or the transport's own number, or 0. */
  public int nativeCode() {
    return nativeCode;
  }

  /** The C function that failed. */
  public String function() {
    return function;
  }

  /** Further lines, or an empty text. */
  public String detail() {
    return detail;
  }

  @Override
  public String toString() {
    return function + ": " + getMessage() + " (" + statusName + ")";
  }
}
