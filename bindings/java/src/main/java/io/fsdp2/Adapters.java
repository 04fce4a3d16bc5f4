package io.fsdp2;

import io.fsdp2.internal.ForwardFrame;
import io.fsdp2.internal.ForwardFunction;
import io.fsdp2.internal.Raw;
import java.util.List;
import java.util.Objects;

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
          for (int i = 0; i < outputs.size(); i++) {
            frame.setOutput(i, outputs.get(i).giveTo(scope));
          }
          return outputs.size();
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
          return new Made(
              given("outputs", outputs, scope), given("saved tensors", context.saved(), scope));
        }
      }

      @Override
      public long[] backward(int[] needsGrad, long[] saved, long[] outputGradients)
          throws Exception {
        try (TensorScope scope = TensorScope.open()) {
          FunctionContext context = new FunctionContext(needsGrad, lent(saved));
          Tensor[] gradients = function.backward(context, lent(outputGradients));
          if (gradients.length != needsGrad.length) {
            throw new IllegalArgumentException(
                "expected a gradient for each of "
                    + needsGrad.length
                    + " inputs, found "
                    + gradients.length);
          }
          long[] ids = new long[gradients.length];
          for (int i = 0; i < ids.length; i++) {
            ids[i] = gradients[i] == null ? 0 : gradients[i].giveTo(scope);
          }
          return ids;
        }
      }
    };
  }

  private static long[] given(String what, List<Tensor> tensors, TensorScope scope) {
    requireGivable(what, tensors);
    long[] ids = new long[tensors.size()];
    for (int i = 0; i < ids.length; i++) {
      ids[i] = tensors.get(i).giveTo(scope);
    }
    return ids;
  }

  /** Before one of them is given: none is null, and there are not too many. */
  private static void requireGivable(String what, List<Tensor> tensors) {
    for (int i = 0; i < tensors.size(); i++) {
      Objects.requireNonNull(tensors.get(i));
    }
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
          return extension.preAllGather(GatherInfo.of(gather), Tensor.lent(chunk)).giveTo(scope);
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
