package io.fsdp2.internal;

import io.fsdp2.FsdpException;
import java.nio.ByteBuffer;

/**
 * Where native code enters Java. Nothing is thrown back into it: what a callback throws is returned
 * as text, for the record of the call that fails, and kept as the cause of that call's exception.
 */
public final class Callbacks {
  /** The chars of an exception that the other ranks get, too. */
  private static final int LONGEST_TEXT = 8192;

  private static final ThreadLocal<PerThread> PER_THREAD = ThreadLocal.withInitial(PerThread::new);

  private Callbacks() {}

  private static final class PerThread {
    private Throwable thrown;
    private long address;
    private ForwardFrame frame;

    /** The memory in which native code hands over what a forward is called with. */
    ForwardFrame frameAt(long at, int bytes) {
      if (at != address || frame.bytes() != bytes) {
        frame = new ForwardFrame(RawJNI.java_memory(at, bytes));
        address = at;
      }
      return frame;
    }

    /** Keeps what was thrown, and returns its status, in two bytes, and its text. */
    byte[] failed(Throwable what) {
      thrown = what;
      byte[] text = Text.toC(describe(what));
      int status = what instanceof FsdpException own ? own.status() : Raw.FSDP2_E_CALLBACK;
      return ByteBuffer.allocate(2 + text.length).putShort((short) status).put(text).array();
    }
  }

  /** What a callback on this thread has thrown since the last time, or null. */
  public static Throwable takeThrown() {
    PerThread mine = PER_THREAD.get();
    Throwable thrown = mine.thrown;
    mine.thrown = null;
    return thrown;
  }

  private interface Body {
    void run() throws Exception;
  }

  private static byte[] guarded(Body body) {
    PerThread mine = PER_THREAD.get();
    mine.thrown = null;
    try {
      body.run();
      return null;
    } catch (Throwable thrown) {
      return mine.failed(thrown);
    }
  }

  /** A text that the library takes, whatever the program's exception says of itself. */
  private static String describe(Throwable thrown) {
    String text;
    try {
      text = String.valueOf(thrown);
    } catch (Throwable again) {
      text = "a " + thrown.getClass().getName() + ", whose toString() fails";
    }
    return text.substring(0, Math.min(text.length(), LONGEST_TEXT)).replace('\0', '?');
  }

  static byte[] allReduce(AllReduceHook hook, byte[] unit, int unitIndex, long gradients) {
    return guarded(() -> hook.allReduce(new AllReduceInfo(Text.fromC(unit), unitIndex), gradients));
  }

  static byte[] gradientReady(
      GradientReady ready, byte[] parameter, int parameterIndex, int unitIndex, long gradient) {
    return guarded(
        () ->
            ready.gradientReady(
                new GradientInfo(Text.fromC(parameter), parameterIndex, unitIndex), gradient));
  }

  /** numbers: indices of the parameter and its unit, compute dtype, rank and ranks of the group. */
  private static GatherInfo gather(byte[] parameter, int[] numbers) {
    return new GatherInfo(
        Text.fromC(parameter), numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]);
  }

  static byte[] preAllGather(
      AllGatherExtension extension, byte[] parameter, int[] numbers, long chunk, long[] out) {
    return guarded(() -> out[0] = extension.preAllGather(gather(parameter, numbers), chunk));
  }

  static byte[] postAllGather(
      AllGatherExtension extension, byte[] parameter, int[] numbers, long pieces, long chunks) {
    return guarded(() -> extension.postAllGather(gather(parameter, numbers), pieces, chunks));
  }

  static byte[] shardDim(ShardDim function, byte[] parameter, long[] shape, int dtype, int[] out) {
    return guarded(
        () -> out[0] = function.shardDim(new ShardDimInfo(Text.fromC(parameter), shape, dtype)));
  }

  /**
   * As {@link #guarded}, without a call through an interface, since programs make this call as
   * often as one of an operator.
   */
  static byte[] forward(ForwardFunction function, long address, int bytes) {
    PerThread mine = PER_THREAD.get();
    mine.thrown = null;
    try {
      ForwardFrame frame = mine.frameAt(address, bytes);
      frame.setOutputs(function.forward(frame));
      return null;
    } catch (Throwable thrown) {
      return mine.failed(thrown);
    }
  }

  /** made: how many outputs and saved tensors there are, and then they. */
  static byte[] functionForward(
      DifferentiableFunction function, int[] needsGrad, long[] inputs, long[] made) {
    return guarded(
        () -> {
          DifferentiableFunction.Made result = function.forward(needsGrad, inputs);
          made[0] = result.outputs().length;
          made[1] = result.saved().length;
          System.arraycopy(result.outputs(), 0, made, 2, result.outputs().length);
          System.arraycopy(
              result.saved(), 0, made, 2 + result.outputs().length, result.saved().length);
        });
  }

  static byte[] functionBackward(
      DifferentiableFunction function,
      int[] needsGrad,
      long[] saved,
      long[] outputGradients,
      long[] gradients) {
    return guarded(
        () -> {
          long[] result = function.backward(needsGrad, saved, outputGradients);
          System.arraycopy(result, 0, gradients, 0, result.length);
        });
  }

  static void released(ForwardFunction function) {
    try {
      function.released();
    } catch (Throwable thrown) {
      report(thrown);
    }
  }

  static void log(LogSink sink, int level, int rank, long timeNs, byte[] category, byte[] message) {
    try {
      sink.log(level, rank, timeNs, Text.fromC(category), Text.fromC(message));
    } catch (Throwable thrown) {
      report(thrown);
    }
  }

  /** There is no call that it could be the cause of. */
  private static void report(Throwable thrown) {
    Thread thread = Thread.currentThread();
    thread.getUncaughtExceptionHandler().uncaughtException(thread, thrown);
  }
}
