package io.fsdp2;

/** Told that a gradient is complete for this backward. */
@FunctionalInterface
public interface GradientReady {
  /**
   * Called once for each parameter and backward.
   *
   * @param parameter its name
   * @param parameterIndex its index
   * @param gradient that of this rank's rows
   */
  void gradientReady(String parameter, int parameterIndex, Tensor gradient) throws Exception;
}
