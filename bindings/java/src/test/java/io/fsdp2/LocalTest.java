package io.fsdp2;

import static io.fsdp2.Checks.code;
import static io.fsdp2.Checks.collect;
import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.test;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;

/** What needs no second rank: errors, options, tensors, operators, ownership. */
public final class LocalTest {
  private LocalTest() {}

  public static void main(String[] arguments) throws Exception {
    test("versions agree", LocalTest::versionsAgree);
    test("the matmul precision can be chosen", LocalTest::theMatmulPrecisionCanBeChosen);
    test("memory is kept on request", LocalTest::memoryIsKeptOnRequest);
    test("the engine of products is chosen", LocalTest::theEngineOfProductsIsChosen);
    test("a failed call gives code, class and message", LocalTest::aFailedCallGivesItsRecord);
    test("paths reach the library in UTF-8", LocalTest::pathsReachTheLibraryInUtf8);
    test("options default as the library's", LocalTest::optionsDefaultAsTheLibrarys);
    test("a closed object refuses politely", LocalTest::aClosedObjectRefusesPolitely);
    test("dropping in any order leaves no live handle", LocalTest::droppingInAnyOrder);
    test("what nobody closes ends with the collector", LocalTest::whatNobodyClosesEnds);
    test("forgotten tensors do not pile up", LocalTest::forgottenTensorsDoNotPileUp);
    test("an operator by name with autograd", LocalTest::anOperatorByNameWithAutograd);
    test(
        "a wrong argument of an operator quotes the schema",
        LocalTest::aWrongArgumentQuotesTheSchema);
    test("random numbers follow from the generator", LocalTest::randomNumbersFollow);
    test("a profile is a table and a trace", LocalTest::aProfileIsATableAndATrace);
    test("a profile ends with its block", LocalTest::aProfileEndsWithItsBlock);
    test("text becomes tokens and comes back", LocalTest::textBecomesTokens);
    test("a mixture takes windows by weight", LocalTest::aMixtureTakesWindowsByWeight);
    test("an operator gives all its results", LocalTest::anOperatorGivesAllItsResults);
    test("a scope ends what was made in it", LocalTest::aScopeEndsWhatWasMadeInIt);
    test("a scope without gradients records none", LocalTest::aScopeWithoutGradients);
    test("a scope ends the scopes within it", LocalTest::aScopeEndsTheScopesWithinIt);
    test("a scope that has ended ends nothing", LocalTest::aScopeThatHasEnded);
    test("nothing crashes on odd sizes", LocalTest::nothingCrashesOnOddSizes);
  }

  private static void versionsAgree() {
    expect(FsdpRuntime.builtFor(), FsdpRuntime.version());
    expectContains("version: ", FsdpRuntime.describe());
  }

  /** Whatever the locale, which Java has its own paths by. */
  private static void pathsReachTheLibraryInUtf8() {
    String path = "/nowhere/d\u00e9\ud83d\ude00";
    FsdpException failure = expectThrown(FsdpException.class, () -> Checkpoint.find(path));
    expect(ErrorCode.NOT_FOUND, failure.code());
    expectContains(path + ":", failure.getMessage());
  }

  private static void theMatmulPrecisionCanBeChosen() {
    FsdpRuntime.setMatmulPrecision(MatmulPrecision.HIGH_ALWAYS);
    expectContains("matmul_precision: high-always", FsdpRuntime.describe());
    FsdpRuntime.setMatmulPrecision(MatmulPrecision.HIGHEST);
    expectContains("matmul_precision: highest", FsdpRuntime.describe());
  }

  private static void memoryIsKeptOnRequest() {
    FsdpRuntime.keepMemory(true);
    expectContains("kept_memory: 0 bytes", FsdpRuntime.describe());
    FsdpRuntime.keepMemory(false);
    expectContains("kept_memory: off", FsdpRuntime.describe());
  }

