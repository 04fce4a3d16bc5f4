package io.fsdp2;

import io.fsdp2.internal.Raw;

/**
 * Destroys a tensor of the library's once nothing refers to its {@link Tensor} any more, which
 * alone refers to this. To have the collector watch an object takes longer than the rest of what
 * Java does to make a tensor, so the guards of tensors that were closed serve others.
 */
final class TensorGuard {
  /** How many a thread keeps for tensors to come; the collector gets the others. */
  private static final int MOST_SPARES = 64;

  private static final ThreadLocal<Spares> SPARES = ThreadLocal.withInitial(Spares::new);

  private static final class Spares {
    private final TensorGuard[] guards = new TensorGuard[MOST_SPARES];
    private int count;
  }

  private static final class Destruction implements Runnable {
    private long id; // 0: of no tensor

    @Override
    public void run() {
      if (id != 0) {
        Raw.fsdp2_tensor_destroy(id);
      }
    }
  }

  private final Destruction destruction = new Destruction();

  private TensorGuard() {}

  /** One that guards nothing, to stand for something else. */
  static TensorGuard none() {
    return new TensorGuard();
  }

  /** A guard of this tensor's. */
  static TensorGuard of(long id) {
    TensorGuard guard = spare();
    guard.destruction.id = id;
    return guard;
  }

  private static TensorGuard spare() {
    Spares spares = SPARES.get();
    if (spares.count > 0) {
      TensorGuard spare = spares.guards[--spares.count];
      spares.guards[spares.count] = null; // its tensor alone refers to it from now on
      return spare;
    }
    TensorGuard made = new TensorGuard();
    Handle.CLEANER.register(made, made.destruction);
    MemoryWatch.guardMade();
    return made;
  }

  /** Somebody else destroys the tensor, which lets go of its guard: another one may have it. */
  void release() {
    destruction.id = 0;
    Spares spares = SPARES.get();
    if (spares.count < MOST_SPARES) {
      spares.guards[spares.count++] = this;
    }
  }
}
