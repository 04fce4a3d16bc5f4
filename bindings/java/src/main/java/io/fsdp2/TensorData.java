package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.RawJNI;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Objects;

/** How elements get into tensors and out of them. */
final class TensorData {
  private TensorData() {}

  /** To make memory that native code can see takes longer than to copy a few elements. */
  private static final ThreadLocal<Memory> OF_THREAD =
      ThreadLocal.withInitial(() -> new Memory(8192));

  private static final class Memory {
    private final ByteBuffer bytes;
    private final long address;

    Memory(int capacity) {
      bytes = ByteBuffer.allocateDirect(capacity);
      address = RawJNI.java_address(bytes);
    }

    static Memory of(long size) {
      Memory own = OF_THREAD.get();
      return size <= own.bytes.capacity() ? own : new Memory(length(size));
    }

    ByteBuffer first(long size) {
      return bytes.slice(0, (int) size).order(ByteOrder.nativeOrder());
    }
  }

  /** The length of one of Java's arrays or buffers, which has not more than an int can count. */
  private static int length(long bytes) {
    if (bytes > Integer.MAX_VALUE) {
      throw new IllegalArgumentException(
          "expected at most " + Integer.MAX_VALUE + " bytes at once, found " + bytes);
    }
    return (int) bytes;
  }

  /** For the length of a call. */
  private static ByteBuffer memory(long bytes) {
    return Memory.of(bytes).first(bytes);
  }

  private static long create(Memory memory, long size, int dtype, long[] shape) {
    long made = RawJNI.java_create_tensor(memory.address, size, dtype, shape);
    Reference.reachabilityFence(memory);
    return made;
  }

  private static long[] shapeOr(long[] shape, int length) {
    return shape.length == 0 ? new long[] {length} : shape;
  }

  static long create(float[] values, long[] shape) {
    long size = 4L * values.length;
    Memory memory = Memory.of(size);
    memory.first(size).asFloatBuffer().put(values);
    return create(memory, size, Raw.FSDP2_DTYPE_F32, shapeOr(shape, values.length));
  }

  static long create(double[] values, long[] shape) {
    long size = 8L * values.length;
    Memory memory = Memory.of(size);
    memory.first(size).asDoubleBuffer().put(values);
    return create(memory, size, Raw.FSDP2_DTYPE_F64, shapeOr(shape, values.length));
  }

  static long create(long[] values, long[] shape) {
    long size = 8L * values.length;
    Memory memory = Memory.of(size);
    memory.first(size).asLongBuffer().put(values);
    return create(memory, size, Raw.FSDP2_DTYPE_I64, shapeOr(shape, values.length));
  }

  static long create(int[] values, long[] shape) {
    long size = 4L * values.length;
    Memory memory = Memory.of(size);
    memory.first(size).asIntBuffer().put(values);
    return create(memory, size, Raw.FSDP2_DTYPE_I32, shapeOr(shape, values.length));
  }

  static long create(ByteBuffer bytes, DType dtype, long[] shape) {
    ByteBuffer direct = direct(bytes);
    long address = RawJNI.java_address(direct);
    long[] sizes = Objects.requireNonNull(shape, "shape"); // native code takes it as it is
    long made = RawJNI.java_create_tensor(address, direct.capacity(), dtype.number(), sizes);
    Reference.reachabilityFence(bytes);
    Reference.reachabilityFence(direct);
    return made;
  }

  /** The bytes between position and limit, in memory that native code can see. */
  private static ByteBuffer direct(ByteBuffer bytes) {
    ByteBuffer slice = bytes.slice();
    return slice.isDirect() ? slice : memory(slice.remaining()).put(slice).clear();
  }

  static long wrap(ByteBuffer bytes, DType dtype, long[] shape) {
    if (!bytes.isDirect() || bytes.isReadOnly()) {
      throw new IllegalArgumentException("expected a direct buffer that can be written");
    }
    long needed = bits(dtype) / 8;
    for (long size : shape) {
      needed = Math.multiplyExact(needed, size);
    }
    if (needed != bytes.remaining() || shape.length > Raw.FSDP2_MAX_DIMS) {
      throw new IllegalArgumentException(
          "expected a buffer of " + needed + " bytes, found " + bytes.remaining());
    }
    return RawJNI.java_share_buffer(bytes.slice(), dlpackCode(dtype), bits(dtype), shape);
  }

