package io.fsdp2;

import static io.fsdp2.Checks.collect;
import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;
import static io.fsdp2.CustomTest.net;
import static io.fsdp2.CustomTest.rows;

import java.util.List;

/** Forwards in Java that throw, or that wait for a rank that has failed. */
public final class FailingForwardTest {
  private FailingForwardTest() {}

  public static void main(String[] arguments) throws Exception {
    test(
        "an error in a forward callback reaches the caller", FailingForwardTest::anErrorInAForward);
    test(
        "want of memory in a forward is that of the call",
        FailingForwardTest::wantOfMemoryIsThatOfTheCall);
    test(
        "an error on one rank reaches the others",
        FailingForwardTest::anErrorOnOneRankReachesTheOthers);
    test(
        "a forward that waits for a failed rank has not failed",
        FailingForwardTest::aForwardThatWaitsHasNotFailed);
  }

  private static void anErrorInAForward() {
    IllegalStateException thrown = new IllegalStateException("enough, π");
    Error harsh = new StackOverflowError();
    try (Module module =
            Module.createCustom(
                "Failing",
                (self, inputs) -> {
                  inputs[0].add(1);
                  if (inputs.length == 1) {
                    throw thrown;
                  }
                  throw harsh;
                });
        Tensor x = Tensor.of(new float[] {1})) {
      FsdpException failure = expectThrown(FsdpException.class, () -> module.forward(x));
      expect(ErrorCode.CALLBACK, failure.code());
      expect(true, failure.getCause() == thrown);
      expectContains("enough, π", failure.getMessage());
      FsdpException again = expectThrown(FsdpException.class, () -> module.forward(x, x));
      expect(true, again.getCause() == harsh);
    }
    anOddExceptionReachesTheCaller(new IllegalStateException("e".repeat(3_000_000)), "eee");
    anOddExceptionReachesTheCaller(
        new IllegalStateException() {
          @Override
          public String toString() {
            throw new IllegalStateException("not now");
          }
        },
        "whose toString() fails");
  }

  private static void anOddExceptionReachesTheCaller(RuntimeException thrown, String told) {
    try (Module module =
            Module.createCustom(
                "Failing",
                (self, inputs) -> {
                  throw thrown;
                });
        Tensor x = Tensor.of(new float[] {1})) {
      FsdpException failure = expectThrown(FsdpException.class, () -> module.forward(x));
      expect(ErrorCode.CALLBACK, failure.code());
      expect(true, failure.getCause() == thrown);
      expectContains(told, failure.getMessage());
    }
  }

  private static void wantOfMemoryIsThatOfTheCall() {
    try (Module module =
            Module.createCustom(
                "Large", (self, inputs) -> List.of(Tensor.zeros(DType.F32, 1L << 50)));
        Tensor x = Tensor.of(new float[] {1})) {
      FsdpException failure = expectThrown(FsdpException.class, () -> module.forward(x));
      expect(ErrorCode.OUT_OF_MEMORY, failure.code());
      expect(true, failure.getCause() instanceof FsdpException);
    }
  }

  private static void anErrorOnOneRankReachesTheOthers() throws Exception {
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

  /** Rank 0 fails where a layer is gathered, for which rank 1 waits in the forward of the net. */
  private static void aForwardThatWaitsHasNotFailed() throws Exception {
    AllGatherExtension failing =
        new AllGatherExtension() {
          @Override
          public Tensor preAllGather(GatherInfo gather, Tensor chunk) {
            if (gather.shardRank() == 0) {
              throw new IllegalStateException("nothing to send");
            }
            return chunk;
          }

          @Override
          public void postAllGather(GatherInfo gather, Tensor pieces, Tensor chunks) {}
        };
    onRanks(
        2,
        mesh -> {
          ShardOptions units = ShardOptions.builder().wrap(Wrap.KINDS).wrapKinds("Linear").build();
          try (Module net =
                  net((self, inputs) -> List.of(inputs[0].linear(self.parameter("weight"))));
              Shard shard = Shard.create(net, mesh, units);
              Tensor x = rows(0)) {
            shard.unit("layer1").setAllGatherExtension(failing);
            FsdpException failure = expectThrown(FsdpException.class, () -> net.forward(x));
            boolean own = mesh.rank() == 0;
            expect(own ? ErrorCode.CALLBACK : ErrorCode.PEER_FAILED, failure.code());
            expectContains("nothing to send", failure.getMessage());
          }
        });
  }
}
