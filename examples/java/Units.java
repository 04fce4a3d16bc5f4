import io.fsdp2.Batch;
import io.fsdp2.EventKind;
import io.fsdp2.Loader;
import io.fsdp2.LoaderOptions;
import io.fsdp2.Mesh;
import io.fsdp2.Module;
import io.fsdp2.ParameterInfo;
import io.fsdp2.Shard;
import io.fsdp2.TensorScope;
import io.fsdp2.Unit;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;

/**
 * Looks at a sharded model's units and steers them by hand:
 *
 * <pre>fsdp2 run --nproc-per-node 2 -- java Units MODEL_DIRECTORY TOKEN_FILE</pre>
 */
public final class Units {
  private Units() {}

  public static void main(String[] arguments) {
    if (arguments.length != 2) {
      System.err.println("usage: Units MODEL_DIRECTORY TOKEN_FILE");
      System.exit(2);
    }
    try (Mesh mesh = Mesh.create();
        Module module = Module.fromPretrained(arguments[0]);
        Shard shard = Shard.create(module, mesh)) {
      List<String> lines =
          List.of(
              unshardByHand(shard),
              events(shard),
              placement(shard, "model.embed_tokens.weight"),
              countGradients(mesh, module, shard, arguments[1]));
      if (mesh.rank() == 0) {
        lines.forEach(System.out::println);
      }
    }
  }

  private static String unshardByHand(Shard shard) {
    Unit unit = shard.unit("model.layers.0");
    unit.unshard(true);
    unit.waitUnshard();
    long unsharded = shard.getStats().unshardedBytes();
    unit.reshard();
    return "unsharded bytes: " + unsharded + ", then " + shard.getStats().unshardedBytes();
  }

  private static String events(Shard shard) {
    return shard.getEvents().stream()
        .map(Shard.Event::kind)
        .map(EventKind::name)
        .map(name -> name.toLowerCase(Locale.ROOT).replace('_', '-'))
        .collect(Collectors.joining(", ", "events: ", ""));
  }

  private static String placement(Shard shard, String name) {
    ParameterInfo info = shard.getParameterInfo(shard.getParameterIndex(name));
    return String.format(
        "%s: %d x %d, here %d x %d, sharded on dim %d over %d ranks",
        name,
        info.shape()[0],
        info.shape()[1],
        info.localShape()[0],
        info.localShape()[1],
        info.shardDim(),
        info.shardRanks());
  }

  private static String countGradients(Mesh mesh, Module module, Shard shard, String tokenFile) {
    AtomicInteger ready = new AtomicInteger();
    shard.root().setGradientReady((parameter, index, gradient) -> ready.incrementAndGet(), true);
    LoaderOptions options =
        LoaderOptions.builder()
            .sequenceLength(32)
            .globalBatch(mesh.worldSize())
            .vocabSize(module.getInfo().vocabSize())
            .build();
    try (Loader loader = Loader.open(mesh, tokenFile, options);
        TensorScope scope = TensorScope.open()) {
      Batch batch = loader.next();
      module.forward(batch.tokens(), batch.labels()).backward();
    }
    return String.format(
        "gradients ready: %d of %d parameters", ready.get(), shard.getParameterCount());
  }
}
