package io.fsdp2.internal;

/** Told that a gradient is final; {@code fsdp2_gradient_ready_fn} of hook.h. */
@FunctionalInterface
public interface GradientReady {
  /**
   * @param info whose it is
   * @param gradient a tensor: the gradient of this rank's rows
   */
  void gradientReady(GradientInfo info, long gradient) throws Exception;
}
