package io.fsdp2;

import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;
import static io.fsdp2.Runs.modelDirectory;
import static io.fsdp2.Runs.next;
import static io.fsdp2.Runs.withRun;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

/** What is saved, and restored. */
public final class CheckpointTest {
  private CheckpointTest() {}

  public static void main(String[] arguments) throws Exception {
    Runs.read(arguments);
    test(
        "checkpoint saved on 2 ranks resumes with the same loss on 1",
        CheckpointTest::aCheckpointResumes);
    test("a state is cut and gathered", CheckpointTest::aStateIsCutAndGathered);
  }

  private static void aCheckpointResumes() throws Exception {
    String path = Files.createTempDirectory("fsdp2").resolve("run").toString();
    SaveOptions background = SaveOptions.builder().background(true).build();
    double[] third = new double[1];
    onRanks(
        2,
        mesh ->
            withRun(
                mesh,
                (shard, run, step, loader) -> {
                  next(step, loader);
                  run.prepare();
                  next(step, loader);
                  Checkpoint.checkPath(path, background);
                  run.save(path, background);
                  run.await();
                  expect(true, run.poll());
                  double loss = next(step, loader);
                  run.saveFull(path + ".safetensors");
                  run.savePretrained(path + ".model");
                  if (mesh.rank() == 0) {
                    third[0] = loss;
                  }
                }));
    expect(path, Checkpoint.find(path));
    Checkpoint.verify(path);
    expectContains("\"tensors\"", Checkpoint.inspect(path));
    onRanks(
        1,
        mesh ->
            withRun(
                mesh,
                (shard, run, step, loader) -> {
                  run.load(path);
                  expect(2L, step.getPosition());
                  expect(2L, loader.getPosition());
                  expectContains("\"step\"", run.getReport());
                  double loss = next(step, loader);
                  expect(true, Math.abs(loss - third[0]) < 1e-5 * loss);
                  try (State state = run.getState(false);
                      State whole = state.gather(false)) {
                    run.setState(whole, LoadOptions.builder().build());
                  }
                  run.loadFull(path + ".safetensors");
                }));
    ConvertOptions options =
        ConvertOptions.builder()
            .format(CheckpointFormat.MODEL_DIRECTORY)
            .configPath(modelDirectory + "/config.json")
            .build();
    Checkpoint.convert(path, path + ".converted", options);
    Checkpoint.rebuildManifest(path);
    expect(true, Files.exists(Path.of(path + ".converted", "config.json")));
    Module.fromPretrained(path + ".model").close();
  }

  private static void aStateIsCutAndGathered() throws Exception {
    String path = Files.createTempDirectory("fsdp2").resolve("state").toString();
    onRanks(
        2,
        mesh -> {
          try (State state = State.create(mesh);
              Tensor piece = Tensor.of(new float[] {mesh.rank(), 2}, 1, 2);
              Tensor whole = Tensor.of(new long[] {7})) {
            state.addTensor("rows", new long[] {2, 2}, new long[] {mesh.rank(), 0}, piece);
            state.addTensor("whole", whole);
            state.addValue("epoch", "3");
            expect(3L, state.getCount());
            expect("rows", state.getName(0));
            expect("3", state.getValue("epoch"));
            expect(2, state.getInfo().tensors());
            state.save(path);
            piece.write(ByteBuffer.allocate(8));
            state.load(path);
            expect(new float[] {mesh.rank(), 2}, piece.toFloats());
            try (State full = state.gather(false);
                Tensor rows = full.getTensor("rows")) {
              expect(new float[] {0, 2, 1, 2}, rows.toFloats());
            }
          }
        });
  }
}
