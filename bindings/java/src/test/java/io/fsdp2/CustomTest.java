package io.fsdp2;

import static io.fsdp2.Checks.code;
import static io.fsdp2.Checks.collect;
import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;

import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;

/** Modules whose forward is written in Java. */
public final class CustomTest {
  private CustomTest() {}

  public static void main(String[] arguments) throws Exception {
    test("a custom module trains sharded on 2 ranks", CustomTest::aCustomModuleTrainsSharded);
    test("modules chosen by path run again in backward", CustomTest::modulesChosenByPathRunAgain);
    test("a forward changes its buffers", CustomTest::aForwardChangesItsBuffers);
    test("tied parameters are one", CustomTest::tiedParametersAreOne);
    test("children end with their module", CustomTest::childrenEndWithTheirModule);
    test("what a callback was lent ends with it", CustomTest::whatACallbackWasLentEnds);
    test("a forward gives parameters, inputs and constants", CustomTest::aForwardGivesAnything);
    test("a forward that gives nothing is told so", CustomTest::aForwardThatGivesNothing);
    test("a forward has any number of tensors", CustomTest::aForwardHasAnyNumberOfTensors);
    test("the collector may come at any time", CustomTest::theCollectorMayComeAtAnyTime);
  }

  /** A model of two linear layers, whose loss is the mean square of its output. */
  static Module net(Forward layerForward) {
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

  static Tensor rows(int rank) {
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

  /** A module that computes gelu(input * w), and counts how often it does. */
  private static Module counting(AtomicInteger runs) {
    Module part =
        Module.createCustom(
            "Part",
            (self, inputs) -> {
              runs.incrementAndGet();
              return List.of(inputs[0].mul(self.parameter("w")).gelu());
            });
    part.addParameter("w", 1);
    return part;
  }

  private static void modulesChosenByPathRunAgain() {
    AtomicInteger firstRuns = new AtomicInteger();
    AtomicInteger secondRuns = new AtomicInteger();
    Module first = counting(firstRuns);
    Module second = counting(secondRuns);
    try (Module whole =
            Module.createCustom(
                "Whole", (self, inputs) -> List.of(second.forward(first.forward(inputs[0]))));
        TensorScope scope = TensorScope.open()) {
      whole.addChild("first", first);
      whole.addChild("second", second);
      FsdpException missing =
          expectThrown(
              FsdpException.class, () -> whole.checkpointActivationsByPath("first", "third"));
      expect(ErrorCode.NOT_FOUND, missing.code());
      expectContains("'third'", missing.getMessage());
      expect(ErrorCode.INVALID_ARGUMENT, code(() -> whole.checkpointActivationsByPath()));
      whole.checkpointActivationsByPath("second");
      whole.forward(Tensor.of(new float[] {1}, 1)).sum().backward();
      expect(1, firstRuns.get());
      expect(2, secondRuns.get());
    }
  }

  private static void aForwardChangesItsBuffers() throws Exception {
    Forward counting =
        (self, inputs) -> {
          self.buffer("count").op("aten::add_.Tensor", 1);
          return List.of(inputs[0].mul(self.parameter("weight")).mul(self.buffer("table")).sum());
        };
    onRanks(
        2,
        mesh -> {
          try (Module module = Module.createCustom("Counts", counting);
              TensorScope scope = TensorScope.open()) {
            module.addParameter("weight", 1);
            module.addBuffer("count", Tensor.of(new float[] {5}));
            module.addBuffer("table", Tensor.of(new float[] {0.5f}), false);
            try (Shard shard = Shard.create(module, mesh);
                State state = Checkpoint.of(shard).getState(false)) {
              module.forward(Tensor.of(new float[] {1}));
              module.forward(Tensor.of(new float[] {2}));
              expect(7.0, module.getBuffer("count").getValue());
              expect(0.5, module.getBuffer("table").getValue());
              expect(ErrorCode.NOT_FOUND, code(() -> module.getBuffer("weight")));
              Set<String> names = new HashSet<>();
              for (long i = 0; i < state.getCount(); i++) {
                names.add(state.getName(i));
              }
              expect(true, names.contains("model.count") && !names.contains("model.table"));
            }
          }
        });
  }

  private static void tiedParametersAreOne() throws Exception {
    onRanks(
        2,
        mesh -> {
          Module head =
              Module.createCustom(
                  "Head", (self, inputs) -> List.of(inputs[0].mul(self.parameter("weight")).sum()));
          head.addParameter("weight", 4);
          try (Module tied =
                  Module.createCustom(
                      "Tied", (self, inputs) -> List.of(head.forward(self.parameter("embed"))));
              TensorScope scope = TensorScope.open()) {
            tied.addParameter("embed", 4);
            tied.addChild("head", head);
            tied.tieParameter("head.weight", "embed");
            expect(1L, tied.getParameterCount());
            expect("head.weight", tied.getParameterName(0, 1));
            expect(ErrorCode.NOT_FOUND, code(() -> tied.tieParameter("head.weight", "none")));
            try (Shard shard = Shard.create(tied, mesh)) {
              tied.forward().backward();
              // The gradient is that of w^2: both places count.
              expect(
                  shard.getParameter(0, ParameterPart.FULL).mul(2).toFloats(),
                  shard.getParameter(0, ParameterPart.FULL_GRAD).toFloats());
            }
          }
        });
  }

  /** At once, and no sooner than the last object that runs them. */
  private static void childrenEndWithTheirModule() throws Exception {
    Forward linear = (self, inputs) -> List.of(inputs[0].linear(self.parameter("weight")));
    Module inner = net(linear);
    Module outer =
        Module.createCustom("Outer", (self, inputs) -> List.of(inner.forward(inputs[0])));
    outer.addChild("inner", inner);
    Mesh mesh =
        Mesh.create(MeshOptions.builder().rendezvous("thread://one").rank(0).worldSize(1).build());
    Shard shard = Shard.create(outer, mesh);
    Optimizer sgd = Optimizer.createSgd(shard, SgdOptions.builder().build());
    Step step = Step.create(shard, sgd);
    outer.close();
    mesh.close();
    shard.close();
    sgd.close();
    try (Tensor x = rows(0)) {
      step.run(x);
    }
    step.close();
    expect(ErrorCode.STALE_HANDLE, code(inner::zeroGrad));
    expect(0L, FsdpRuntime.liveHandles());
  }

  private static void whatACallbackWasLentEnds() {
    Tensor[] lent = new Tensor[2];
    try (Module module =
            Module.createCustom(
                "Keeping",
                (self, inputs) -> {
                  lent[0] = inputs[0];
                  lent[1] = inputs[0].add(1);
                  lent[0].close();
                  return List.of(lent[1].mul(2));
                });
        Tensor x = Tensor.of(new float[] {1})) {
      module.forward(x).close();
      expect(ErrorCode.STALE_HANDLE, code(lent[0]::getInfo));
      expect(ErrorCode.STALE_HANDLE, code(lent[1]::getInfo));
      lent[0].close();
      lent[1].close();
    }
  }

  private static void aForwardGivesAnything() {
    Tensor constant = Tensor.of(new float[] {9});
    try (Module module =
            Module.createCustom(
                "Mixed",
                (self, inputs) -> {
                  Tensor made = inputs[0].add(1);
                  return List.of(inputs[0], self.parameter("weight"), made, made, constant);
                });
        Tensor x = Tensor.of(new float[] {1})) {
      ParameterOptions ones = ParameterOptions.builder().init(Init.ONES).build();
      module.addParameter("weight", ones, 1);
      float[] values = {1, 1, 2, 2, 9};
      List<Tensor> outputs = module.forwardForAll(x);
      for (int i = 0; i < values.length; i++) {
        expect(new float[] {values[i]}, outputs.get(i).toFloats());
        outputs.get(i).close();
      }
      expectThrown(IllegalArgumentException.class, () -> module.forward(x));
    }
    constant.close();
  }

  private static FsdpException refusal(Forward forward) {
    try (Module module = Module.createCustom("Refused", forward);
        Tensor x = Tensor.of(new float[] {1})) {
      return expectThrown(FsdpException.class, () -> module.forward(x));
    }
  }

  /** And of what it gives beside what cannot be given, no handle is left. */
  private static void aForwardThatGivesNothing() {
    Tensor closed = Tensor.of(new float[] {9});
    closed.close();
    String nothing = refusal((self, inputs) -> null).getMessage();
    expectContains("expected outputs, found null", nothing);
    String none = refusal((self, inputs) -> Arrays.asList(inputs[0], null)).getMessage();
    expectContains("expected tensors as outputs, found null at 1", none);
    FsdpException stale =
        refusal(
            (self, inputs) -> {
              Tensor made = inputs[0].add(1);
              return List.of(inputs[0], made, made, closed);
            });
    expect(ErrorCode.STALE_HANDLE, ((FsdpException) stale.getCause()).code());
    expect(0L, FsdpRuntime.liveHandles());
  }

  /** Few travel otherwise than many, in and out; and a forward inside leaves them as they are. */
  private static void aForwardHasAnyNumberOfTensors() {
    try (Module one = Module.createLayer("ReLU");
        Tensor x = Tensor.of(new float[] {1, 2})) {
      for (int count : new int[] {0, 1, 4, 5, 64}) {
        Module inner = Module.createCustom("Inner", (self, inputs) -> List.of(inputs[0].add(1)));
        try (Module sums =
            Module.createCustom(
                "Sums",
                (self, inputs) -> {
                  expect(count, inputs.length);
                  expect(130, self.parameters().size());
                  Tensor sum = inner.forward(self.parameter("p129"));
                  for (Tensor input : inputs) {
                    sum = sum.add(input);
                  }
                  return List.of(sum);
                })) {
          for (int i = 0; i < 130; i++) {
            ParameterOptions zeros = ParameterOptions.builder().init(Init.ZEROS).build();
            sums.addParameter("p" + i, zeros, 2);
          }
          sums.addChild("inner", inner);
          Tensor[] inputs = new Tensor[count];
          Arrays.fill(inputs, x);
          try (Tensor sum = sums.forward(inputs);
              Tensor plain = sum.detach()) {
            expect(new float[] {1 + count, 1 + 2 * count}, plain.toFloats());
          }
        }
        try (Module copies =
            Module.createCustom(
                "Copies",
                (self, inputs) -> List.of(inputs.length == 0 ? new Tensor[] {x} : inputs))) {
          Tensor[] inputs = new Tensor[count];
          Arrays.fill(inputs, x);
          if (count > 1) {
            IllegalArgumentException refused =
                expectThrown(IllegalArgumentException.class, () -> copies.forward(inputs));
            expectContains("found " + count, refused.getMessage());
          }
          List<Tensor> all = copies.forwardForAll(inputs);
          expect(Math.max(count, 1), all.size());
          all.forEach(Tensor::close);
        }
      }
      Tensor closed = x.duplicate();
      closed.close();
      expect(ErrorCode.STALE_HANDLE, code(() -> one.forward(closed)));
      TensorScope scope = TensorScope.open();
      Tensor inScope = one.forward(x);
      scope.close();
      expect(ErrorCode.STALE_HANDLE, code(inScope::getInfo));
    }
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
}
