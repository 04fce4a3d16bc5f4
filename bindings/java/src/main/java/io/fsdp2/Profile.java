package io.fsdp2;

import io.fsdp2.internal.Raw;
import java.nio.file.Path;

/**
 * A profile that is being taken: what its thread computes and waits for, by LibTorch's own
 * profiler. Operators are in it, and the phases of units as ranges that are named as in PyTorch,
 * such as "FSDP::all_gather (model.layers.0)".
 *
 * <pre>{@code
 * try (Profile profile = Profile.start(Path.of("trace.json"))) {
 *   step.run(batch);
 * }
 * System.out.println(Profile.describe());
 * }</pre>
 */
public final class Profile implements AutoCloseable {
  private final String traceFile;
  private boolean closed;

  private Profile(String traceFile) {
    this.traceFile = traceFile;
    Raw.fsdp2_profile_start();
  }

  /**
   * Starts a profile of this thread, which also closes it and is not a virtual one. A process takes
   * one at a time: {@link ErrorCode#WRONG_STATE} if another one is being taken.
   */
  public static Profile start() {
    return new Profile(null);
  }

  /** Starts a profile whose events, once it is closed, are in a file in Chrome's trace format. */
  public static Profile start(Path traceFile) {
    return new Profile(traceFile.toString());
  }

  /** Stops the profile, on its thread. */
  @Override
  public void close() {
    if (closed) {
      return;
    }
    try {
      Raw.fsdp2_profile_stop(traceFile);
      closed = true;
    } catch (FsdpException failure) {
      if (failure.code() == ErrorCode.INVALID_ARGUMENT) {
        Raw.fsdp2_profile_stop(null); // the file has no name; the profile ends all the same
      }
      closed = failure.code() != ErrorCode.WRONG_STATE; // on another thread
      throw failure;
    }
  }

  /** The profile that was closed last, as a table of operators and ranges by their own time. */
  public static String describe() {
    return Handle.text(Raw::fsdp2_profile_describe);
  }
}