  private static void theEngineOfProductsIsChosen() {
    FsdpRuntime.setDeterministic(true);
    FsdpRuntime.setProductEngine(ProductEngine.ONEDNN);
    expectContains("oneDNN (set)", FsdpRuntime.describe());
    FsdpRuntime.setProductEngine(ProductEngine.AUTO);
    FsdpRuntime.setDeterministic(false);
  }

  private static void aFailedCallGivesItsRecord() {
    FsdpException failure =
        expectThrown(FsdpException.class, () -> Module.fromPretrained("/no/such/model"));
    expect(ErrorCode.NOT_FOUND, failure.code());
    expect(ErrorClass.UNAVAILABLE, failure.errorClass());
    expect(-1, failure.rank());
    expect("fsdp2_module_from_pretrained", failure.function());
    expectContains("/no/such/model", failure.getMessage());
    expect(null, failure.getCause());
    expectThrown(NullPointerException.class, () -> Module.createCustom("None", null));
    FsdpException missing =
        expectThrown(FsdpException.class, () -> Module.fromPretrained((String) null));
    expect(ErrorCode.NULL_ARGUMENT, missing.code());
  }

  private static void optionsDefaultAsTheLibrarys() {
    AdamwOptions adamw = AdamwOptions.builder().lr(7).build();
    expect(7.0, adamw.lr());
    expect(0.999, adamw.beta2());
    expect(0.01, adamw.weightDecay());
    expect(100, StepOptions.builder().build().maxSkipsInRow());
    expect(600000L, MeshOptions.builder().build().timeoutMs());
    expect(-1, MeshOptions.builder().build().rank());
    expect(2.0, PlanOptions.builder().build().optimizerStates());
    expect(64, GenerateOptions.builder().build().maxNewTokens());
    expect(1.0, InferOptions.builder().build().temperature());
    expect(0.02, ParameterOptions.builder().build().std());
    expect(Reshard.AUTO, ShardOptions.builder().build().reshardAfterForward());
    MeshOptions.Builder mesh = MeshOptions.builder();
    ShardOptions.Builder shard = ShardOptions.builder();
    Shard.applyStrategy("HYBRID_SHARD_ZERO2", 2, mesh, shard);
    expect(2L, mesh.build().fsdpSize());
    expect(Reshard.NEVER, shard.build().reshardAfterForward());
  }

  private static void aClosedObjectRefusesPolitely() {
    Tensor tensor = Tensor.of(new float[] {1, 2});
    tensor.close();
    tensor.close();
    FsdpException failure = expectThrown(FsdpException.class, tensor::getInfo);
    expect(ErrorCode.STALE_HANDLE, failure.code());
    expectThrown(FsdpException.class, () -> tensor.add(1));
    Module module = constant();
    module.close();
    module.close();
    expectThrown(FsdpException.class, () -> module.forward());
    TensorScope scope = TensorScope.open();
    Tensor inside = Tensor.of(new float[] {1});
    scope.close();
    inside.close();
    expectThrown(FsdpException.class, inside::getValue);
  }

  private static Module constant() {
    Module module = Module.createCustom("Constant", (self, inputs) -> self.parameters());
    module.addParameter("value", 2);
    return module;
  }

  private static void droppingInAnyOrder() throws Exception {
    Random random = new Random(1);
    for (int round = 0; round < 20; round++) {
      MeshOptions alone = MeshOptions.builder().rank(0).worldSize(1).build();
      Mesh mesh = Mesh.create(alone);
      Module module = constant();
      Shard shard = Shard.create(module, mesh);
      Optimizer optimizer = Optimizer.createSgd(shard, SgdOptions.builder().build());
      List<AutoCloseable> objects = new ArrayList<>();
      Collections.addAll(objects, mesh, module, shard, optimizer);
      objects.add(Step.create(shard, optimizer));
      objects.add(State.create(mesh));
      objects.add(shard.duplicate());
      objects.add(shard.getMesh());
      Collections.shuffle(objects, random);
      for (AutoCloseable object : objects) {
        object.close();
      }
    }
  }

