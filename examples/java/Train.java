import io.fsdp2.AdamwOptions;
import io.fsdp2.Batch;
import io.fsdp2.FsdpRuntime;
import io.fsdp2.Loader;
import io.fsdp2.LoaderOptions;
import io.fsdp2.Mesh;
import io.fsdp2.Module;
import io.fsdp2.Optimizer;
import io.fsdp2.Shard;
import io.fsdp2.Step;
import io.fsdp2.StepResult;
import java.util.Locale;

/**
 * Fine-tunes a Hugging Face model for five steps on all ranks of the job:
 *
 * <pre>fsdp2 run --nproc-per-node 2 -- java Train MODEL_DIRECTORY TOKEN_FILE</pre>
 */
public final class Train {
  private Train() {}

  public static void main(String[] arguments) {
    if (arguments.length != 2) {
      System.err.println("usage: Train MODEL_DIRECTORY TOKEN_FILE");
      System.exit(2);
    }
    train(arguments[0], arguments[1]);
    if (FsdpRuntime.liveHandles() != 0) {
      throw new IllegalStateException(FsdpRuntime.liveHandles() + " live handles");
    }
  }

  private static void train(String directory, String tokenFile) {
    AdamwOptions adamw = AdamwOptions.builder().lr(3e-3).beta2(0.95).weightDecay(0.1).build();
    try (Mesh mesh = Mesh.create();
        Module module = Module.fromPretrained(directory);
        Shard shard = Shard.create(module, mesh);
        Optimizer optimizer = Optimizer.createAdamw(shard, adamw);
        Loader loader = Loader.open(mesh, tokenFile, batches(module));
        Step step = Step.create(shard, optimizer)) {
      for (int i = 0; i < 5; i++) {
        try (Batch batch = loader.next()) {
          StepResult result = step.run(batch);
          if (mesh.rank() == 0) {
            System.out.printf(Locale.ROOT, "step %d loss %.6f%n", result.step(), result.loss());
          }
        }
      }
    }
  }

  private static LoaderOptions batches(Module module) {
    return LoaderOptions.builder()
        .sequenceLength(32)
        .globalBatch(8)
        .vocabSize(module.getInfo().vocabSize())
        .build();
  }
}
