package io.fsdp2.internal;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;

/**
 * What a forward is called with, {@code fsdp2_forward_info} of custom.h and the inputs, and where
 * its outputs go: memory of native code, as callbacks.i describes it. A forward inside this one may
 * overwrite it, so a forward reads it first and writes it last.
 */
public final class ForwardFrame {
  private static final int HANDLES_AT = 4;

  private final LongBuffer memory;

  ForwardFrame(ByteBuffer memory) {
    this.memory = memory.order(ByteOrder.nativeOrder()).asLongBuffer();
  }

  int bytes() {
    return memory.capacity() * Long.BYTES;
  }

  /** Whether the module is in training mode. */
  public boolean isTraining() {
    return memory.get(0) == 1;
  }

  /** How many parameters the module has of its own. */
  public int parameters() {
    return (int) memory.get(1);
  }

  /** How many buffers the module has of its own. */
  public int buffers() {
    return (int) memory.get(2);
  }

  public int inputs() {
    return (int) memory.get(3);
  }

  /**
   * A tensor that is valid until the forward returns, or 0 for an input that is left out: of the
   * parameters, then the buffers, then the inputs.
   */
  public long tensor(int index) {
    return memory.get(HANDLES_AT + index);
  }

  /** A tensor, which is the library's from now; inputs and parameters may be among them. */
  public void setOutput(int index, long tensor) {
    memory.put(HANDLES_AT + index, tensor);
  }

  void setOutputs(int count) {
    memory.put(0, count);
  }
}