  private static void whatNobodyClosesEnds() throws Exception {
    for (int i = 0; i < 1000; i++) {
      Tensor.of(new float[] {i}).close(); // whose guard serves the next one
      Tensor.of(new float[] {i});
      constant();
    }
    for (int i = 0; i < 1000 && FsdpRuntime.liveHandles() > 0; i++) {
      System.gc();
      Thread.sleep(20);
    }
    expect(0L, FsdpRuntime.liveHandles());
  }

  /** 3 GiB, and as much in buffers on the way, of which Java sees a few bytes. */
  private static void forgottenTensorsDoNotPileUp() throws Exception {
    float[] values = new float[1 << 20];
    long before = MemoryWatch.residentBytes();
    long peak = 0;
    for (int i = 0; i < 768; i++) {
      Tensor.of(values);
      if (i % 32 == 31) { // seldom, because looking makes garbage, too
        peak = Math.max(peak, MemoryWatch.residentBytes() - before);
      }
    }
    expect(true, before > 0 && peak < 4L << 30, "grown by " + (peak >> 20) + " MiB");
    collect();
  }

  private static void anOperatorByNameWithAutograd() {
    try (TensorScope scope = TensorScope.open()) {
      Tensor x = Tensor.of(new float[] {1, 2, 3, 4}, 2, 2).setRequiresGrad(true);
      Tensor weight = Tensor.of(new float[] {1, 0, 0, 2}, 2, 2);
      Operator.call("aten::sum", Operator.call("aten::linear", x, weight)).backward();
      expect(new float[] {1, 2, 1, 2}, x.getGrad().toFloats());
      Tensor y = x.matmul(weight).mul(2).add(x).sum();
      Tensor.runBackward(List.of(y), null, false);
      expect(new float[] {4, 7, 4, 7}, x.getGrad().toFloats());
      expect("aten::relu(Tensor self) -> Tensor", Operator.getSchema("aten::relu"));
      expect(ErrorCode.NOT_FOUND, code(() -> Operator.call("aten::no_such_operator", x)));
    }
  }

  private static float[] draw(Generator generator) {
    return Operator.call("aten::randn.generator", new long[] {4}, generator).toFloats();
  }

  private static void randomNumbersFollow() {
    try (TensorScope scope = TensorScope.open();
        Generator a = Generator.create(7);
        Generator b = Generator.create(7);
        Generator other = Generator.create(8)) {
      expect(draw(a), draw(b));
      other.setState(a.getState());
      try (Generator again = other.duplicate()) {
        expect(draw(a), draw(again));
      }
      Tensor none = Tensor.of(new float[] {1});
      expect(ErrorCode.INVALID_ARGUMENT, code(() -> a.setState(none)));
    }
  }

  private static void aProfileIsATableAndATrace() throws Exception {
    expect(ErrorCode.NOT_FOUND, code(Profile::describe));
    Path trace = Files.createTempDirectory("fsdp2-profile").resolve("trace.json");
    try (Tensor x = Tensor.of(new float[] {1})) {
      try (Profile profile = Profile.start()) {
        x.relu().close();
      }
      expectContains("\naten::relu ", Profile.describe());
      try (Profile profile = Profile.start(trace)) {
        x.relu().close();
      }
    }
    expectContains("\"aten::relu\"", Files.readString(trace));
    expect(ErrorCode.IO, code(() -> Profile.start(trace.resolve("no")).close()));
  }

  private static void aProfileEndsWithItsBlock() {
    for (String none : List.of("", "a".repeat(1 << 16))) {
      expect(ErrorCode.INVALID_ARGUMENT, code(() -> Profile.start(Path.of(none)).close()));
    }
    try (Profile profile = Profile.start()) {
      expect(ErrorCode.WRONG_STATE, code(Profile::start));
      profile.close();
    }
  }

