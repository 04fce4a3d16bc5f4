package io.fsdp2;

import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** What ranks do together, as threads of this process. */
public final class RanksTest {
  private static String modelDirectory;
  private static String tokenFile;

  private RanksTest() {}

  public static void main(String[] arguments) throws Exception {
    modelDirectory = arguments[0];
    tokenFile = arguments[1];
    test("a mesh tells and reduces", RanksTest::aMeshTellsAndReduces);
    test("a custom module trains sharded on 2 ranks", RanksTest::aCustomModuleTrainsSharded);
    test("the collector may come at any time", RanksTest::theCollectorMayComeAtAnyTime);
    test("an error in a forward fails the step", RanksTest::anErrorInAForwardFailsTheStep);
    test("a checkpoint of 2 ranks resumes on 1", RanksTest::aCheckpointResumes);
    test("settings and hooks of units", RanksTest::settingsAndHooksOfUnits);
    test("an extension carries every parameter", RanksTest::anExtensionCarriesEveryParameter);
    test("optimizers have groups", RanksTest::optimizersHaveGroups);
    test("states are gathered and saved", RanksTest::statesAreGatheredAndSaved);
    test("a plan needs no other ranks", RanksTest::aPlanNeedsNoOtherRanks);
    test("a module answers about itself", RanksTest::aModuleAnswers);
    test("log records arrive in the callback", RanksTest::logRecordsArrive);
  }

  private static void aMeshTellsAndReduces() throws Exception {
    onRanks(
        2,
        mesh -> {
          expect(2, mesh.worldSize());
          double[] values = {mesh.rank(), 1};
          mesh.allReduce(values, Reduction.SUM);
          expect(new double[] {1, 2}, values);
          mesh.agree("test", "a=1");
          mesh.barrier();
          expect(new int[] {0, 1}, mesh.getRanks());
          expect(new int[] {0, 1}, mesh.getGroupRanks(0));
          expect(mesh.rank(), mesh.getGroup(0).rank());
          MeshOptions grid = MeshOptions.builder().shape(2, 1).names("ddp", "fsdp").build();
          try (Mesh other = mesh.createIn(grid);
              Mesh part = other.getSubmesh("ddp");
              Mesh flat = other.flatten("all", "ddp", "fsdp");
              Mesh group = other.fromGroup(0, "replicas");
              Mesh same = mesh.duplicate();
              TensorScope scope = TensorScope.open()) {
            expect("fsdp", other.getDimName(1));
            expect(0, other.getDimIndex("ddp"));
            expect(true, mesh.isEqual(same));
            expect(mesh.getHash(), same.getHash());
            expect(new long[] {2}, flat.getInfo().shape());
            expect("replicas", group.getDimName(0));
            expectContains("ddp=2", other.describe());
            Mesh.Root root = part.getRoot();
            expect(new int[] {0}, root.dims());
            root.mesh().close();
            tensorsTravel(mesh);
          }
        });
  }

  private static void tensorsTravel(Mesh mesh) {
    Tensor own = Tensor.of(new float[] {mesh.rank(), mesh.rank() + 10});
    expect(new float[] {0, 10, 1, 11}, mesh.allGather(0, own, 0).toFloats());
    float[] sums = {1, 21};
    expect(
        new float[] {sums[mesh.rank()]}, mesh.reduceScatter(0, own, 0, Reduction.SUM).toFloats());
    Tensor piece = mesh.scatter(0, mesh.rank() == 0 ? own : null, 0);
    expect(new float[] {mesh.rank() * 10}, piece.toFloats());
    mesh.allReduceTensor(0, own, Reduction.MAX);
    expect(new float[] {1, 11}, own.toFloats());
    mesh.broadcast(0, piece);
    expect(new float[] {0}, piece.toFloats());
  }

  /** A model of two linear layers, whose loss is the mean square of its output. */
  private static Module net(Forward layerForward) {
    Module[] layers = new Module[2];
    Module net =
        Module.createCustom(
            "Net",
            ModuleOptions.builder().seed(1).build(),
            (self, inputs) -> {
              Tensor x = inputs[0];
              for (Module layer : layers) {
                x = layer.forward(x);
              }
              return List.of(x.pow(2).mean());
            });
    for (int i = 0; i < 2; i++) {
      layers[i] = Module.createCustom("Linear", layerForward);
      layers[i].addParameter("weight", ParameterOptions.builder().std(0.5).build(), 4, 4);
      net.addChild("layer" + i, layers[i]);
    }
    return net;
  }

  private static Tensor rows(int rank) {
    float[] values = new float[8];
    Arrays.setAll(new double[8], i -> values[i] = (i * 7 + rank * 3) % 5 - 2);
    return Tensor.of(values, 2, 4);
  }

