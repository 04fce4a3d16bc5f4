package io.fsdp2;

import static io.fsdp2.Checks.code;
import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;

import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** Layers that the library has. */
public final class LayerTest {
  private LayerTest() {}

  public static void main(String[] arguments) throws Exception {
    test("a layer by name has PyTorch's parameters", LayerTest::aLayerByName);
    test("wrong settings of a layer are told", LayerTest::wrongSettingsAreTold);
    test("layers train sharded on 2 ranks", LayerTest::layersTrainSharded);
    test("children of a layer end with it", LayerTest::childrenOfALayerEndWithIt);
  }

  /** The names and shapes of a module's parameters. */
  private static String parametersOf(Module module) {
    StringBuilder all = new StringBuilder();
    for (long i = 0; i < module.getParameterCount(); i++) {
      all.append(module.getParameterName(i, 0));
      all.append(Arrays.toString(module.getParameterInfo(i).shape())).append(' ');
    }
    return all.toString();
  }

  private static void aLayerByName() {
    Map<String, ?> convolution =
        Map.of("in_channels", 2, "out_channels", 4, "kernel_size", new int[] {3, 5});
    try (Module module = Module.createLayer("Conv2d", convolution)) {
      expect("weight[4, 2, 3, 5] bias[4] ", parametersOf(module));
    }
    Map<String, ?> attention = Map.of("embed_dim", 8L, "num_heads", 2, "bias", false);
    try (Module module = Module.createLayer("MultiheadAttention", attention)) {
      expect("in_proj_weight[24, 8] out_proj.weight[8, 8] ", parametersOf(module));
    }
    try (Module norm = Module.createLayer("LayerNorm", Map.of("normalized_shape", 8, "eps", 1e-6));
        TensorScope scope = TensorScope.open()) {
      Tensor x = Tensor.of(new float[] {1, 2, 3, 4, 5, 6, 7, 8}, 1, 8);
      Tensor byOperator = x.op("aten::layer_norm", new long[] {8}, null, null, 1e-6);
      expect(byOperator.toFloats(), norm.forward(x).toFloats());
    }
  }

  private static void wrongSettingsAreTold() {
    FsdpException kind = expectThrown(FsdpException.class, () -> Module.createLayer("Liner"));
    expect(ErrorCode.INVALID_ARGUMENT, kind.code());
    expectContains("did you mean Linear?", kind.getMessage());
    Map<String, ?> quoted = Map.of("approximate", "\"tanh\\\n");
    FsdpException text =
        expectThrown(FsdpException.class, () -> Module.createLayer("GELU", quoted));
    expectContains("\"approximate\" should be", text.getMessage());
    Map<String, ?> notANumber = Map.of("p", Double.NaN);
    expect(ErrorCode.INVALID_ARGUMENT, code(() -> Module.createLayer("Dropout", notANumber)));
    expectThrown(
        IllegalArgumentException.class,
        () -> Module.createLayer("Dropout", Map.of("p", List.of(1))));
  }

  /** A chain of layers, and a forward that calls it for the mean square of what it makes. */
  private static Module model() {
    ModuleOptions options = ModuleOptions.builder().seed(3).build();
    Module chain = Module.createLayer("Sequential", Map.of(), options);
    chain.addChild("norm", Module.createLayer("RMSNorm", Map.of("normalized_shape", 8)));
    Map<String, ?> mlp = Map.of("hidden_size", 8, "intermediate_size", 16, "hidden_act", "silu");
    chain.addChild("mlp", Module.createLayer("MLP", mlp));
    Module whole =
        Module.createCustom(
            "Whole", options, (self, inputs) -> List.of(chain.forward(inputs[0]).pow(2).mean()));
    whole.addChild("chain", chain);
    return whole;
  }

  private static void layersTrainSharded() throws Exception {
    onRanks(
        2,
        mesh -> {
          try (Module model = model();
              Shard shard = Shard.create(model, mesh);
              Optimizer adamw =
                  Optimizer.createAdamw(shard, AdamwOptions.builder().lr(0.01).build());
              Step step = Step.create(shard, adamw);
              Tensor x = Tensor.of(new float[] {0.5f, -1, 2, 0, 1, -2, 0.25f, 1.5f}, 1, 8)) {
            double first = step.run(x).loss();
            double last = first;
            for (int i = 0; i < 4; i++) {
              last = step.run(x).loss();
            }
            expect(true, last < 0.8 * first, first + ", then " + last);
          }
        });
  }

  /** And no sooner than its last object. */
  private static void childrenOfALayerEndWithIt() {
    Module chain = Module.createLayer("Sequential");
    Module act = Module.createLayer("ReLU");
    chain.addChild("act", act);
    Module same = chain.duplicate();
    chain.close();
    try (Tensor x = Tensor.of(new float[] {-1, 1})) {
      act.forward(x).close();
      same.close();
      expect(ErrorCode.STALE_HANDLE, code(() -> act.forward(x)));
    }
    expect(0L, FsdpRuntime.liveHandles());
  }
}
