import io.fsdp2.AdamwOptions;
import io.fsdp2.Batch;
import io.fsdp2.Loader;
import io.fsdp2.LoaderOptions;
import io.fsdp2.Mesh;
import io.fsdp2.Module;
import io.fsdp2.ModuleOptions;
import io.fsdp2.Optimizer;
import io.fsdp2.Shard;
import io.fsdp2.ShardOptions;
import io.fsdp2.Step;
import io.fsdp2.StepResult;
import io.fsdp2.Tensor;
import io.fsdp2.Wrap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.BiFunction;

/**
 * A small transformer put together from the library's layers. The program writes two forwards of
 * its own: the sum around each sub-layer, and the loss.
 *
 * <pre>fsdp2 run --nproc-per-node 2 -- java Layers TOKEN_FILE STEPS</pre>
 */
public final class Layers {
  private static final int VOCABULARY = 384;
  private static final int WIDTH = 32;
  private static final int LAYERS = 2;

  private Layers() {}

  /** A module whose forward calls a child. */
  private static Module around(
      String kind, Module child, BiFunction<Module, Tensor[], Tensor> forward) {
    // The seed gives the same values on every rank, however many there are.
    ModuleOptions options = ModuleOptions.builder().seed(1).build();
    Module module =
        Module.createCustom(kind, options, (self, inputs) -> List.of(forward.apply(child, inputs)));
    module.addChild("inner", child);
    return module;
  }

  private static Module norm() {
    return Module.createLayer("RMSNorm", Map.of("normalized_shape", WIDTH, "eps", 1e-5));
  }

  private static Module attention() {
    return Module.createLayer(
        "MultiheadAttention",
        Map.of(
            "embed_dim",
            WIDTH,
            "num_heads",
            4,
            "num_kv_heads",
            2,
            "is_causal",
            true,
            "rope_theta",
            10000,
            "bias",
            false));
  }

  private static Module mlp() {
    return Module.createLayer(
        "GatedMLP", Map.of("hidden_size", WIDTH, "intermediate_size", 2 * WIDTH, "bias", false));
  }

  private static Module residual(Module layer) {
    Module inner = Module.createLayer("Sequential");
    inner.addChild("norm", norm());
    inner.addChild("layer", layer);
    return around("Residual", inner, (child, inputs) -> inputs[0].add(child.forward(inputs[0])));
  }

  /** From tokens and labels [B,S] to the loss. */
  private static Tensor loss(Module chain, Tensor[] inputs) {
    Tensor logits = chain.forward(inputs[0]).transpose(1, 2); // [B,V,S]
    return logits.crossEntropy(inputs[1]);
  }

  private static Module makeModel() {
    Map<String, ?> embedding = Map.of("num_embeddings", VOCABULARY, "embedding_dim", WIDTH);
    Map<String, ?> head = Map.of("in_features", WIDTH, "out_features", VOCABULARY, "bias", false);
    Module chain = Module.createLayer("Sequential");
    chain.addChild("embedding", Module.createLayer("Embedding", embedding));
    for (int i = 0; i < LAYERS; i++) {
      chain.addChild("attention" + i, residual(attention()));
      chain.addChild("mlp" + i, residual(mlp()));
    }
    chain.addChild("norm", norm());
    chain.addChild("head", Module.createLayer("Linear", head));
    return around("Transformer", chain, Layers::loss);
  }

  public static void main(String[] arguments) {
    if (arguments.length != 2) {
      System.err.println("usage: Layers TOKEN_FILE STEPS");
      System.exit(2);
    }
    int steps = Integer.parseInt(arguments[1]);
    ShardOptions sharding = ShardOptions.builder().wrap(Wrap.KINDS).wrapKinds("Residual").build();
    LoaderOptions loading =
        LoaderOptions.builder().sequenceLength(32).globalBatch(8).vocabSize(VOCABULARY).build();
    try (Mesh mesh = Mesh.create();
        Module model = makeModel();
        Shard shard = Shard.create(model, mesh, sharding);
        Optimizer optimizer =
            Optimizer.createAdamw(shard, AdamwOptions.builder().lr(3e-3).build());
        Loader loader = Loader.open(mesh, arguments[0], loading);
        Step step = Step.create(shard, optimizer)) {
      for (int i = 0; i < steps; i++) {
        try (Batch batch = loader.next()) {
          StepResult result = step.run(batch);
          if (mesh.rank() == 0) {
            System.out.printf(Locale.ROOT, "step %d loss %.6f%n", i, result.loss());
          }
        }
      }
    }
  }
}
