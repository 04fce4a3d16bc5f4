package io.fsdp2;

import io.fsdp2.internal.LogSink;
import io.fsdp2.internal.Raw;
import java.time.Instant;
import java.util.function.Consumer;

/** Where the library's own messages go. No error is reported here alone. */
public final class Log {
  private Log() {}

  /**
   * A message.
   *
   * @param level how serious it is
   * @param rank whose it is; -1: no rank's
   * @param time when it was written
   * @param category "comm", "fsdp", ...
   * @param message one line
   */
  public record Entry(LogLevel level, int rank, Instant time, String category, String message) {}

  /**
   * Sends messages of a level and above to the sink, which may be called by several threads at
   * once, and must not call the library; null: to standard error.
   */
  public static void set(LogLevel minLevel, Consumer<Entry> sink) {
    LogSink raw =
        sink == null
            ? null
            : (level, rank, timeNs, category, message) ->
                sink.accept(
                    new Entry(
                        LogLevel.of(level),
                        rank,
                        Instant.ofEpochSecond(0, timeNs),
                        category,
                        message));
    Raw.fsdp2_log_set(minLevel.number(), raw);
  }
}
