package io.fsdp2;

/** Runs of the model and the tokens that the tests are given. */
final class Runs {
  static String modelDirectory;
  static String tokenFile;

  private Runs() {}

  static void read(String[] arguments) {
    modelDirectory = arguments[0];
    tokenFile = arguments[1];
  }

  interface RunBody {
    void run(Shard shard, Checkpoint run, Step step, Loader loader) throws Exception;
  }

  static void withRun(Mesh mesh, RunBody body) throws Exception {
    try (Module module = Module.fromPretrained(modelDirectory);
        Shard shard = Shard.create(module, mesh);
        Optimizer adamw = Optimizer.createAdamw(shard, AdamwOptions.builder().lr(1e-3).build());
        Loader loader = Loader.open(mesh, tokenFile, batches(4));
        Step step = Step.create(shard, adamw)) {
      body.run(shard, Checkpoint.of(shard).with(adamw).with(step).with(loader), step, loader);
    }
  }

  static LoaderOptions batches(int windows) {
    return LoaderOptions.builder().sequenceLength(16).globalBatch(windows).vocabSize(384).build();
  }

  static double next(Step step, Loader loader) {
    try (Batch batch = loader.next()) {
      return step.run(batch).loss();
    }
  }
}