  private static void aCustomModuleTrainsSharded() throws Exception {
    Forward linear =
        (self, inputs) -> List.of(inputs[0].linear(self.parameter("weight")).relu().add(inputs[0]));
    double[] last = new double[1];
    onRanks(
        2,
        mesh -> {
          ShardOptions units = ShardOptions.builder().wrap(Wrap.KINDS).wrapKinds("Linear").build();
          try (Module layers = net(linear);
              Shard shard = Shard.create(layers, mesh, units);
              Optimizer adamw =
                  Optimizer.createAdamw(shard, AdamwOptions.builder().lr(0.05).build());
              Step step = Step.create(shard, adamw);
              Tensor x = rows(mesh.rank())) {
            expect(3L, shard.getUnitCount());
            layers.checkpointActivations("Linear");
            double first = step.run(x).loss();
            for (int i = 0; i < 20; i++) {
              last[0] = step.run(x).loss();
            }
            expect(true, last[0] < first / 2);
            expect(21L, step.getPosition());
          }
        });
    collect();
  }

  /** Tensors, shards and their parts are dropped while ranks compute and other threads collect. */
  private static void theCollectorMayComeAtAnyTime() throws Exception {
    Forward wasteful =
        (self, inputs) -> {
          self.parameter("weight").duplicate();
          return List.of(inputs[0].linear(self.parameter("weight")));
        };
    AtomicInteger running = new AtomicInteger(1);
    Thread collector =
        new Thread(
            () -> {
              while (running.get() == 1) {
                System.gc();
              }
            });
    collector.setDaemon(true);
    collector.start();
    onRanks(
        2,
        mesh -> {
          for (int round = 0; round < 5; round++) {
            Shard shard = Shard.create(net(wasteful), mesh);
            Optimizer adamw = Optimizer.createAdamw(shard, AdamwOptions.builder().build());
            Step step = Step.create(shard, adamw);
            for (int i = 0; i < 5; i++) {
              step.run(rows(mesh.rank()));
              rows(0).add(rows(1)).matmul(rows(2).transpose(0, 1)).sum();
            }
          }
        });
    running.set(0);
    collector.join();
    collect();
  }

  /** The layers of a net are closed by the collector, once the net has let go of its forward. */
  private static void collect() throws InterruptedException {
    for (int i = 0; i < 100 && FsdpRuntime.liveHandles() > 0; i++) {
      FsdpRuntime.describe(); // a call in which the library lets go of callbacks
      System.gc();
      Thread.sleep(20);
    }
  }

  private static void anErrorInAForwardFailsTheStep() throws Exception {
    IllegalStateException thrown = new IllegalStateException("no more");
    onRanks(
        2,
        mesh -> {
          Forward failing =
              (self, inputs) -> {
                if (mesh.rank() == 1) {
                  throw thrown;
                }
                return List.of(inputs[0].linear(self.parameter("weight")));
              };
          try (Module net = net(failing);
              Shard shard = Shard.create(net, mesh);
              Optimizer sgd = Optimizer.createSgd(shard, SgdOptions.builder().build());
              Step step = Step.create(shard, sgd);
              Tensor x = rows(0)) {
            FsdpException failure = expectThrown(FsdpException.class, () -> step.run(x));
            boolean own = mesh.rank() == 1;
            expect(own ? ErrorCode.CALLBACK : ErrorCode.PEER_FAILED, failure.code());
            expectContains("no more", failure.getMessage());
            if (own) {
              Throwable cause = failure;
              while (cause.getCause() != null) {
                cause = cause.getCause();
              }
              expect(true, cause == thrown);
            }
          }
        });
    collect();
  }

  private interface RunBody {
    void run(Shard shard, Checkpoint run, Step step, Loader loader) throws Exception;
  }

  private static void withRun(Mesh mesh, RunBody body) throws Exception {
    try (Module module = Module.fromPretrained(modelDirectory);
        Shard shard = Shard.create(module, mesh);
        Optimizer adamw = Optimizer.createAdamw(shard, AdamwOptions.builder().lr(1e-3).build());
        Loader loader = Loader.open(mesh, tokenFile, batches(4));
        Step step = Step.create(shard, adamw)) {
      body.run(shard, Checkpoint.of(shard).with(adamw).with(step).with(loader), step, loader);
    }
  }

  private static LoaderOptions batches(int windows) {
    return LoaderOptions.builder().sequenceLength(16).globalBatch(windows).vocabSize(384).build();
  }

