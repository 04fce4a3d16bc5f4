package io.fsdp2;

import io.fsdp2.internal.Raw;
import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;

/**
 * An object of the library. It ends with close(), or when nothing refers to it any more. Closed
 * objects keep their number, so that the library itself refuses calls of them.
 */
abstract class Handle implements AutoCloseable {
  static final Cleaner CLEANER = Cleaner.create();

  private final long id;
  private final Cleaner.Cleanable destruction;

  Handle(long id, LongConsumer destroy) {
    this.id = id;
    this.destruction = CLEANER.register(this, () -> destroy.accept(id));
  }

  /** The caller keeps this object alive until its call has returned: see {@link #use}. */
  final long id() {
    return id;
  }

  static long id(Handle handle) {
    return handle == null ? 0 : handle.id;
  }

  /**
   * Gives the object up. Calls of it fail from then on; closing it again does nothing. What was
   * made from it lives on.
   */
  @Override
  public void close() {
    destruction.clean();
  }

  /** Makes a call, during which this object stays alive. */
  final void use(LongConsumer call) {
    call.accept(id);
    Reference.reachabilityFence(this);
  }

  /** Makes a call, during which this object stays alive, and returns its result. */
  final <T> T get(LongFunction<T> call) {
    T result = call.apply(id);
    Reference.reachabilityFence(this);
    return result;
  }

  interface Maker {
    void make(long[] out);
  }

  /** The handle that a call makes. */
  static long make(Maker maker) {
    long[] out = new long[1];
    maker.make(out);
    return out[0];
  }

  /** The number that a call of this object gives. */
  final long number(NumberCall call) {
    long[] out = new long[1];
    call.get(id, out);
    Reference.reachabilityFence(this);
    return out[0];
  }

  interface NumberCall {
    void get(long id, long[] out);
  }

  interface TextCall {
    void get(byte[] text, long room, long[] needed);
  }

  /** The text that a call gives: once for its length, once for itself, again if it has grown. */
  static String text(TextCall call) {
    long[] needed = new long[1];
    call.get(null, 0, needed);
    while (true) {
      byte[] text = new byte[Math.toIntExact(needed[0])];
      try {
        call.get(text, text.length, needed);
        return new String(text, 0, Math.toIntExact(needed[0]) - 1, StandardCharsets.UTF_8);
      } catch (FsdpException failure) {
        if (failure.status() != Raw.FSDP2_E_BUFFER_TOO_SMALL) {
          throw failure;
        }
      }
    }
  }
}
