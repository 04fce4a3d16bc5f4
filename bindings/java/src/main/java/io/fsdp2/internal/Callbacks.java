package io.fsdp2.internal;

import java.util.Arrays;

/**
 * Where native code enters Java. Nothing is thrown back into it: what a callback throws is returned
 * as text, for the record of the call that fails, and kept as the cause of that call's exception.
 */
public final class Callbacks {
  private static final ThreadLocal<Throwable> THROWN = new ThreadLocal<>();

  private Callbacks() {}

  /** What a callback on this thread has thrown since the last time, or null. */
  public static Throwable takeThrown() {
    Throwable thrown = THROWN.get();
    THROWN.remove();
    return thrown;
  }

  private interface Body {
    void run() throws Exception;
  }

  private static byte[] guarded(Body body) {
    THROWN.remove();
    try {
      body.run();
      return null;
    } catch (Throwable thrown) {
      THROWN.set(thrown);
      return Text.toC(String.valueOf(thrown).replace('\0', '?'));
    }
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
   * call: whether it is training, how many parameters, buffers and inputs there are, and then they.
   * In the end: how many outputs there are, and then they.
   */
  static byte[] forward(ForwardFunction function, long[] call) {
    return guarded(
        () -> {
          int buffersAt = 4 + (int) call[1];
          int inputsAt = buffersAt + (int) call[2];
          ForwardInfo info =
              new ForwardInfo(
                  call[0] == 1,
                  Arrays.copyOfRange(call, 4, buffersAt),
                  Arrays.copyOfRange(call, buffersAt, inputsAt));
          long[] inputs = Arrays.copyOfRange(call, inputsAt, inputsAt + (int) call[3]);
          long[] outputs = function.forward(info, inputs);
          call[0] = outputs.length;
          System.arraycopy(outputs, 0, call, 1, outputs.length);
        });
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
