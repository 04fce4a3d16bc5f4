package io.fsdp2;

import io.fsdp2.internal.ForwardFunction;
import io.fsdp2.internal.Raw;
import java.util.List;
import java.util.Objects;

/**
 * The program's callbacks as the raw layer takes them. What a callback makes lives in a scope of
 * its own, which ends with it.
 */
final class Adapters {
  private Adapters() {}

  private static Tensor[] lent(long[] ids) {
    Tensor[] tensors = new Tensor[ids.length];
    for (int i = 0; i < ids.length; i++) {
      tensors[i] = Tensor.lent(ids[i]);
    }
    return tensors;
  }

  /** names: of the parameters, in the order in which they were added; it grows while they are. */
  static ForwardFunction forward(Forward forward, List<String> names) {
    return (info, inputs) -> {
      try (TensorScope scope = TensorScope.open()) {
        ForwardContext context =
            new ForwardContext(info.kind(), info.isTraining(), names, lent(info.parameters()));
        List<Tensor> outputs = forward.forward(context, lent(inputs));
        if (outputs.size() > Raw.FSDP2_MAX_OUTPUTS) {
          throw new IllegalArgumentException(
              "expected at most " + Raw.FSDP2_MAX_OUTPUTS + " outputs, found " + outputs.size());
        }
        return given(outputs, scope);
      }
    };
  }

  /** Nothing has been given if one of them is null. */
  private static long[] given(List<Tensor> outputs, TensorScope scope) {
    outputs.forEach(Objects::requireNonNull);
    long[] ids = new long[outputs.size()];
    for (int i = 0; i < ids.length; i++) {
      ids[i] = outputs.get(i).giveTo(scope);
    }
    return ids;
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
