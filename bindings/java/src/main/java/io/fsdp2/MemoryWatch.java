package io.fsdp2;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Has the collector run when tensors that nobody closes fill the memory. It goes by Java's heap,
 * and the few bytes of a {@link Tensor} there may stand for megabytes of the library's: left to
 * itself, it would not run once before such a program has used up the machine.
 */
final class MemoryWatch {
  private static final int GUARDS_BETWEEN_LOOKS = 64;
  private static final long GROWTH_BETWEEN_COLLECTIONS = 1L << 30;
  private static final int LONGEST_WAIT_MS = 64;
  private static final AtomicInteger GUARDS = new AtomicInteger();

  /** The size of the process at which the collector runs next; 0: not known yet. */
  private static final AtomicLong LIMIT = new AtomicLong();

  private MemoryWatch() {}

  /**
   * To be called with each guard that is made. Programs that close what they have made, or have it
   * in scopes, make few.
   */
  static void guardMade() {
    if (GUARDS.incrementAndGet() % GUARDS_BETWEEN_LOOKS != 0) {
      return;
    }
    long resident = residentBytes();
    long limit = LIMIT.get();
    long next = resident + GROWTH_BETWEEN_COLLECTIONS;
    boolean isOver = limit != 0 && resident > limit;
    boolean changes = limit == 0 || isOver || next < limit;
    if (resident != 0 && changes && LIMIT.compareAndSet(limit, next) && isOver) {
      System.gc();
      letCleanerWork(limit);
    }
  }

  /** The tensors end on its thread, which may be slower than the one that makes the next. */
  private static void letCleanerWork(long limit) {
    try {
      for (int millis = 1; millis <= LONGEST_WAIT_MS && residentBytes() > limit; millis *= 2) {
        Thread.sleep(millis);
      }
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** The memory of the process, or 0 if the system does not tell. */
  static long residentBytes() {
    try {
      for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
        if (line.startsWith("VmRSS:")) {
          return Long.parseLong(line.replaceAll("\\D", "")) << 10; // kB
        }
      }
    } catch (IOException unknown) {
      return 0;
    }
    return 0;
  }
}
