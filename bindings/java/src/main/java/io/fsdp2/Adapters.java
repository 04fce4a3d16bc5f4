package io.fsdp2;

import io.fsdp2.internal.ForwardFrame;
import io.fsdp2.internal.ForwardFunction;
import io.fsdp2.internal.Raw;
import java.util.Arrays;
import java.util.List;

/**
 * The program's callbacks as the raw layer takes them. What a callback makes lives in a scope of
 * its own, which ends with it.
 */
final class Adapters {
  private static final Tensor[] NO_TENSORS = {};

  private Adapters() {}

  private static Tensor[] lent(long[] ids) {
    Tensor[] tensors = new Tensor[ids.length];
    for (int i = 0; i < ids.length; i++) {
      tensors[i] = Tensor.lent(ids[i]);
    }
    return tensors;
  }

  private static Tensor[] lent(ForwardFrame frame, int from, int count) {
    if (count == 0) {
      return NO_TENSORS;
    }
    Tensor[] tensors = new Tensor[count];
    for (int i = 0; i < count; i++) {
      tensors[i] = Tensor.lent(frame.tensor(from + i));
    }
    return tensors;
  }

  /** The forward of a module, which needs its parts until the library has let go of it. */
  static ForwardFunction forward(String kind, Forward forward, CustomParts parts) {
    parts.join();
    return new ForwardFunction() {
      @Override
      public int forward(ForwardFrame frame) throws Exception {
        try (TensorScope scope = TensorScope.open()) {
          int parameters = frame.parameters();
          int buffers = frame.buffers();
          ForwardContext context =
              new ForwardContext(
                  kind,
                  frame.isTraining(),
                  parts,
                  lent(frame, 0, parameters),
                  lent(frame, parameters, buffers));
          Tensor[] inputs = lent(frame, parameters + buffers, frame.inputs());
          List<Tensor> outputs = forward.forward(context, inputs);
          requireGivable("outputs", outputs);
          int given = 0;
          try {
            for (; given < outputs.size(); given++) {
              frame.setOutput(given, outputs.get(given).giveTo(scope));
            }
          } catch (FsdpException failure) {
            for (int i = 0; i < given; i++) {
              outputs.get(i).takeBack(frame.tensor(i));
            }
            throw failure;
          }
          return given;
        }
      }

      @Override
      public void released() {
        parts.leave();
      }
    };
  }

  static io.fsdp2.internal.DifferentiableFunction function(DifferentiableFunction function) {
    return new io.fsdp2.internal.DifferentiableFunction() {
      @Override
      public Made forward(int[] needsGrad, long[] inputs) throws Exception {
        try (TensorScope scope = TensorScope.open()) {
          FunctionContext context = new FunctionContext(needsGrad);
          List<Tensor> outputs = function.forward(context, lent(inputs));
          requireGivable("outputs", outputs);
          requireGivable("saved tensors", context.saved());
          long[] made = given(outputs, scope);
          try {
            return new Made(made, given(context.saved(), scope));
          } catch (FsdpException failure) {
            takeBack(outputs, made, made.length);
            throw failure;
          }
        }
      }

      @Override
      public long[] backward(int[] needsGrad, long[] saved, long[] outputGradients)
          throws Exception {
        try (TensorScope scope = TensorScope.open()) {
          FunctionContext context = new FunctionContext(needsGrad, lent(saved));
          Tensor[] gradients = function.backward(context, lent(outputGradients));
          requireReturned("gradients", gradients);
          if (gradients.length != needsGrad.length) {
            throw new IllegalArgumentException(
                "expected a gradient for each of "
                    + needsGrad.length
                    + " inputs, found "
                    + gradients.length);
          }
          return given(Arrays.asList(gradients), scope);
        }
      }
    };
  }

  /** Handles for the library to own, 0 for null; none of them if one cannot be given. */
  private static long[] given(List<Tensor> tensors, TensorScope scope) {
    long[] ids = new long[tensors.size()];
    int given = 0;
    try {
      for (; given < ids.length; given++) {
        Tensor tensor = tensors.get(given);
        ids[given] = tensor == null ? 0 : tensor.giveTo(scope);
      }
    } catch (FsdpException failure) {
      takeBack(tensors, ids, given);
      throw failure;
    }
    return ids;
  }

  private static void takeBack(List<Tensor> tensors, long[] ids, int given) {
    for (int i = 0; i < given; i++) {
      if (ids[i] != 0) {
        tensors.get(i).takeBack(ids[i]);
      }
    }
  }

  private static void requireReturned(String what, Object returned) {
    if (returned == null) {
      throw new IllegalArgumentException("expected " + what + ", found null");
    }
  }

  static void requireTensors(String what, List<Tensor> tensors) {
    for (int i = 0; i < tensors.size(); i++) {
      if (tensors.get(i) == null) {
        throw new IllegalArgumentException("expected tensors as " + what + ", found null at " + i);
      }
    }
  }

  /** Before one of them is given: none is null, and there are not too many. */
  private static void requireGivable(String what, List<Tensor> tensors) {
    requireReturned(what, tensors);
    requireTensors(what, tensors);
    if (tensors.size() > Raw.FSDP2_MAX_OUTPUTS) {
      throw new IllegalArgumentException(
          "expected at most " + Raw.FSDP2_MAX_OUTPUTS + " " + what + ", found " + tensors.size());
    }
  }

  static io.fsdp2.internal.AllReduceHook allReduce(AllReduceHook hook) {
    return (info, gradients) -> {
      try (TensorScope scope = TensorScope.open()) {
        hook.allReduce(info.unit(), info.unitIndex(), Tensor.lent(gradients));
      }
    };
  }

  static io.fsdp2.internal.GradientReady gradientReady(GradientReady ready) {
    return (info, gradient) -> {
      try (TensorScope scope = TensorScope.open()) {
        ready.gradientReady(info.parameter(), info.parameterIndex(), Tensor.lent(gradient));
      }
    };
  }

  static io.fsdp2.internal.ShardDim shardDim(ShardDim function) {
    return info -> function.shardDim(info.parameter(), info.shape(), DType.of(info.dtype()));
  }

  static io.fsdp2.internal.AllGatherExtension allGather(AllGatherExtension extension) {
    return new io.fsdp2.internal.AllGatherExtension() {
      @Override
      public long preAllGather(io.fsdp2.internal.GatherInfo gather, long chunk) throws Exception {
        try (TensorScope scope = TensorScope.open()) {
          Tensor sent = extension.preAllGather(GatherInfo.of(gather), Tensor.lent(chunk));
          requireReturned("a tensor to send", sent);
          return sent.giveTo(scope);
        }
      }

      @Override
      public void postAllGather(io.fsdp2.internal.GatherInfo gather, long pieces, long chunks)
          throws Exception {
        try (TensorScope scope = TensorScope.open()) {
          extension.postAllGather(GatherInfo.of(gather), Tensor.lent(pieces), Tensor.lent(chunks));
        }
      }
    };
  }
}
