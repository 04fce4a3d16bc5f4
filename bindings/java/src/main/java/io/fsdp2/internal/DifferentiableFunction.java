package io.fsdp2.internal;

/** A function whose gradient it computes itself; the two functions of function.h. */
public interface DifferentiableFunction {
  /**
   * What a forward has made; the tensors are the library's from now.
   *
   * @param outputs tensors, at least one
   * @param saved tensors that backward needs; inputs and outputs may be among them
   */
  record Made(long[] outputs, long[] saved) {}

  /**
   * @param needsGrad of each input: 1 if its gradient is wanted
   * @param inputs tensors that are valid until the function returns
   */
  Made forward(int[] needsGrad, long[] inputs) throws Exception;

  /**
   * @param needsGrad of each input: 1 if its gradient is wanted
   * @param saved what forward has saved
   * @param outputGradients one for each output
   * @return one for each input, 0 for none; the library's from now
   */
  long[] backward(int[] needsGrad, long[] saved, long[] outputGradients) throws Exception;
}
