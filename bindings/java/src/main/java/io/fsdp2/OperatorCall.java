package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.RawJNI;
import java.lang.ref.Reference;
import java.lang.reflect.Array;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Lays arguments out as C's fsdp2_value, in memory that a thread uses again and again. */
final class OperatorCall {
  private static final int VALUE = 48;
  private static final int INTEGER = 8;
  private static final int NUMBER = 16;
  private static final int TENSOR = 24;
  private static final int DATA = 32;
  private static final int COUNT = 40;
  private static final int ROOM_FOR_RESULTS = 16;
  private static final ThreadLocal<OperatorCall> OF_THREAD =
      ThreadLocal.withInitial(() -> new OperatorCall(8192));

  /** A name in C's memory. */
  private static final class Name {
    private static final int MOST_KNOWN = 1024;
    private static final Map<String, Name> KNOWN = new ConcurrentHashMap<>();

    private final ByteBuffer memory;
    private final long address;

    Name(String name) {
      byte[] bytes = bytesWithNul(name);
      memory = ByteBuffer.allocateDirect(bytes.length).put(bytes);
      address = RawJNI.java_address(memory);
    }

    /** A program calls few operators, and each of them often. */
    static Name of(String name) {
      Name known = KNOWN.get(name);
      if (known == null) {
        known = new Name(name);
        if (KNOWN.size() < MOST_KNOWN) {
          KNOWN.put(name, known);
        }
      }
      return known;
    }
  }

  /** The arguments, and behind them what they refer to. */
  private final ByteBuffer memory;

  private final long address;

  /** How many results there are, and then they. */
  private ByteBuffer results;

  private long resultsAddress;
  private Name name;
  private int end;

  private OperatorCall(int bytes) {
    memory = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
    address = RawJNI.java_address(memory);
    makeRoomFor(ROOM_FOR_RESULTS);
  }

  private void makeRoomFor(int count) {
    results = ByteBuffer.allocateDirect(VALUE + count * VALUE).order(ByteOrder.nativeOrder());
    resultsAddress = RawJNI.java_address(results);
  }

  private int needed() {
    return Math.toIntExact(results.getLong(0));
  }

  static Tensor one(String name, Object... arguments) {
    OperatorCall call = prepare(name, arguments);
    TensorScope scope = TensorScope.innermost();
    call.run(arguments, scope, 1);
    if (call.needed() != 1 || call.results.getInt(VALUE) != Raw.FSDP2_VALUE_TENSOR) {
      call.drop();
      throw new IllegalArgumentException(
          name + " does not return one tensor; callForAll gives what it returns");
    }
    return Tensor.madeIn(scope, call.results.getLong(VALUE + TENSOR));
  }

  private void drop() {
    for (int i = 1; i <= needed(); i++) {
      if (results.getInt(i * VALUE) == Raw.FSDP2_VALUE_TENSOR) {
        Raw.fsdp2_tensor_destroy(results.getLong(i * VALUE + TENSOR));
      }
    }
  }

  static List<Object> all(String name, Object... arguments) {
    OperatorCall call = prepare(name, arguments);
    TensorScope scope = TensorScope.innermost();
    try {
      call.run(arguments, scope, call.results.capacity() / VALUE - 1);
    } catch (FsdpException failure) {
      if (failure.status() != Raw.FSDP2_E_BUFFER_TOO_SMALL) {
        throw failure;
      }
      call.makeRoomFor(call.needed());
      call.run(arguments, scope, call.results.capacity() / VALUE - 1);
    }
    List<Object> values = new ArrayList<>();
    for (int i = 1; i <= call.needed(); i++) {
      values.add(value(call.results, i * VALUE, scope));
    }
    return Collections.unmodifiableList(values);
  }

  private static Object value(ByteBuffer results, int at, TensorScope scope) {
    return switch (results.getInt(at)) {
      case Raw.FSDP2_VALUE_TENSOR -> Tensor.madeIn(scope, results.getLong(at + TENSOR));
      case Raw.FSDP2_VALUE_INT -> results.getLong(at + INTEGER);
      case Raw.FSDP2_VALUE_DOUBLE -> results.getDouble(at + NUMBER);
      case Raw.FSDP2_VALUE_BOOL -> results.getLong(at + INTEGER) != 0;
      default -> null;
    };
  }

  private void run(Object[] arguments, TensorScope scope, int room) {
    int flags = TensorScope.recordsGradients(scope) ? 0 : Raw.FSDP2_OP_NO_GRAD;
    RawJNI.java_call_operator(
        name.address,
        address,
        arguments.length,
        flags,
        TensorScope.id(scope),
        resultsAddress + VALUE,
        room,
        resultsAddress);
    Reference.reachabilityFence(this);
    Reference.reachabilityFence(arguments);
    Reference.reachabilityFence(scope);
  }

