package io.fsdp2;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.fsdp2.internal.Callbacks;

/**
 * A call of the library that failed. The cause is what a callback has thrown, if that is why.
 *
 * <p>Arguments that no call can be made of (null, a length that does not fit) are exceptions of
 * java.lang instead.
 */
public final class FsdpException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** The code. */
  private final int status;

  /** The code's name. */
  private final String statusName;

  /** This rank, or -1. */
  private final int rank;

  /** The system's own error number, or 0. */
  private final int nativeCode;

  /** What failed. */
  private final String function;

  /** More lines. */
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
    super(new String(message, UTF_8), causeOf(status, Callbacks.takeThrown()));
    this.status = status;
    this.statusName = new String(statusName, UTF_8);
    this.rank = rank;
    this.nativeCode = nativeCode;
    this.function = new String(function, UTF_8);
    this.detail = new String(detail, UTF_8);
  }

  /**
   * What was thrown is why only if the callback itself failed, and not a rank that it waited for.
   */
  private static Throwable causeOf(int status, Throwable thrown) {
    ErrorClass its = ErrorClass.of(status);
    return its == ErrorClass.CALLBACK || its == ErrorClass.MEMORY ? thrown : null;
  }

  /** Why the call failed; {@link ErrorCode#OTHER} if only a later version knows. */
  public ErrorCode code() {
    return ErrorCode.of(status);
  }

  /** Whose affair the failure is. */
  public ErrorClass errorClass() {
    return ErrorClass.of(status);
  }

  /** The code as the library's number; its hundreds digit is its class. */
  public int status() {
    return status;
  }

  /** The code's name in the library, such as {@code FSDP2_E_TIMEOUT}. */
  public String statusName() {
    return statusName;
  }

  /** This rank's number in the job, or -1 if the call was about no mesh. */
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
