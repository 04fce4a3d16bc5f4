package io.fsdp2.internal;

/** Takes the library's log records; {@code fsdp2_log_fn} of log.h. It must not call the library. */
@FunctionalInterface
public interface LogSink {
  /**
   * @param level one of {@code FSDP2_LOG_DEBUG} ... {@code FSDP2_LOG_ERROR}
   * @param rank -1 for none
   * @param timeNs since the epoch
   */
  void log(int level, int rank, long timeNs, String category, String message);
}
