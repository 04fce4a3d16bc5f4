import io.fsdp2.AdamwOptions;
import io.fsdp2.Batch;
import io.fsdp2.FsdpRuntime;
import io.fsdp2.Loader;
import io.fsdp2.LoaderOptions;
import io.fsdp2.Mesh;
import io.fsdp2.MeshOptions;
import io.fsdp2.Module;
import io.fsdp2.Optimizer;
import io.fsdp2.Shard;
import io.fsdp2.Step;
import io.fsdp2.StepResult;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Ranks as threads of one program, without a launcher: each thread joins the same name.
 *
 * <pre>java Threads MODEL_DIRECTORY TOKEN_FILE RANKS STEPS</pre>
 */
public final class Threads {
  private Threads() {}

  private static void train(String directory, String tokenFile, MeshOptions job, int steps) {
    FsdpRuntime.setThreads(1); // of this thread's computations
    AdamwOptions adamw = AdamwOptions.builder().lr(3e-3).beta2(0.95).weightDecay(0.1).build();
    try (Mesh mesh = Mesh.create(job);
        Module module = Module.fromPretrained(directory);
        Shard shard = Shard.create(module, mesh);
        Optimizer optimizer = Optimizer.createAdamw(shard, adamw);
        Loader loader = Loader.open(mesh, tokenFile, batches(module));
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

  private static LoaderOptions batches(Module module) {
    return LoaderOptions.builder()
        .sequenceLength(32)
        .globalBatch(8)
        .vocabSize(module.getInfo().vocabSize())
        .build();
  }

  public static void main(String[] arguments) throws InterruptedException {
    if (arguments.length != 4) {
      System.err.println("usage: Threads MODEL_DIRECTORY TOKEN_FILE RANKS STEPS");
      System.exit(2);
    }
    int ranks = Integer.parseInt(arguments[2]);
    int steps = Integer.parseInt(arguments[3]);
    Thread.setDefaultUncaughtExceptionHandler(
        (thread, failure) -> {
          failure.printStackTrace();
          Runtime.getRuntime().halt(1); // the other ranks would wait for this one
        });
    List<Thread> threads = new ArrayList<>();
    for (int rank = 0; rank < ranks; rank++) {
      MeshOptions job =
          MeshOptions.builder().rendezvous("thread://example").rank(rank).worldSize(ranks).build();
      threads.add(new Thread(() -> train(arguments[0], arguments[1], job, steps)));
    }
    threads.forEach(Thread::start);
    for (Thread thread : threads) {
      thread.join();
    }
  }
}
