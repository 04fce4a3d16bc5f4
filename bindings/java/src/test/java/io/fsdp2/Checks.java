package io.fsdp2;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/** What the tests have in common: expectations, tests by name, and ranks that are threads. */
final class Checks {
  private static final AtomicInteger MEETINGS = new AtomicInteger();

  private Checks() {}

  interface Body {
    void run() throws Exception;
  }

  interface RankBody {
    void run(Mesh mesh) throws Exception;
  }

  static void test(String name, Body body) throws Exception {
    body.run();
    expect(0L, FsdpRuntime.liveHandles(), name + ": live handles");
    System.out.println("passed: " + name);
  }

  static void expect(Object wanted, Object found) {
    expect(wanted, found, "");
  }

  static void expect(Object wanted, Object found, String what) {
    if (!Arrays.deepEquals(new Object[] {wanted}, new Object[] {found})) {
      throw new AssertionError(
          what + ": expected " + wanted + ", found " + Arrays.deepToString(new Object[] {found}));
    }
  }

  static void expectContains(String part, String text) {
    expect(true, text.contains(part), part + " in " + text);
  }

  /** The exception that the body throws, of this type. */
  static <T extends Throwable> T expectThrown(Class<T> type, Body body) {
    try {
      body.run();
    } catch (Throwable thrown) {
      if (type.isInstance(thrown)) {
        return type.cast(thrown);
      }
      throw new AssertionError("expected a " + type.getName(), thrown);
    }
    throw new AssertionError("expected a " + type.getName() + ", but nothing was thrown");
  }

  static ErrorCode code(Body body) {
    return expectThrown(FsdpException.class, body).code();
  }

  /** Runs the body on ranks that are threads; the first failure fails the test. */
  static void onRanks(int ranks, RankBody body) throws Exception {
    String meeting = "thread://checks" + MEETINGS.incrementAndGet();
    List<Throwable> failures = new ArrayList<>();
    List<Thread> threads = new ArrayList<>();
    for (int rank = 0; rank < ranks; rank++) {
      MeshOptions options =
          MeshOptions.builder().rendezvous(meeting).rank(rank).worldSize(ranks).build();
      threads.add(
          new Thread(
              () -> {
                try (Mesh mesh = Mesh.create(options)) {
                  body.run(mesh);
                } catch (Throwable failure) {
                  synchronized (failures) {
                    failures.add(failure);
                  }
                }
              }));
    }
    threads.forEach(Thread::start);
    for (Thread thread : threads) {
      thread.join();
    }
    if (!failures.isEmpty()) {
      throw new AssertionError(failures.get(0));
    }
  }

  /** Waits for the collector to end what nobody closes. */
  static void collect() throws InterruptedException {
    for (int i = 0; i < 1000 && FsdpRuntime.liveHandles() > 0; i++) {
      FsdpRuntime.describe(); // a call in which the library lets go of callbacks
      System.gc();
      Thread.sleep(20);
    }
  }
}
