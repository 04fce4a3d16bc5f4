package io.fsdp2.internal;

import io.fsdp2.FsdpException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** A model written in Java: a custom module whose forward is made of operators. */
public final class ModelTest {
  private static final int VALUE_BYTES = 48;
  private static final int TENSOR_AT = 24;

  public static void main(String[] arguments) {
    aForwardInJavaComputes();
    whatAForwardThrowsIsTheCause();
    aForwardGetsItsBuffers();
    aFunctionInJavaDifferentiatesItself();
    expect(0L, Raw.fsdp2_live_handles());
    System.out.println("4 tests passed");
  }

  /** The one tensor that an operator makes of tensors. */
  private static long compute(String operator, long... tensors) {
    ByteBuffer inputs = memory(tensors.length * VALUE_BYTES);
    ByteBuffer output = memory(VALUE_BYTES);
    for (int i = 0; i < tensors.length; i++) {
      inputs.putInt(i * VALUE_BYTES, Raw.FSDP2_VALUE_TENSOR);
      inputs.putLong(i * VALUE_BYTES + TENSOR_AT, tensors[i]);
    }
    long[] needed = new long[1];
    Raw.fsdp2_op_call(operator, inputs, tensors.length, 0, 0, output, 1, needed);
    expect(1L, needed[0]);
    return output.getLong(TENSOR_AT);
  }

  /** A module with ones as its only parameter, of two elements. */
  private static long module(ForwardFunction forward) {
    long[] module = new long[1];
    Raw.fsdp2_module_create_custom("Scale", null, forward, module);
    try (fsdp2_parameter_options options = new fsdp2_parameter_options()) {
      options.setInit(Raw.FSDP2_INIT_ONES);
      Raw.fsdp2_module_add_parameter(module[0], "weight", new long[] {2}, 1, options);
    }
    return module[0];
  }

  private static long pair() {
    ByteBuffer values = memory(8).putFloat(0, 3).putFloat(4, 4);
    long[] tensor = new long[1];
    Raw.fsdp2_tensor_from_buffer(values, 8, Raw.FSDP2_DTYPE_F32, new long[] {2}, 1, tensor);
    return tensor[0];
  }

  private static void aForwardInJavaComputes() {
    long module =
        module(
            frame -> {
              expect(true, frame.isTraining());
              expect(1, frame.parameters());
              expect(0, frame.buffers());
              expect(1, frame.inputs());
              long product = compute("aten::mul.Tensor", frame.tensor(1), frame.tensor(0));
              frame.setOutput(0, compute("aten::sum", product));
              Raw.fsdp2_tensor_destroy(product);
              return 1;
            });
    long[] input = {pair()};
    long[] loss = new long[1];
    double[] value = new double[1];
    Raw.fsdp2_module_forward(module, input, 1, 0, loss, 1, new long[1]);
    Raw.fsdp2_tensor_get_value(loss[0], value);
    expect(7.0, value[0]);
    Raw.fsdp2_tensor_backward(loss[0]);
    Raw.fsdp2_tensor_destroy(loss[0]);
    Raw.fsdp2_tensor_destroy(input[0]);
    Raw.fsdp2_module_destroy(module);
  }

  private static void whatAForwardThrowsIsTheCause() {
    IllegalStateException thrown = new IllegalStateException("enough");
    long module =
        module(
            frame -> {
              throw thrown;
            });
    long[] input = {pair()};
    try {
      Raw.fsdp2_module_forward(module, input, 1, 0, new long[1], 1, new long[1]);
      throw new AssertionError("a forward that throws has succeeded");
    } catch (FsdpException failure) {
      expect(thrown, failure.getCause());
    }
    Raw.fsdp2_tensor_destroy(input[0]);
    Raw.fsdp2_module_destroy(module);
  }

  private static void aForwardGetsItsBuffers() {
    long module =
        module(
            frame -> {
              frame.setOutput(0, compute("aten::sum", frame.tensor(1)));
              return 1;
            });
    long[] input = {pair()};
    long[] sum = new long[1];
    double[] value = new double[1];
    Raw.fsdp2_module_add_buffer(module, "table", input[0], 0);
    Raw.fsdp2_module_forward(module, input, 1, 0, sum, 1, new long[1]);
    Raw.fsdp2_tensor_get_value(sum[0], value);
    expect(7.0, value[0]);
    Raw.fsdp2_tensor_destroy(sum[0]);
    Raw.fsdp2_tensor_destroy(input[0]);
    Raw.fsdp2_module_destroy(module);
  }

  /** Its value is the sum of the input, its gradient the input itself. */
  private static final class Sum implements DifferentiableFunction {
    @Override
    public Made forward(int[] needsGrad, long[] inputs) {
      expect(1, needsGrad[0]);
      return new Made(new long[] {compute("aten::sum", inputs[0])}, inputs);
    }

    @Override
    public long[] backward(int[] needsGrad, long[] saved, long[] outputGradients) {
      expect(1, outputGradients.length);
      return saved;
    }
  }

  private static void aFunctionInJavaDifferentiatesItself() {
    long[] input = {pair()};
    long[] sum = new long[1];
    long[] gradient = new long[1];
    ByteBuffer values = memory(8);
    Raw.fsdp2_tensor_set_requires_grad(input[0], 1);
    Raw.fsdp2_function_call("sum", input, 1, 0, 0, new Sum(), sum, 1, new long[1]);
    Raw.fsdp2_tensor_backward(sum[0]);
    Raw.fsdp2_tensor_get_grad(input[0], gradient);
    Raw.fsdp2_tensor_read(gradient[0], values, 8);
    expect(3f, values.getFloat(0));
    expect(4f, values.getFloat(4));
    Raw.fsdp2_tensor_destroy(gradient[0]);
    Raw.fsdp2_tensor_destroy(sum[0]);
    Raw.fsdp2_tensor_destroy(input[0]);
  }

  private static ByteBuffer memory(int bytes) {
    return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
  }

  private static void expect(Object expected, Object found) {
    if (!expected.equals(found)) {
      throw new AssertionError("expected " + expected + ", found " + found);
    }
  }
}
