package io.fsdp2;

import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;

import java.util.Arrays;
import java.util.List;

/** Functions whose gradient the program computes. */
public final class FunctionTest {
  private FunctionTest() {}

  public static void main(String[] arguments) throws Exception {
    test("a function has the gradient of its backward", FunctionTest::aFunctionHasItsGradient);
    test("an error in a backward callback reaches the caller", FunctionTest::anErrorInABackward);
    test("a function saves what it makes", FunctionTest::aFunctionSavesWhatItMakes);
    test("what a function cannot give leaves no handle", FunctionTest::nothingIsLeft);
  }

  /** a b, with the gradients of 3 a b, which nobody else can have made. */
  private static final class Product implements DifferentiableFunction {
    @Override
    public List<Tensor> forward(FunctionContext context, Tensor[] inputs) {
      context.save(inputs);
      return List.of(inputs[0].mul(inputs[1]));
    }

    @Override
    public Tensor[] backward(FunctionContext context, Tensor[] outputGradients) {
      Tensor[] slopes = new Tensor[2];
      for (int i = 0; i < 2; i++) {
        if (context.needsGrad(i)) {
          slopes[i] = outputGradients[0].mul(context.saved().get(1 - i)).mul(3);
        }
      }
      return slopes;
    }
  }

  private static Tensor product(Tensor a, Tensor b) {
    return DifferentiableFunction.call("product", new Product(), a, b).get(0);
  }

  private static void aFunctionHasItsGradient() throws Exception {
    try (TensorScope scope = TensorScope.open()) {
      Tensor a = Tensor.of(new float[] {1, -2}).setRequiresGrad(true);
      Tensor b = Tensor.of(new float[] {5, 0.5f});
      Tensor made = product(a, b);
      expect(new float[] {5, -1}, made.toFloats());
      made.sum().backward();
      expect(new float[] {15, 1.5f}, a.getGrad().toFloats());
      try (TensorScope silent = TensorScope.openWithoutGradients()) {
        expect(false, product(a, b).getInfo().requiresGrad());
      }
    }
    onRanks(
        2,
        mesh -> {
          try (Module scale =
              Module.createCustom(
                  "Scale",
                  (self, inputs) -> List.of(product(inputs[0], self.parameter("weight")).sum()))) {
            scale.addParameter("weight", 2);
            try (Shard shard = Shard.create(scale, mesh);
                TensorScope scope = TensorScope.open()) {
              scale.forward(Tensor.of(new float[] {1, -2})).backward();
              Tensor gradient = shard.getParameter(0, ParameterPart.FULL_GRAD);
              expect(new float[] {3, -6}, gradient.toFloats());
            }
          }
        });
  }

  private interface Backward {
    Tensor[] run() throws Exception;
  }

  private interface ForwardOf {
    List<Tensor> run(FunctionContext context, Tensor[] inputs) throws Exception;
  }

  /** What a call of a function with this forward says. */
  private static String refusal(ForwardOf forward) {
    DifferentiableFunction function =
        new DifferentiableFunction() {
          @Override
          public List<Tensor> forward(FunctionContext context, Tensor[] inputs) throws Exception {
            return forward.run(context, inputs);
          }

          @Override
          public Tensor[] backward(FunctionContext context, Tensor[] outputGradients) {
            return new Tensor[1];
          }
        };
    try (Tensor x = Tensor.of(new float[] {1, 2})) {
      FsdpException failure =
          expectThrown(
              FsdpException.class, () -> DifferentiableFunction.call("refused", function, x));
      return failure.getMessage();
    }
  }

  private static void nothingIsLeft() {
    Tensor closed = Tensor.of(new float[] {9});
    closed.close();
    expectContains("expected outputs, found null", refusal((context, inputs) -> null));
    String savesNull =
        refusal(
            (context, inputs) -> {
              context.save(inputs[0], null);
              return List.of(inputs[0].exp());
            });
    expectContains("expected tensors as saved tensors, found null at 1", savesNull);
    expect(0L, FsdpRuntime.liveHandles());
    String savesClosed =
        refusal(
            (context, inputs) -> {
              Tensor made = inputs[0].exp();
              context.save(made, inputs[0], closed);
              return List.of(made, made, inputs[0]);
            });
    expectContains("has been destroyed", savesClosed);
    expect(0L, FsdpRuntime.liveHandles());
    expectContains("expected gradients, found null", failureOf(() -> null).getMessage());
    FsdpException stale = failureOf(() -> new Tensor[] {Tensor.of(new float[] {1, 2}), closed}, 2);
    expectContains("has been destroyed", stale.getMessage());
    expect(0L, FsdpRuntime.liveHandles());
  }

  private static FsdpException failureOf(Backward backward) {
    return failureOf(backward, 1);
  }

  /** The failure of a backward through a function of so many inputs that has this one. */
  private static FsdpException failureOf(Backward backward, int inputs) {
    DifferentiableFunction function =
        new DifferentiableFunction() {
          @Override
          public List<Tensor> forward(FunctionContext context, Tensor[] inputs) {
            return List.of(inputs[0].exp());
          }

          @Override
          public Tensor[] backward(FunctionContext context, Tensor[] outputGradients)
              throws Exception {
            return backward.run();
          }
        };
    try (TensorScope scope = TensorScope.open()) {
      Tensor x = Tensor.of(new float[] {1, 2}).setRequiresGrad(true);
      Tensor[] given = new Tensor[inputs];
      Arrays.fill(given, x);
      Tensor made = DifferentiableFunction.call("fails", function, given).get(0);
      return expectThrown(FsdpException.class, () -> made.sum().backward());
    }
  }

  private static void anErrorInABackward() {
    IllegalStateException thrown = new IllegalStateException("no slope today");
    FsdpException failure =
        failureOf(
            () -> {
              throw thrown;
            });
    expect(ErrorCode.CALLBACK, failure.code());
    expect(true, failure.getCause() == thrown);
    expectContains("backward of fails", failure.getMessage());
    expectContains("for each of 1 inputs", failureOf(() -> new Tensor[0]).getMessage());
    FsdpException shape = failureOf(() -> new Tensor[] {Tensor.of(new float[] {1})});
    expectContains("expected shape [2]", shape.getMessage());
  }

  /** exp, which saves its output. */
  private static final class Exp implements DifferentiableFunction {
    @Override
    public List<Tensor> forward(FunctionContext context, Tensor[] inputs) {
      Tensor made = inputs[0].exp();
      context.save(made);
      return List.of(made);
    }

    @Override
    public Tensor[] backward(FunctionContext context, Tensor[] outputGradients) {
      return new Tensor[] {outputGradients[0].mul(context.saved().get(0))};
    }
  }

  private static void aFunctionSavesWhatItMakes() {
    try (TensorScope scope = TensorScope.open()) {
      Tensor x = Tensor.of(new float[] {0}).setRequiresGrad(true);
      DifferentiableFunction.call("exp", new Exp(), x).get(0).sum().backward();
      expect(new float[] {1}, x.getGrad().toFloats());
    }
  }
}
