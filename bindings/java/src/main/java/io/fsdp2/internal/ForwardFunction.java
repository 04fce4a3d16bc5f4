package io.fsdp2.internal;

/** The forward of a custom module; {@code fsdp2_forward_fn} of custom.h. */
public interface ForwardFunction {
  /**
   * @param frame what it is called with, and where its outputs go
   * @return how many outputs there are
   */
  int forward(ForwardFrame frame) throws Exception;

  /** The library will not call it again. */
  default void released() {}
}
