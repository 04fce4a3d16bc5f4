package io.fsdp2;

import static io.fsdp2.Checks.collect;
import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.function.BinaryOperator;
import java.util.function.UnaryOperator;

/** What a program does itself in place of the library, what it keeps, and what it forgets. */
public final class OwnTest {
  private static final int STEPS = 6;
  private static final double PEAK = 0.1;
  private static final double MOMENTUM = 0.9;

  private OwnTest() {}

  public static void main(String[] arguments) throws Exception {
    test(
        "a program's own loss, schedule and optimizer train as the library's",
        OwnTest::ownPartsTrainAsTheLibrarys);
    test("an input gets its gradient through a sharded module", OwnTest::anInputGetsItsGradient);
    test(
        "an error deep inside a step reaches its caller on every rank",
        OwnTest::anErrorDeepInsideReachesEveryRank);
    test(
        "a parameter that a forward keeps is refused once it is freed",
        OwnTest::aKeptParameterIsRefused);
    test("what is forgotten takes no memory", OwnTest::whatIsForgottenTakesNoMemory);
  }

  /** x weight^T or, with a target, the mean square of how far that is off. */
  private static Module line() {
    Module line =
        Module.createCustom(
            "Line",
            ModuleOptions.builder().seed(7).build(),
            (self, inputs) -> {
              Tensor made = inputs[0].linear(self.parameter("weight"));
              return List.of(inputs.length == 1 ? made : made.sub(inputs[1]).pow(2).mean());
            });
    line.addParameter("weight", 3, 4);
    return line;
  }

  private static Tensor x(int rank) {
    return Tensor.of(new float[] {1, -2, 0.5f, rank, 2, rank, -1, 1}, 2, 4);
  }

  private static Tensor target() {
    return Tensor.of(new float[] {1, 0, -1, 0.5f, 2, 1}, 2, 3);
  }

  private static double[] trainByTheLibrary(Mesh mesh) {
    double[] losses = new double[STEPS];
    SgdOptions sgd = SgdOptions.builder().lr(PEAK).momentum(MOMENTUM).build();
    StepOptions falling = StepOptions.builder().schedule(Schedule.LINEAR).totalSteps(STEPS).build();
    try (Module line = line();
        Shard shard = Shard.create(line, mesh);
        Optimizer optimizer = Optimizer.createSgd(shard, sgd);
        Step step = Step.create(shard, optimizer, falling);
        TensorScope scope = TensorScope.open()) {
      for (int i = 0; i < STEPS; i++) {
        losses[i] = step.run(x(mesh.rank()), target()).loss();
      }
    }
    return losses;
  }

  private static double[] trainByHand(Mesh mesh) {
    double[] losses = new double[STEPS];
    try (Module line = line();
        Shard shard = Shard.create(line, mesh);
        TensorScope scope = TensorScope.open()) {
      Tensor weight = shard.getParameter(0, ParameterPart.LOCAL);
      Tensor velocity = weight.op("aten::zeros_like");
      for (int i = 0; i < STEPS; i++) {
        Tensor loss = line.forward(x(mesh.rank())).sub(target()).pow(2).mean();
        loss.backward();
        losses[i] = loss.getValue();
        try (TensorScope update = TensorScope.openWithoutGradients()) {
          velocity.op("aten::mul_.Scalar", MOMENTUM);
          velocity.op("aten::add_.Tensor", shard.getParameter(0, ParameterPart.LOCAL_GRAD));
          weight.op("aten::add_.Tensor", velocity, -PEAK * (1 - (double) i / STEPS));
        }
        shard.zeroGrad();
      }
    }
    mesh.allReduce(losses, Reduction.AVERAGE);
    return losses;
  }

  private static void ownPartsTrainAsTheLibrarys() throws Exception {
    onRanks(
        2,
        mesh -> {
          double[] expected = trainByTheLibrary(mesh);
          double[] found = trainByHand(mesh);
          expect(true, expected[STEPS - 1] < 0.8 * expected[0]);
          for (int i = 0; i < STEPS; i++) {
            double off = Math.abs(expected[i] - found[i]);
            expect(true, off < 1e-6, "step " + i + " is off by " + off);
          }
        });
  }

  private static void anInputGetsItsGradient() throws Exception {
    onRanks(
        2,
        mesh -> {
          try (Module line = line();
              Shard shard = Shard.create(line, mesh);
              TensorScope scope = TensorScope.open()) {
            Tensor x = x(mesh.rank()).setRequiresGrad(true);
            line.forward(x).sum().backward();
            float[] row = shard.getParameter(0, ParameterPart.FULL).sum(0).toFloats();
            for (int i = 0; i < 2; i++) {
              float[] found = x.getGrad().select(0, i).toFloats();
              for (int j = 0; j < row.length; j++) {
                expect(true, Math.abs(row[j] - found[j]) < 1e-6f);
              }
            }
          }
        });
  }

