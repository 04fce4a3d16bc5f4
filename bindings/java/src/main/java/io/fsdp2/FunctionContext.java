package io.fsdp2;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** What the forward and the backward of one call of a {@link DifferentiableFunction} share. */
public final class FunctionContext {
  private final int[] needsGrad;
  private final List<Tensor> saved;

  FunctionContext(int[] needsGrad, Tensor... saved) {
    this.needsGrad = needsGrad;
    this.saved = new ArrayList<>(List.of(saved));
  }

  /** Whether the gradient of an input is wanted. */
  public boolean needsGrad(int input) {
    return needsGrad[input] == 1;
  }

  /**
   * In forward: keeps tensors for backward. They are inputs, outputs or others, whose values must
   * not change until then.
   */
  public void save(Tensor... tensors) {
    List<Tensor> kept = Arrays.asList(tensors);
    Adapters.requireTensors("saved tensors", kept);
    saved.addAll(kept);
  }

  /** What forward has saved, in the same order. */
  public List<Tensor> saved() {
    return List.copyOf(saved);
  }
}