  private static void textBecomesTokens() {
    try (Tokenizer bytes = Tokenizer.bytes();
        Tokenizer other = bytes.duplicate()) {
      expect(new TokenizerInfo(false, 256, 0), bytes.getInfo());
      long[] tokens = other.encode("a\u00e9", true);
      expect("[97, 195, 169]", Arrays.toString(tokens));
      expect("a\u00e9", bytes.decode(tokens, false));
      expect("[98, 0]", Arrays.toString(bytes.encodeRecord("{\"text\": \"b\"}")));
      expect(ErrorCode.CORRUPT_DATA, code(() -> bytes.encodeRecord("{")));
      try (Prompt prompt = bytes.encodePrompt("{\"prompt\": \"b\"}", null, null)) {
        expect("[98]", Arrays.toString(prompt.tokens()));
        expect(0, prompt.visionInputs().length);
      }
      expect(
          ErrorCode.CORRUPT_DATA, code(() -> bytes.encodePrompt("{\"messages\": []}", null, null)));
    }
    expect(ErrorCode.NOT_FOUND, code(() -> Tokenizer.open("/no/such/tokenizer.json")));
  }

  private static void aMixtureTakesWindowsByWeight() throws Exception {
    Path directory = Files.createTempDirectory("fsdp2-mixture");
    String first = Files.writeString(directory.resolve("first"), "aabbccd").toString();
    String second = Files.writeString(directory.resolve("second"), "xxyyz").toString();
    LoaderOptions options =
        LoaderOptions.builder()
            .format(TokenFormat.BYTES)
            .sequenceLength(2)
            .globalBatch(4)
            .vocabSize(256)
            .readAhead(2)
            .build();
    String[] paths = {first, second};
    try (Mesh mesh = Mesh.create();
        Loader loader = Loader.openMixture(mesh, paths, new double[] {3, 1}, options)) {
      expect(new LoaderInfo(5, 2, 0, 0, 0), loader.getInfo());
      Batch batch = loader.next();
      try (Tensor tokens = batch.tokens();
          Tensor labels = batch.labels()) {
        expect("[97, 97, 98, 98, 120, 120, 99, 99]", Arrays.toString(tokens.toLongs()));
      }
      expect(
          ErrorCode.INVALID_ARGUMENT,
          code(() -> Loader.openMixture(mesh, paths, new double[] {3, 0}, options)));
    }
  }

  private static void aWrongArgumentQuotesTheSchema() {
    try (Tensor x = Tensor.of(new float[] {1})) {
      FsdpException failure =
          expectThrown(FsdpException.class, () -> Operator.call("aten::relu", x, "text"));
      expect(ErrorCode.INVALID_ARGUMENT, failure.code());
      expectContains("aten::relu(Tensor self) -> Tensor", failure.getMessage());
      expectThrown(
          IllegalArgumentException.class, () -> Operator.call("aten::relu", new StringBuilder()));
    }
  }

  private static void anOperatorGivesAllItsResults() {
    try (TensorScope scope = TensorScope.open()) {
      Tensor x = Tensor.of(new double[] {3, 1, 2});
      List<Object> sorted = Operator.callForAll("aten::sort", x);
      expect(new double[] {1, 2, 3}, ((Tensor) sorted.get(0)).toDoubles());
      expect(new long[] {1, 2, 0}, ((Tensor) sorted.get(1)).toLongs());
      Tensor many = Tensor.zeros(DType.F32, 40);
      expect(40, Operator.callForAll("aten::unbind.int", many).size());
      expect(List.of(3.0), Operator.callForAll("aten::item", x.max()));
      expect(ErrorCode.BUFFER_TOO_SMALL, code(() -> Operator.call("aten::sort", x)));
      expectThrown(IllegalArgumentException.class, () -> Operator.call("aten::item", x.max()));
      Tensor joined = Operator.call("aten::cat", new Tensor[] {x, x}, 0);
      expect(new long[] {6}, joined.shape());
      expect(2.0, x.mean().getValue());
      expect(new long[] {1000, 3}, Tensor.zeros(DType.I64, 1000, 3).shape());
      long[] longList = new long[2000];
      expectThrown(FsdpException.class, () -> x.view(longList));
    }
  }