  /**
   * A module of the class Whole that returns what `then` makes of the output of its child "part".
   * That is of the class Part, and has a parameter "weight" of its own.
   */
  private static Module whole(BinaryOperator<Tensor> part, UnaryOperator<Tensor> then) {
    Module inner =
        Module.createCustom(
            "Part", (self, inputs) -> List.of(part.apply(inputs[0], self.parameter("weight"))));
    inner.addParameter("weight", 4);
    Module whole =
        Module.createCustom(
            "Whole", (self, inputs) -> List.of(then.apply(inner.forward(inputs[0]))));
    whole.addChild("part", inner);
    return whole;
  }

  private static ShardOptions partsAsUnits() {
    return ShardOptions.builder().wrap(Wrap.KINDS).wrapKinds("Part").build();
  }

  /** Doubles, and fails in backward where there is something to throw. */
  private static DifferentiableFunction doubling(RuntimeException thrown) {
    return new DifferentiableFunction() {
      @Override
      public List<Tensor> forward(FunctionContext context, Tensor[] inputs) {
        return List.of(inputs[0].mul(2));
      }

      @Override
      public Tensor[] backward(FunctionContext context, Tensor[] outputGradients) {
        if (thrown != null) {
          throw thrown;
        }
        return new Tensor[] {outputGradients[0].mul(2)};
      }
    };
  }

  private static void anErrorDeepInsideReachesEveryRank() throws Exception {
    onRanks(
        2,
        mesh -> {
          boolean own = mesh.rank() == 1;
          RuntimeException thrown = own ? new IllegalStateException("deep inside") : null;
          DifferentiableFunction doubles = doubling(thrown);
          try (Module whole =
                  whole(
                      (x, weight) ->
                          DifferentiableFunction.call("doubles", doubles, x.mul(weight)).get(0),
                      Tensor::sum);
              Shard shard = Shard.create(whole, mesh, partsAsUnits());
              Optimizer sgd = Optimizer.createSgd(shard, SgdOptions.builder().build());
              Step step = Step.create(shard, sgd);
              Tensor x = x(0)) {
            FsdpException failure = expectThrown(FsdpException.class, () -> step.run(x));
            expect(own ? ErrorCode.CALLBACK : ErrorCode.PEER_FAILED, failure.code());
            expectContains("backward of doubles", failure.getMessage());
            expectContains("deep inside", failure.getMessage());
            expect(thrown, failure.getCause());
          }
        });
    collect();
  }

  private static void aKeptParameterIsRefused() throws Exception {
    String title = "parameter 'part.weight' of unit 'part'";
    onRanks(
        2,
        mesh -> {
          Tensor[] kept = new Tensor[1];
          try (TensorScope scope = TensorScope.open();
              Module whole =
                  whole(
                      (x, weight) -> {
                        kept[0] = scope.add(weight.duplicate());
                        return x.mul(weight);
                      },
                      hidden -> hidden.mul(kept[0]).sum());
              Shard shard = Shard.create(whole, mesh, partsAsUnits())) {
            FsdpException inside =
                expectThrown(FsdpException.class, () -> whole.forward(x(mesh.rank())));
            expect(ErrorCode.CALLBACK, inside.code());
            expectContains(title, inside.getMessage());
            FsdpException outside = expectThrown(FsdpException.class, kept[0]::toFloats);
            expect(ErrorCode.WRONG_STATE, outside.code());
            expectContains(title, outside.getMessage());
          }
        });
    collect();
  }

  /** Bytes of this process that are in memory. */
  private static long resident() throws IOException {
    return 4096 * Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]);
  }

  private static void forget(long n) throws Exception {
    onRanks(
        1,
        mesh -> {
          Module whole = whole((x, weight) -> x.exp(), Tensor::sum);
          Shard.create(whole, mesh);
          Tensor x = Tensor.ones(DType.F32, n).setRequiresGrad(true);
          whole.forward(x).backward();
          x.getGrad();
          whole.forward(x); // its graph is dropped, and never used
        });
    collect();
  }

  private static void whatIsForgottenTakesNoMemory() throws Exception {
    long n = 9 << 20; // so large that the allocator gives its memory back at once
    for (int i = 0; i < 3; i++) {
      forget(n);
    }
    long before = resident();
    for (int i = 0; i < 5; i++) {
      forget(n);
    }
    long grown = resident() - before;
    long half = 5 * 4 * n / 2; // of what one tensor a round would take
    expect(true, grown < half, grown + " bytes more after 5 rounds");
  }
}