  private static OperatorCall prepare(String name, Object[] arguments) {
    Name nameInC = Name.of(name);
    int bytes = arguments.length * VALUE;
    for (Object argument : arguments) {
      bytes = Math.addExact(bytes, bytesOf(argument));
    }
    OperatorCall call = OF_THREAD.get();
    if (call.memory.capacity() < bytes) {
      call = new OperatorCall(bytes);
    }
    call.name = nameInC;
    call.end = arguments.length * VALUE;
    for (int i = 0; i < arguments.length; i++) {
      call.put(i * VALUE, arguments[i]);
    }
    return call;
  }

  /** What an argument needs beside its value; texts at most three bytes a char and a NUL. */
  private static int bytesOf(Object argument) {
    int elements = 0;
    if (argument instanceof String text) {
      elements = text.length() / 2 + 2;
    } else if (argument instanceof List<?> list) {
      elements = list.size();
    } else if (argument != null && argument.getClass().isArray()) {
      elements = Array.getLength(argument);
    }
    return Math.multiplyExact(elements, 8);
  }

  private void put(int at, Object argument) {
    memory.putInt(at + 4, 0);
    if (argument instanceof Tensor tensor) {
      memory.putInt(at, Raw.FSDP2_VALUE_TENSOR);
      memory.putLong(at + TENSOR, tensor.id());
    } else if (argument == null) {
      memory.putInt(at, Raw.FSDP2_VALUE_NONE);
    } else if (argument == Operator.DEFAULT) {
      memory.putInt(at, Raw.FSDP2_VALUE_DEFAULT);
    } else if (argument instanceof Double || argument instanceof Float) {
      memory.putInt(at, Raw.FSDP2_VALUE_DOUBLE);
      memory.putDouble(at + NUMBER, ((Number) argument).doubleValue());
    } else if (argument instanceof Integer
        || argument instanceof Long
        || argument instanceof Short
        || argument instanceof Byte) {
      putInteger(at, Raw.FSDP2_VALUE_INT, ((Number) argument).longValue());
    } else if (argument instanceof Boolean flag) {
      putInteger(at, Raw.FSDP2_VALUE_BOOL, flag ? 1 : 0);
    } else if (argument instanceof DType dtype) {
      putInteger(at, Raw.FSDP2_VALUE_DTYPE, dtype.number());
    } else if (argument instanceof Generator generator) {
      putInteger(at, Raw.FSDP2_VALUE_GENERATOR, generator.id());
    } else if (argument instanceof String text) {
      putText(at, text);
    } else {
      putList(at, argument);
    }
  }

  private void putInteger(int at, int kind, long integer) {
    memory.putInt(at, kind);
    memory.putLong(at + INTEGER, integer);
  }

  private void putText(int at, String text) {
    byte[] bytes = bytesWithNul(text);
    putData(at, Raw.FSDP2_VALUE_STRING, 0);
    memory.put(end, bytes);
    end += (bytes.length + 7) / 8 * 8;
  }

  private static byte[] bytesWithNul(String text) {
    if (text.indexOf('\0') >= 0) {
      throw new IllegalArgumentException("text with a NUL in it");
    }
    return text.concat("\0").getBytes(StandardCharsets.UTF_8);
  }

  private void putData(int at, int kind, int count) {
    memory.putInt(at, kind);
    memory.putLong(at + DATA, address + end);
    memory.putLong(at + COUNT, count);
  }

  private void putList(int at, Object argument) {
    if (argument instanceof long[] longs) {
      putData(at, Raw.FSDP2_VALUE_INTS, longs.length);
      memory.asLongBuffer().put(end / 8, longs);
      end += longs.length * 8;
    } else if (argument instanceof int[] ints) {
      putList(at, Arrays.stream(ints).asLongStream().toArray());
    } else if (argument instanceof boolean[] flags) {
      putData(at, Raw.FSDP2_VALUE_INTS, flags.length);
      for (boolean flag : flags) {
        putElement(flag ? 1 : 0);
      }
    } else if (argument instanceof double[] doubles) {
      putData(at, Raw.FSDP2_VALUE_DOUBLES, doubles.length);
      for (double value : doubles) {
        putElement(Double.doubleToRawLongBits(value));
      }
    } else if (argument instanceof float[] floats) {
      putData(at, Raw.FSDP2_VALUE_DOUBLES, floats.length);
      for (float value : floats) {
        putElement(Double.doubleToRawLongBits(value));
      }
    } else if (argument instanceof Tensor[] tensors) {
      putTensors(at, Arrays.asList(tensors));
    } else if (argument instanceof List<?> list) {
      putTensors(at, list);
    } else {
      throw new IllegalArgumentException(
          "no argument of an operator: " + argument.getClass().getName());
    }
  }

  private void putTensors(int at, List<?> tensors) {
    putData(at, Raw.FSDP2_VALUE_TENSORS, tensors.size());
    for (Object element : tensors) {
      if (element != null && !(element instanceof Tensor)) {
        throw new IllegalArgumentException(
            "expected a list of tensors, found " + element.getClass().getName() + " in it");
      }
      putElement(Tensor.id((Tensor) element));
    }
  }

  private void putElement(long bits) {
    memory.putLong(end, bits);
    end += 8;
  }
}
