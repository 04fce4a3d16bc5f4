package io.fsdp2;

import static io.fsdp2.Checks.code;
import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;
import static io.fsdp2.Runs.modelDirectory;
import static io.fsdp2.Runs.next;
import static io.fsdp2.Runs.withRun;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Models of the library, their optimizers and plans, and the log. */
public final class TrainingTest {
  private TrainingTest() {}

  public static void main(String[] arguments) throws Exception {
    Runs.read(arguments);
    test("optimizers have groups", TrainingTest::optimizersHaveGroups);
    test("Muon trains an MLP in tiles", TrainingTest::muonTrainsAnMlpInTiles);
    test("decay is coupled or not", TrainingTest::decayIsCoupledOrNot);
    test("a run goes on where it is told to", TrainingTest::aRunGoesOnWhereItIsToldTo);
    test("a plan needs no other ranks", TrainingTest::aPlanNeedsNoOtherRanks);
    test("a plan tells the memory of a step", TrainingTest::aPlanTellsTheMemoryOfAStep);
    test("a module answers about itself", TrainingTest::aModuleAnswers);
    test("log records arrive in the language's callback", TrainingTest::logRecordsArrive);
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

  private static void aRunGoesOnWhereItIsToldTo() throws Exception {
    onRanks(
        1,
        mesh ->
            withRun(
                mesh,
                (shard, run, step, loader) -> {
                  step.setPosition(7);
                  loader.setPosition(3);
                  expect(7L, step.getPosition());
                  expect(3L, loader.getPosition());
                }));
  }

  private static void muonTrainsAnMlpInTiles() throws Exception {
    onRanks(
        2,
        mesh -> {
          try (Module module = Module.fromPretrained(modelDirectory);
              Shard shard = Shard.create(module, mesh);
              Optimizer muon =
                  Optimizer.createMuon(shard, MuonOptions.builder().newtonSchulzSteps(4).build())) {
            expect(2L, module.tileMlps(3));
            expect(ErrorCode.INVALID_ARGUMENT, code(() -> module.tileMlps(0)));
            muon.exemptNamedFromDecay("lm_head.*", "model.norm.weight");
            muon.exemptClassesFromDecay("LlamaMLP");
            muon.scaleNamedLr(0.5, "*.q_proj.weight", "*.k_proj.weight");
            expect(4L, muon.getGroupInfo(0).newtonSchulzSteps());
            expect(0.2, muon.getGroupInfo(0).matchedAdamwRms());
            expect(Algorithm.MUON, muon.getInfo().algorithm());
            expect(5, muon.getInfo().groups());
            muon.run();
            expect(true, muon.getInfo().receivedBytes() > 0);
          }
        });
  }

  /** After one step: Adam's update is its learning rate, however much decay is in the gradient. */
  private static void decayIsCoupledOrNot() throws Exception {
    ParameterOptions ones = ParameterOptions.builder().init(Init.ONES).build();
    AdamwOptions.Builder options = AdamwOptions.builder().lr(0.1).weightDecay(1);
    for (boolean coupled : new boolean[] {false, true}) {
      onRanks(
          1,
          mesh -> {
            try (Module module =
                    Module.createCustom("Sum", (self, in) -> List.of(self.parameter("w").sum()));
                TensorScope scope = TensorScope.open()) {
              module.addParameter("w", ones, 1);
              try (Shard shard = Shard.create(module, mesh);
                  Optimizer adamw =
                      Optimizer.createAdamw(shard, options.coupledDecay(coupled).build())) {
                module.forward().backward();
                adamw.run();
                double value = shard.getParameter(0, ParameterPart.LOCAL).getValue();
                expect(coupled ? 0.9 : 0.8, Math.round(value * 1e5) / 1e5);
                AdamwOptions halved = AdamwOptions.builder().stateDtype(DType.BF16).build();
                try (Optimizer narrow = Optimizer.createAdamw(shard, halved)) {
                  long bytes = narrow.getInfo().fullBytes();
                  expect(2 * (bytes - 4), adamw.getInfo().fullBytes() - 4);
                  PlanOptions plan = PlanOptions.builder().optimizerBytes(bytes).build();
                  expect(bytes, Plan.getInfo(shard, plan).optimizerBytes());
                }
                StepOptions tooFew = StepOptions.builder().lossChunk(-1).build();
                expect(ErrorCode.INVALID_ARGUMENT, code(() -> Step.create(shard, adamw, tooFew)));
              }
            }
          });
    }
  }

  private static void aPlanTellsTheMemoryOfAStep() {
    MeshOptions shapes =
        MeshOptions.builder().backend(Backend.FAKE).worldSize(4).deviceType("meta").build();
    ShardOptions deferred = ShardOptions.builder().deferValues(true).build();
    PlanOptions options = PlanOptions.builder().build();
    try (Mesh mesh = Mesh.create(shapes);
        Module module = Module.fromPretrained(modelDirectory);
        Shard shard = Shard.create(module, mesh, deferred);
        Tensor tokens = Tensor.of(new long[8], 1, 8);
        Tensor more = Tensor.of(new long[64 * 8], 64, 8)) {
      PlanMemory small = Plan.getMemory(shard, options, 1, tokens, tokens);
      PlanMemory large = Plan.getMemory(shard, options, 1, more, more);
      expect(true, large.activationBytes() > 16 * small.activationBytes());
      expect(
          small.peakBytes(), small.modelBytes() + small.activationBytes() + small.optimizerBytes());
      expect(
          ErrorCode.INVALID_ARGUMENT,
          code(() -> Plan.getMemory(shard, options, 0, tokens, tokens)));
      PlanReshard all = Plan.chooseReshard(shard, options, 1L << 40, 1, tokens, tokens);
      expect(2, all.candidates());
      expect(2, all.kept());
      expect(Reshard.NEVER, shard.unit("model.layers.0").getSettings().reshardAfterForward());
      expect(small.peakBytes(), all.reshardedPeakBytes());
      expect(all, Plan.chooseReshard(shard, options, all.peakBytes(), 1, tokens, tokens));
      expect(
          ErrorCode.OUT_OF_MEMORY,
          code(() -> Plan.chooseReshard(shard, options, 1, 1, tokens, tokens)));
    }
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