  /** DLPack's names of the types: a code and a number of bits. */
  private static int dlpackCode(DType dtype) {
    return switch (dtype) {
      case F32, F64, F16 -> 2;
      case BF16 -> 4;
      case U8 -> 1;
      case BOOL -> 6;
      default -> 0;
    };
  }

  private static int bits(DType dtype) {
    return switch (dtype) {
      case F64, I64 -> 64;
      case F32, I32 -> 32;
      case F16, BF16, I16 -> 16;
      case I8, U8, BOOL -> 8;
      case OTHER, KEEP ->
          throw new IllegalArgumentException("no type of elements in a buffer: " + dtype);
    };
  }

  static ByteBuffer share(Tensor tensor) {
    TensorInfo info = tensor.getInfo();
    if (!isRowMajor(info)) {
      throw new IllegalArgumentException(
          "expected a row-major tensor on the CPU, as contiguous() makes it");
    }
    long[] owner = new long[1];
    ByteBuffer shared = RawJNI.java_share_tensor(tensor.id(), info.bytes(), owner);
    Reference.reachabilityFence(tensor);
    long freed = owner[0];
    Handle.CLEANER.register(shared, () -> RawJNI.java_free_shared(freed));
    return shared.order(ByteOrder.nativeOrder());
  }

  private static boolean isRowMajor(TensorInfo info) {
    long stride = 1;
    for (int dim = info.shape().length - 1; dim >= 0; dim--) {
      if (info.shape()[dim] != 1 && info.strides()[dim] != stride) {
        return false;
      }
      stride *= Math.max(info.shape()[dim], 1);
    }
    return info.deviceType() == DeviceType.CPU && info.bytes() <= Integer.MAX_VALUE;
  }

  private static ByteBuffer elements(Tensor tensor, DType wanted) {
    TensorInfo info = tensor.getInfo();
    if (wanted != info.dtype()) {
      throw new IllegalArgumentException(
          "expected a tensor of " + wanted + ", found one of " + info.dtype());
    }
    ByteBuffer bytes = memory(info.bytes());
    read(tensor, bytes);
    return bytes;
  }

  static float[] floats(Tensor tensor) {
    ByteBuffer bytes = elements(tensor, DType.F32);
    float[] values = new float[bytes.capacity() / 4];
    bytes.asFloatBuffer().get(values);
    return values;
  }

  static double[] doubles(Tensor tensor) {
    ByteBuffer bytes = elements(tensor, DType.F64);
    double[] values = new double[bytes.capacity() / 8];
    bytes.asDoubleBuffer().get(values);
    return values;
  }

  static long[] longs(Tensor tensor) {
    ByteBuffer bytes = elements(tensor, DType.I64);
    long[] values = new long[bytes.capacity() / 8];
    bytes.asLongBuffer().get(values);
    return values;
  }

  static int[] ints(Tensor tensor) {
    ByteBuffer bytes = elements(tensor, DType.I32);
    int[] values = new int[bytes.capacity() / 4];
    bytes.asIntBuffer().get(values);
    return values;
  }

  static byte[] bytes(Tensor tensor) {
    DType dtype = tensor.dtype();
    if (bits(dtype) != 8) {
      throw new IllegalArgumentException("expected a tensor of bytes, found one of " + dtype);
    }
    byte[] values = new byte[length(tensor.getInfo().bytes())];
    read(tensor, ByteBuffer.wrap(values));
    return values;
  }

  static void read(Tensor tensor, ByteBuffer to) {
    if (to.isReadOnly()) {
      throw new IllegalArgumentException("expected a buffer that can be written");
    }
    ByteBuffer target = to.isDirect() ? to.slice() : memory(to.remaining());
    Raw.fsdp2_tensor_read(tensor.id(), target, target.capacity());
    Reference.reachabilityFence(tensor);
    if (!to.isDirect()) {
      to.slice().put(target);
    }
    Reference.reachabilityFence(to);
  }

  static void write(Tensor tensor, ByteBuffer from) {
    ByteBuffer source = direct(from);
    Raw.fsdp2_tensor_write(tensor.id(), source, source.capacity());
    Reference.reachabilityFence(tensor);
    Reference.reachabilityFence(source);
  }
}
