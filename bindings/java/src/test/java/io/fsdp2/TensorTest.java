package io.fsdp2;

import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.test;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** Tensors made of arrays and buffers, and what they look like. */
public final class TensorTest {
  private TensorTest() {}

  public static void main(String[] arguments) throws Exception {
    test("arrays go in and out", TensorTest::arraysGoInAndOut);
    test("arrays are shared without a copy", TensorTest::memoryIsShared);
    test("a tensor prints as its type and shape", TensorTest::aTensorPrints);
  }

  private static void arraysGoInAndOut() {
    try (TensorScope scope = TensorScope.open()) {
      expect(new int[] {1, -2}, Tensor.of(new int[] {1, -2}).toInts());
      expect(new long[] {5}, Tensor.of(new long[] {5}, 1).toLongs());
      expect(1.5, Tensor.scalar(1.5, DType.F64).getValue());
      Tensor matrix = Tensor.of(new float[] {1, 2, 3, 4, 5, 6}, 2, 3);
      expect(new long[] {2, 3}, matrix.getInfo().shape());
      expect(new float[] {1, 4, 2, 5, 3, 6}, matrix.transpose(0, 1).toFloats());
      ByteBuffer heap = ByteBuffer.allocate(24).order(ByteOrder.nativeOrder());
      matrix.read(heap);
      expect(6f, heap.getFloat(20));
      heap.putFloat(20, 60);
      matrix.write(heap);
      expect(60f, matrix.toFloats()[5]);
      expect(DType.F32, Tensor.fromBuffer(heap, DType.F32, 6).dtype());
      expectThrown(FsdpException.class, () -> Tensor.of(new float[5], 2, 3));
      expectThrown(IllegalArgumentException.class, matrix::toInts);
      expectThrown(FsdpException.class, () -> matrix.read(ByteBuffer.allocate(23)));
    }
  }

  private static void memoryIsShared() throws Exception {
    ByteBuffer memory = ByteBuffer.allocateDirect(16).order(ByteOrder.nativeOrder());
    try (Tensor tensor = Tensor.wrap(memory, DType.F32, 2, 2)) {
      memory.putFloat(12, 7);
      expect(7f, tensor.toFloats()[3]);
      ByteBuffer shared = tensor.share();
      shared.putFloat(0, 3);
      expect(3f, memory.getFloat(0));
      expectThrown(IllegalArgumentException.class, () -> Tensor.wrap(memory, DType.F32, 5));
      ByteBuffer heap = ByteBuffer.allocate(16);
      expectThrown(IllegalArgumentException.class, () -> Tensor.wrap(heap, DType.F32, 4));
      try (Tensor turned = tensor.transpose(0, 1)) {
        expectThrown(IllegalArgumentException.class, turned::share);
      }
    }
  }

  private static void aTensorPrints() {
    Tensor x = Tensor.of(new float[6], 2, 3);
    try (Tensor sum = x.sum()) {
      expect("Tensor[F32, [2, 3]] Tensor[F32, []]", x + " " + sum);
    }
    x.close();
    expect("Tensor[STALE_HANDLE]", x.toString());
  }
}
