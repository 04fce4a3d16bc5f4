package io.fsdp2;

import io.fsdp2.internal.Raw;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;

/**
 * A function whose gradient it computes itself: PyTorch's torch.autograd.Function.
 *
 * <pre>{@code
 * class Cube implements DifferentiableFunction {
 *   public List<Tensor> forward(FunctionContext context, Tensor[] inputs) {
 *     context.save(inputs[0]);
 *     return List.of(inputs[0].pow(3));
 *   }
 *
 *   public Tensor[] backward(FunctionContext context, Tensor[] outputGradients) {
 *     Tensor slope = context.saved().get(0).pow(2).mul(3);
 *     return new Tensor[] {outputGradients[0].mul(slope)};
 *   }
 * }
 * }</pre>
 *
 * <p>Neither method records gradients. What it makes ends when it returns, but for what it returns
 * or saves; the tensors that it is given end, too. An exception that it throws is the cause of the
 * {@link FsdpException} of the call around it. Threads may run backward through one graph at the
 * same time.
 */
public interface DifferentiableFunction {
  /**
   * Computes the outputs, and saves what backward needs. Under activation checkpointing it runs a
   * second time, in backward.
   *
   * @return at least one output; inputs may be among them
   */
  List<Tensor> forward(FunctionContext context, Tensor[] inputs) throws Exception;

  /**
   * Computes the gradients of the inputs.
   *
   * @param outputGradients one for each output; zeros for one that the loss does not depend on
   * @return one for each input, of its shape and type; null for one that has none or needs none
   */
  Tensor[] backward(FunctionContext context, Tensor[] outputGradients) throws Exception;

  /**
   * Calls the forward of a function. Backward through the outputs calls its backward. The function
   * is kept until the graph that the outputs are in has gone.
   *
   * @param name for messages
   */
  static List<Tensor> call(String name, DifferentiableFunction function, Tensor... inputs) {
    int flags = TensorScope.recordsGradients() ? 0 : Raw.FSDP2_OP_NO_GRAD;
    long[] outputs = new long[Raw.FSDP2_MAX_OUTPUTS];
    long[] count = new long[1];
    Raw.fsdp2_function_call(
        name,
        Tensor.ids(inputs),
        inputs.length,
        flags,
        0,
        Adapters.function(function),
        outputs,
        outputs.length,
        count);
    Reference.reachabilityFence(inputs);
    List<Tensor> made = new ArrayList<>();
    for (int i = 0; i < count[0]; i++) {
      made.add(Tensor.adopt(outputs[i]));
    }
    return made;
  }
}
