import io.fsdp2.AdamwOptions;
import io.fsdp2.Batch;
import io.fsdp2.Checkpoint;
import io.fsdp2.ErrorCode;
import io.fsdp2.FsdpException;
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
 * Trains up to a number of steps from where it was left, on any number of ranks, and saves the run:
 *
 * <pre>
 * fsdp2 run --nproc-per-node 2 -- java Resume MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY 3
 * java Resume MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY 5</pre>
 *
 * <p>The second command goes on from there, on one rank.
 */
public final class Resume {
  private Resume() {}

  public static void main(String[] arguments) {
    if (arguments.length != 4) {
      System.err.println("usage: Resume MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY STEPS");
      System.exit(2);
    }
    String directory = arguments[2];
    long last = Long.parseLong(arguments[3]);
    AdamwOptions adamw = AdamwOptions.builder().lr(3e-3).beta2(0.95).weightDecay(0.1).build();
    try (Mesh mesh = Mesh.create();
        Module module = Module.fromPretrained(arguments[0]);
        Shard shard = Shard.create(module, mesh);
        Optimizer optimizer = Optimizer.createAdamw(shard, adamw);
        Loader loader = Loader.open(mesh, arguments[1], batches(module));
        Step step = Step.create(shard, optimizer)) {
      Checkpoint run = Checkpoint.of(shard).with(optimizer).with(step).with(loader);
      load(run, directory);
      while (step.getPosition() < last) {
        try (Batch batch = loader.next()) {
          StepResult result = step.run(batch);
          if (mesh.rank() == 0) {
            System.out.printf(Locale.ROOT, "step %d loss %.6f%n", result.step(), result.loss());
          }
        }
      }
      run.save(String.format(Locale.ROOT, "%s/step-%08d", directory, last));
    }
  }

  /** The newest checkpoint that is whole; none is in the directory of a run that begins. */
  private static void load(Checkpoint run, String directory) {
    String newest;
    try {
      newest = Checkpoint.find(directory);
    } catch (FsdpException failure) {
      if (failure.code() == ErrorCode.NOT_FOUND) {
        return;
      }
      throw failure;
    }
    run.load(newest);
  }

  private static LoaderOptions batches(Module module) {
    return LoaderOptions.builder()
        .sequenceLength(32)
        .globalBatch(12)
        .vocabSize(module.getInfo().vocabSize())
        .build();
  }
}
