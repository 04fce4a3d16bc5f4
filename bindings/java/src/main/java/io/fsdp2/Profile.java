package io.fsdp2;

import io.fsdp2.internal.Raw;
import java.nio.file.Path;

/**
 * What one thread of this rank computes and waits for, by LibTorch's own profiler: operators, and
 * the phases of units as ranges that are named as in PyTorch, such as "FSDP::all_gather
 * (model.layers.0)".
 */
public final class Profile {
  private Profile() {}

  /**
   * Starts a profile of this thread, which also stops it and is not a virtual one. A process takes
   * one at a time: {@link ErrorCode#WRONG_STATE} if another one is being taken.
   */
  public static void start() {
    Raw.fsdp2_profile_start();
  }

  /** Stops it. The file gets all events in Chrome's trace format; null: no file. */
  public static void stop(Path traceFile) {
    Raw.fsdp2_profile_stop(traceFile == null ? null : traceFile.toString());
  }

  /** The profile that was stopped last, as a table of operators and ranges by their own time. */
  public static String describe() {
    return Handle.text(Raw::fsdp2_profile_describe);
  }
}
