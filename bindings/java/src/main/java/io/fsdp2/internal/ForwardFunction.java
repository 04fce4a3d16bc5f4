package io.fsdp2.internal;

/** The forward of a custom module; {@code fsdp2_forward_fn} of custom.h. */
public interface ForwardFunction {
  /**
   * @param info the module
   * @param inputs tensors, 0 for one that is left out
   * @return tensors, which are the library's from now; inputs and parameters may be among them
   */
  long[] forward(ForwardInfo info, long[] inputs) throws Exception;

  /** The library will not call it again. */
  default void released() {}
}
