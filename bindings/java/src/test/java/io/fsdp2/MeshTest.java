package io.fsdp2;

import static io.fsdp2.Checks.code;
import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;

/** Meshes of ranks that are threads. */
public final class MeshTest {
  private MeshTest() {}

  public static void main(String[] arguments) throws Exception {
    test("a mesh tells and reduces", MeshTest::aMeshTellsAndReduces);
    test("a rank that fails tells the others", MeshTest::aRankThatFailsTellsTheOthers);
    test("a mesh has a name for each dim or none", MeshTest::aMeshHasANameForEachDimOrNone);
  }

  private static void aMeshHasANameForEachDimOrNone() {
    MeshOptions.Builder grid = MeshOptions.builder().shape(1, 1, 1);
    for (String[] names : new String[][] {{"a"}, {"a", "b", "c", "d"}}) {
      IllegalArgumentException failure =
          expectThrown(IllegalArgumentException.class, () -> grid.names(names).build());
      expectContains("3 dims of the shape, found " + names.length, failure.getMessage());
    }
    expectThrown(IllegalArgumentException.class, () -> MeshOptions.builder().names("a").build());
    expect(3, grid.names("a", "b", "c").build().names().size());
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
            expect(ErrorCode.UNSUPPORTED, code(mesh::getDeviceMemory));
            DType dtype = mesh.chooseDtype();
            expect(true, dtype == DType.BF16 || dtype == DType.F32);
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

  private static void aRankThatFailsTellsTheOthers() throws Exception {
    onRanks(
        2,
        mesh -> {
          if (mesh.rank() == 1) {
            mesh.fail("its data is gone");
            return;
          }
          FsdpException failure = expectThrown(FsdpException.class, mesh::barrier);
          expect(ErrorCode.PEER_FAILED, failure.code());
          expectContains("its data is gone", failure.getMessage());
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
}
