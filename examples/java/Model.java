import io.fsdp2.AdamwOptions;
import io.fsdp2.Batch;
import io.fsdp2.DType;
import io.fsdp2.ForwardContext;
import io.fsdp2.Init;
import io.fsdp2.Loader;
import io.fsdp2.LoaderOptions;
import io.fsdp2.Mesh;
import io.fsdp2.MeshOptions;
import io.fsdp2.Module;
import io.fsdp2.ModuleOptions;
import io.fsdp2.Optimizer;
import io.fsdp2.ParameterOptions;
import io.fsdp2.Shard;
import io.fsdp2.ShardOptions;
import io.fsdp2.Step;
import io.fsdp2.StepResult;
import io.fsdp2.Tensor;
import io.fsdp2.Wrap;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * A model written in Java: a small transformer made of operators, its layers sharded as units and
 * recomputed in backward.
 *
 * <pre>fsdp2 run --nproc-per-node 2 -- java Model TOKEN_FILE STEPS [GROUP]</pre>
 *
 * With GROUP it computes in bf16 and is sharded over groups of so many ranks, each group a replica.
 */
public final class Model {
  private static final int VOCABULARY = 384;
  private static final int WIDTH = 32;
  private static final int HEADS = 4;
  private static final int LAYERS = 2;
  private static final int SEQUENCE = 32;
  private static final int INNER = 64;

  private Model() {}

  private static Tensor norm(Tensor x, Tensor weight) {
    return x.rmsNorm(new long[] {WIDTH}, weight, 1e-5);
  }

  private static Tensor attention(Tensor x, Tensor qkv, Tensor out) {
    Tensor all = x.linear(qkv).view(-1, SEQUENCE, 3, HEADS, WIDTH / HEADS).permute(2, 0, 3, 1, 4);
    return all.select(0, 0)
        .scaledDotProductAttention(all.select(0, 1), all.select(0, 2), null, true)
        .transpose(1, 2)
        .reshape(-1, SEQUENCE, WIDTH)
        .linear(out);
  }

  private static List<Tensor> runLayer(ForwardContext layer, Tensor[] inputs) {
    Tensor x = inputs[0];
    Tensor y = norm(x, layer.parameter("attention_norm"));
    x = x.add(attention(y, layer.parameter("qkv"), layer.parameter("out")));
    y = norm(x, layer.parameter("mlp_norm"));
    y = y.linear(layer.parameter("up")).gelu().linear(layer.parameter("down"));
    return List.of(x.add(y));
  }

  /** From tokens and labels to the loss. */
  private static List<Tensor> runModel(List<Module> layers, ForwardContext model, Tensor[] inputs) {
    Tensor x = inputs[0].embedding(model.parameter("tokens")).add(model.parameter("positions"));
    for (Module layer : layers) {
      x = layer.forward(x);
    }
    Tensor logits = norm(x, model.parameter("norm")).linear(model.parameter("head"));
    logits = logits.view(-1, VOCABULARY).to(DType.F32); // a loss wants more digits
    return List.of(logits.crossEntropy(inputs[1].view(-1)));
  }

  private static Module makeLayer() {
    ParameterOptions ones = ParameterOptions.builder().init(Init.ONES).build();
    Module layer = Module.createCustom("Layer", Model::runLayer);
    layer.addParameter("attention_norm", ones, WIDTH);
    layer.addParameter("qkv", 3 * WIDTH, WIDTH);
    layer.addParameter("out", WIDTH, WIDTH);
    layer.addParameter("mlp_norm", ones, WIDTH);
    layer.addParameter("up", INNER, WIDTH);
    layer.addParameter("down", WIDTH, INNER);
    return layer;
  }

  private static Module makeModel() {
    List<Module> layers = new ArrayList<>();
    ModuleOptions options = ModuleOptions.builder().seed(1).build();
    Module model =
        Module.createCustom("Transformer", options, (self, in) -> runModel(layers, self, in));
    model.addParameter("tokens", VOCABULARY, WIDTH);
    model.addParameter("positions", SEQUENCE, WIDTH);
    model.addParameter("norm", ParameterOptions.builder().init(Init.ONES).build(), WIDTH);
    model.addParameter("head", VOCABULARY, WIDTH);
    for (int i = 0; i < LAYERS; i++) {
      layers.add(makeLayer());
      model.addChild("layer" + i, layers.get(i));
    }
    return model;
  }

  /** Trains on all ranks or, if group is not 0, on groups of so many, in bf16. */
  private static void train(String tokens, int steps, long group) {
    MeshOptions joining = MeshOptions.builder().fsdpSize(group).build();
    ShardOptions.Builder sharding = ShardOptions.builder().wrap(Wrap.KINDS).wrapKinds("Layer");
    if (group != 0) {
      sharding.paramDtype(DType.BF16).reduceDtype(DType.F32);
    }
    LoaderOptions loading =
        LoaderOptions.builder()
            .sequenceLength(SEQUENCE)
            .globalBatch(8)
            .vocabSize(VOCABULARY)
            .build();
    try (Mesh mesh = Mesh.create(joining);
        Module model = makeModel();
        Shard shard = Shard.create(model, mesh, sharding.build());
        Optimizer optimizer =
            Optimizer.createAdamw(shard, AdamwOptions.builder().lr(3e-3).build());
        Loader loader = Loader.open(mesh, tokens, loading);
        Step step = Step.create(shard, optimizer)) {
      model.checkpointActivations("Layer");
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

  public static void main(String[] arguments) {
    if (arguments.length != 2 && arguments.length != 3) {
      System.err.println("usage: Model TOKEN_FILE STEPS [GROUP]");
      System.exit(2);
    }
    int steps = Integer.parseInt(arguments[1]);
    train(arguments[0], steps, arguments.length == 3 ? Long.parseLong(arguments[2]) : 0);
  }
}