  private static void aScopeEndsWhatWasMadeInIt() {
    Tensor x = Tensor.of(new float[] {1, 2});
    Tensor kept;
    try (TensorScope outer = TensorScope.open()) {
      Tensor middle;
      try (TensorScope inner = TensorScope.open()) {
        middle = inner.keep(x.add(1).mul(2));
        expect(x, inner.keep(x));
      }
      expect(new float[] {4, 6}, middle.toFloats());
      kept = outer.keep(middle);
      outer.add(x);
    }
    expect(1L, FsdpRuntime.liveHandles());
    expect(new float[] {4, 6}, kept.toFloats());
    kept.close();
  }

  private static void aScopeWithoutGradients() {
    try (TensorScope scope = TensorScope.openWithoutGradients()) {
      Tensor x = Tensor.of(new float[] {1}).setRequiresGrad(true);
      expect(false, x.mul(2).getInfo().requiresGrad());
      try (TensorScope inner = TensorScope.open()) {
        expect(false, x.mul(2).getInfo().requiresGrad());
      }
    }
  }

  private static void aScopeEndsTheScopesWithinIt() {
    Tensor inside;
    try (TensorScope outer = TensorScope.open()) {
      TensorScope.open();
      inside = Tensor.of(new float[] {1});
    }
    expect(0L, FsdpRuntime.liveHandles());
    inside.close();
    Tensor.of(new float[] {1}).close();
  }

  /** By the time that it is closed again, another scope may be open. */
  private static void aScopeThatHasEnded() {
    TensorScope ended = TensorScope.open();
    TensorScope inner = TensorScope.open();
    ended.close();
    Tensor inside;
    try (TensorScope scope = TensorScope.openWithoutGradients()) {
      ended.close();
      inner.close();
      inside = Tensor.of(new float[] {1}).setRequiresGrad(true);
      expect(false, inside.add(1).getInfo().requiresGrad());
    }
    expect(ErrorCode.STALE_HANDLE, code(inside::getInfo));
  }

  private static void nothingCrashesOnOddSizes() throws Exception {
    ByteBuffer memory = ByteBuffer.allocateDirect(16);
    try (TensorScope scope = TensorScope.open()) {
      Tensor none = Tensor.of(new float[0]);
      expect(0, none.toFloats().length);
      expect(0, none.share().remaining());
      expect(0, Tensor.wrap(ByteBuffer.allocateDirect(0), DType.F32, 0).toFloats().length);
      expectThrown(FsdpException.class, () -> Tensor.wrap(memory, DType.F32, -2, -2));
      expectThrown(FsdpException.class, () -> Tensor.of(new float[1], -1));
      expectThrown(FsdpException.class, () -> Tensor.of(new float[1], new long[17]));
      expectThrown(
          IllegalArgumentException.class, () -> Tensor.wrap(memory, DType.F32, new long[17]));
      expectThrown(FsdpException.class, () -> Tensor.fromBuffer(memory, DType.OTHER, 4));
      expectThrown(
          NullPointerException.class, () -> Tensor.fromBuffer(memory, DType.F32, (long[]) null));
      expectThrown(IllegalArgumentException.class, () -> none.op("aten::relu\0"));
      Tensor wide = Tensor.of(new float[1]).op("aten::expand", new long[] {1L << 40});
      expectThrown(IllegalArgumentException.class, wide::toFloats);
      Tensor flags = Tensor.fromBuffer(ByteBuffer.allocate(1), DType.U8, 1);
      expectThrown(
          IllegalArgumentException.class, flags.op("aten::expand", new long[] {1L << 40})::toBytes);
      expectThrown(NullPointerException.class, () -> Operator.call(null, none));
      expectThrown(FsdpException.class, () -> Operator.call("aten::relu", (Object) null));
      expect(new byte[] {1, 0}, Tensor.of(new int[] {3, 0}).to(DType.BOOL).toBytes());
    }
  }
}
