package io.fsdp2;

import static io.fsdp2.Checks.collect;
import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;
import static io.fsdp2.Runs.batches;
import static io.fsdp2.Runs.modelDirectory;
import static io.fsdp2.Runs.tokenFile;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.LongStream;

/** Units that are steered by hand, and functions that run inside them. */
public final class UnitTest {
  private UnitTest() {}

  public static void main(String[] arguments) throws Exception {
    Runs.read(arguments);
    test("settings and hooks of units", UnitTest::settingsAndHooksOfUnits);
    test("kept buffers are given back", UnitTest::keptBuffersAreGivenBack);
    test("units are made by hand", UnitTest::unitsAreMadeByHand);
    test("an extension carries every parameter", UnitTest::anExtensionCarriesEveryParameter);
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
              Batch batch = loader.next();
              Tensor positions = loader.getPositions();
              Tensor boundaries = loader.getBoundaries()) {
            expect(1, boundaries.shape().length);
            expect(false, loader.getImages().isPresent());
            expect(false, loader.getVideos().isPresent());
            steer(shard);
            Unit layer = shard.unit("model.layers.0");
            layer.setAllReduceHook(
                (unit, index, gradients) -> {
                  expect("model.layers.0", unit);
                  seen.incrementAndGet();
                  gradients.write(ByteBuffer.allocate((int) gradients.getInfo().bytes()));
                });
            module.forward(batch.tokens(), batch.labels(), positions).backward();
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
    layer.setAllocateMemoryFromProcessGroup(false);
    expect(false, layer.getSettings().allocateMemoryFromProcessGroup());
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
    shard.finalizeBackward();
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

  private static void keptBuffersAreGivenBack() throws Exception {
    ShardOptions options = ShardOptions.builder().keepBuffers(true).build();
    onRanks(
        2,
        mesh -> {
          try (Module module = Module.fromPretrained(modelDirectory);
              Shard shard = Shard.create(module, mesh, options);
              TensorScope scope = TensorScope.open()) {
            Tensor tokens = Tensor.of(new long[] {1, 2, 3, 4}, 1, 4);
            module.forward(tokens, tokens).backward();
            expect(true, shard.getStats().keptBytes() > 0);
            shard.releaseBuffers();
            expect(0L, shard.getStats().keptBytes());
          }
        });
  }

  private static void unitsAreMadeByHand() throws Exception {
    ShardOptions none = ShardOptions.builder().wrap(Wrap.NONE).build();
    ShardOptions layers =
        ShardOptions.builder().wrap(Wrap.KINDS).wrapKinds("LlamaDecoderLayer").build();
    onRanks(
        2,
        mesh -> {
          try (Module module = Module.fromPretrained(modelDirectory)) {
            Shard.makeUnit(module, mesh, ShardOptions.builder().build(), "lm_head");
            Shard.makeUnits(module, mesh, layers);
            try (Shard shard = Shard.create(module, mesh, none)) {
              expect("", shard.getUnitName(0));
              expect(
                  List.of("", "lm_head", "model.layers.0", "model.layers.1"),
                  LongStream.range(0, shard.getUnitCount())
                      .mapToObj(shard::getUnitName)
                      .sorted()
                      .toList());
              shard.castParameters(DType.BF16);
              try (Tensor local = shard.getParameter(0, ParameterPart.LOCAL)) {
                expect(DType.BF16, local.dtype());
              }
            }
          }
        });
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
    AllGatherExtension nothing =
        new AllGatherExtension() {
          @Override
          public Tensor preAllGather(GatherInfo gather, Tensor chunk) {
            return null;
          }

          @Override
          public void postAllGather(GatherInfo gather, Tensor pieces, Tensor chunks) {}
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
            shard.reset();
            shard.unit("model.layers.0").setAllGatherExtension(nothing);
            FsdpException refused =
                expectThrown(FsdpException.class, () -> module.forward(tokens, tokens));
            expectContains("expected a tensor to send, found null", refused.getMessage());
          }
        });
    collect();
    expect(true, sent.get() > 0);
  }
}