  private static double next(Step step, Loader loader) {
    try (Batch batch = loader.next()) {
      return step.run(batch).loss();
    }
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

  private static void settingsAndHooksOfUnits() throws Exception {
    ConcurrentHashMap<String, Integer> asked = new ConcurrentHashMap<>();
    AtomicInteger seen = new AtomicInteger();
    onRanks(
        2,
        mesh -> {
          ShardOptions options =
              ShardOptions.builder()
                  .shardDim(
                      (name, shape, dtype) -> {
                        asked.merge(name, 1, Integer::sum);
                        expect(DType.F32, dtype);
                        return name.endsWith("embed_tokens.weight") ? -1 : 0;
                      })
                  .build();
          try (Module module = Module.fromPretrained(modelDirectory);
              Shard shard = Shard.create(module, mesh, options);
              Loader loader = Loader.open(mesh, tokenFile, batches(2));
              Batch batch = loader.next()) {
            steer(shard);
            Unit layer = shard.unit("model.layers.0");
            layer.setAllReduceHook(
                (unit, index, gradients) -> {
                  expect("model.layers.0", unit);
                  seen.incrementAndGet();
                  gradients.write(ByteBuffer.allocate((int) gradients.getInfo().bytes()));
                });
            module.forward(batch.tokens(), batch.labels()).backward();
            long index = shard.getParameterIndex("model.layers.0.mlp.up_proj.weight");
            try (Tensor gradient = shard.getParameter(index, ParameterPart.LOCAL_GRAD)) {
              expect(0.0, gradientSum(gradient));
            }
            expect(true, shard.clipGradNorm(1, 2) > 0);
            expect(false, shard.getGradOverflow());
            shard.scaleGrad(0.5);
            expect(true, shard.getGradNorm(Double.POSITIVE_INFINITY) < 1);
            shard.zeroGrad();
            layer.setAllReduceHook(null);
          }
        });
    collect();
    expect(2, seen.get());
    expect(2, asked.get("model.embed_tokens.weight"));
  }

  private static double gradientSum(Tensor gradient) {
    try (TensorScope scope = TensorScope.open()) {
      return gradient.abs().sum().getValue();
    }
  }

  private static void steer(Shard shard) {
    Unit layer = shard.unit("model.layers.0");
    layer.unshard(false);
    expect(UnitState.UNSHARDED, layer.getInfo().state());
    layer.reshard();
    expect(
        List.of(EventKind.ALL_GATHER, EventKind.UNSHARD, EventKind.RESHARD),
        shard.getEvents().stream().map(Shard.Event::kind).toList());
    shard.clearEvents();
    UnitSettings before = layer.getSettings();
    layer.setRequiresGradientSync(false, true);
    layer.setRequiresAllReduce(false, true);
    layer.setReshardAfterForward(false, false);
    layer.setReshardAfterBackward(false, false);
    layer.setUnshardInBackward(true);
    layer.setReduceUnusedParameters(true, false);
    layer.setGradientDivideFactor(4);
    layer.setForceSumReduction(true);
    expect(4.0, layer.getSettings().gradientDivideFactor());
    layer.setSettings(before);
    expect(before, layer.getSettings());
    layer.setForwardPrefetch("model.layers.1");
    expect(new long[] {shard.unit("model.layers.1").getIndex()}, layer.getForwardPrefetch());
    layer.setBackwardPrefetch();
    expect(new long[0], layer.getBackwardPrefetch());
    layer.setForwardPrefetch();
    shard.setIsLastBackward(true);
    expect(true, shard.getIsLastBackward());
    expect((int) shard.getUnitCount(), shard.units().size());
    expect(true, shard.root().getInfo().isRoot());
    expectContains("model.layers.0", shard.describe());
    expect(0L, shard.getStats().unshardedBytes());
    shard.resetStats();
    shard.reset();
    try (Mesh mesh = shard.getMesh()) {
      expect(2, mesh.worldSize());
    }
    FsdpException none =
        expectThrown(FsdpException.class, () -> shard.unit("no.such.unit").getInfo());
    expect(ErrorCode.NOT_FOUND, none.code());
  }

  private static void anExtensionCarriesEveryParameter() throws Exception {
    AtomicInteger sent = new AtomicInteger();
    AllGatherExtension half =
        new AllGatherExtension() {
          @Override
          public Tensor preAllGather(GatherInfo gather, Tensor chunk) {
            expect(2, gather.shardRanks());
            sent.incrementAndGet();
            return chunk.to(DType.BF16);
          }

          @Override
          public void postAllGather(GatherInfo gather, Tensor pieces, Tensor chunks) {
            chunks.write(pieces.to(gather.computeDtype()).contiguous().share());
          }
        };
    onRanks(
        2,
        mesh -> {
          try (Module module = Module.fromPretrained(modelDirectory);
              Shard shard = Shard.create(module, mesh);
              TensorScope scope = TensorScope.openWithoutGradients()) {
            Tensor tokens = Tensor.of(new long[] {1, 2, 3, 4}, 1, 4);
            double plain = module.forward(tokens, tokens).getValue();
            shard.reset();
            shard.unit("model.layers.0").setAllGatherExtension(half);
            double rounded = module.forward(tokens, tokens).getValue();
            expect(true, rounded != plain && Math.abs(rounded - plain) < 0.05);
          }
        });
    collect();
    expect(true, sent.get() > 0);
  }

  private static void optimizersHaveGroups() throws Exception {
    onRanks(
        2,
        mesh -> {
          try (Module module = Module.fromPretrained(modelDirectory);
              Shard shard = Shard.create(module, mesh);
              Optimizer adamw = Optimizer.createAdamw(shard, AdamwOptions.builder().build());
              Optimizer sgd =
                  Optimizer.createSgd(shard, SgdOptions.builder().momentum(0.9).build())) {
            adamw.exemptFromDecay(true, true);
            adamw.addAdamwGroup(
                AdamwOptions.builder().lr(2e-3).build(), "model.embed_tokens.weight");
            adamw.scaleLr("model.layers.0.*", 0.5);
            sgd.addSgdGroup(SgdOptions.builder().build(), "model.embed_tokens.weight");
            expect(Algorithm.SGD, sgd.getInfo().algorithm());
            expect(true, adamw.getInfo().groups() > 3);
            adamw.setLr(1e-2);
            expect(1e-2, adamw.getLr());
            adamw.setGroupLr(1, 5e-3);
            adamw.setGroupWeightDecay(1, 0.3);
            expect(5e-3, adamw.getGroupInfo(1).lr());
            expect(0.3, adamw.getGroupInfo(1).weightDecay());
            expect(adamw.getGroupInfo(1).parameters(), adamw.getGroupParameters(1).length);
            try (Tensor mean = adamw.getState(0, "exp_avg", ParameterPart.LOCAL)) {
              expect(DType.F32, mean.dtype());
            }
            adamw.run();
          }
        });
  }

  private static void statesAreGatheredAndSaved() throws Exception {
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

  private static void aPlanNeedsNoOtherRanks() {
    MeshOptions many = MeshOptions.builder().backend(Backend.FAKE).worldSize(64).build();
    ShardOptions deferred = ShardOptions.builder().deferValues(true).build();
    try (Mesh mesh = Mesh.create(many);
        Module module = Module.fromPretrained(modelDirectory);
        Shard shard = Shard.create(module, mesh, deferred)) {
      PlanInfo plan = Plan.getInfo(shard, PlanOptions.builder().optimizerStates(1).build());
      expect(plan.shardBytes(), plan.optimizerBytes());
      expect(true, plan.allGathers() > 0);
      expectContains("model.layers.0", Plan.describe(shard, PlanOptions.builder().build()));
    }
  }

  private static void aModuleAnswers() throws Exception {
    String config = Files.readString(Path.of(modelDirectory, "config.json"));
    try (Module module = Module.fromConfig(config, ModuleOptions.builder().seed(3).build());
        Module same = module.duplicate();
        TensorScope scope = TensorScope.open()) {
      long index = module.getParameterIndex("model.embed_tokens.weight");
      expect("model.embed_tokens.weight", module.getParameterName(index, 0));
      expect(new long[] {384, 64}, module.getParameterInfo(index).shape());
      expect((long) module.getInfo().parameters(), same.getParameterCount());
      module.setRequiresGrad(false, "model.embed_tokens");
      expect(false, module.getParameterInfo(index).requiresGrad());
      module.train(false);
      expect(false, module.isTraining());
      Tensor tokens = Tensor.of(new long[] {1, 2, 3}, 1, 3);
      module.checkInputs(tokens);
      Tensor logits = module.forward(tokens);
      expect(new long[] {1, 3, 384}, logits.shape());
      Tensor hidden = Tensor.zeros(DType.F32, 1, 3, 64);
      expect(1, module.forwardSubmodule("lm_head", hidden).size());
      expect(new long[] {384, 64}, module.getParameter(index, ParameterPart.LOCAL).shape());
      module.zeroGrad();
      GenerateOptions greedy = GenerateOptions.builder().maxNewTokens(4).temperature(0).build();
      expect(4, module.generate(new long[] {1, 2}, greedy).length);
      Tensor wrong = Tensor.of(new float[] {1});
      expectThrown(FsdpException.class, () -> module.checkInputs(wrong));
    }
  }

  private static void logRecordsArrive() throws Exception {
    List<Log.Entry> entries = Collections.synchronizedList(new ArrayList<>());
    Log.set(LogLevel.DEBUG, entries::add);
    onRanks(2, mesh -> withRun(mesh, (shard, run, step, loader) -> next(step, loader)));
    Log.set(LogLevel.WARNING, null);
    expect(true, !entries.isEmpty());
    Log.Entry entry = entries.get(0);
    expect(false, entry.message().isEmpty() || entry.category().isEmpty());
    expect(true, entry.time().getEpochSecond() > 1_600_000_000L);
  }
}
