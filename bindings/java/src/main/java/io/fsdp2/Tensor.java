package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_tensor_info;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;

/**
 * A tensor of LibTorch. Operators are methods ({@link #add}, {@link #matmul}, ...) or are called by
 * their names ({@link #op}); autograd records what they do.
 *
 * <p>A tensor that is made while a {@link TensorScope} is open on the thread ends with that scope;
 * any other ends with {@link #close}, or when nothing refers to it any more.
 */
public final class Tensor extends TensorOperators implements AutoCloseable {
  private final long id;

  /** What ends the tensor: one of the two, or neither if it belongs to the library. */
  private volatile TensorScope scope;

  private TensorGuard guard;

  /** In the place of a guard: the library's own, which stays so. */
  private static final TensorGuard LENT = TensorGuard.none();

  /** In the place of a guard: calls of the tensor fail as those of any closed object. */
  private static final TensorGuard CLOSED = TensorGuard.none();

  private Tensor(long id) {
    this.id = id;
  }

  /** A handle that the library lends to a callback. */
  static Tensor lent(long id) {
    if (id == 0) {
      return null;
    }
    Tensor tensor = new Tensor(id);
    tensor.guard = LENT;
    return tensor;
  }

  /** A handle that nobody owns yet: it goes into the innermost scope of this thread, if any. */
  static Tensor adopt(long id) {
    TensorScope scope = TensorScope.innermost();
    if (scope == null) {
      return owned(id);
    }
    Raw.fsdp2_scope_add(scope.id(), new long[] {id}, 1);
    return inScope(id, scope);
  }

  /** A handle that the scope owns already, or else nobody. */
  static Tensor madeIn(TensorScope scope, long id) {
    return scope == null ? owned(id) : inScope(id, scope);
  }

  static Tensor owned(long id) {
    Tensor tensor = new Tensor(id);
    tensor.own();
    return tensor;
  }

  static Tensor inScope(long id, TensorScope scope) {
    Tensor tensor = new Tensor(id);
    tensor.scope = scope;
    return tensor;
  }

  private void own() {
    guard = TensorGuard.of(id);
  }

  long id() {
    return id;
  }

  static long id(Tensor tensor) {
    return tensor == null ? 0 : tensor.id;
  }

  static long[] ids(Tensor... tensors) {
    long[] ids = new long[tensors.length];
    for (int i = 0; i < ids.length; i++) {
      ids[i] = id(tensors[i]);
    }
    return ids;
  }

  TensorScope scope() {
    return scope;
  }

  /** Moves a tensor of its own into a scope, or one of a scope to another or to none. */
  synchronized void moveTo(TensorScope target) {
    if (scope == target || (scope == null && (guard == null || guard == LENT))) {
      return;
    }
    if (scope != null) {
      Raw.fsdp2_scope_keep(scope.id(), new long[] {id}, 1);
    }
    if (target != null) {
      Raw.fsdp2_scope_add(target.id(), new long[] {id}, 1);
      disown();
    } else {
      own();
    }
    scope = target;
  }

  private void disown() {
    if (isGuarded()) {
      guard.release();
      guard = null;
    }
  }

  private boolean isGuarded() {
    return guard != null && guard != LENT && guard != CLOSED;
  }

  /** A handle for the library to own: this one, if the scope made it, or a duplicate. */
  long giveTo(TensorScope callback) {
    return guard == LENT ? id : giveOwn(callback);
  }

  private synchronized long giveOwn(TensorScope callback) {
    if (scope == callback) {
      Raw.fsdp2_scope_keep(callback.id(), new long[] {id}, 1);
      scope = null;
      return id;
    }
    if (scope == null && guard == null) {
      return id;
    }
    long[] out = new long[1];
    Raw.fsdp2_tensor_duplicate(id, out);
    Reference.reachabilityFence(this);
    return out[0];
  }

  /** Ends a handle that {@link #giveTo} has made, where the library gets none after all. */
  void takeBack(long given) {
    if (guard == LENT) {
      return;
    }
    try {
      Raw.fsdp2_tensor_destroy(given);
    } catch (FsdpException gone) {
      // it was given twice
    }
  }

  /** Copies the elements of an array into a new tensor; no sizes make a tensor of one dim. */
  public static Tensor of(float[] values, long... shape) {
    return adopt(TensorData.create(values, shape));
  }

  /** Copies the elements of an array into a new tensor; no sizes make a tensor of one dim. */
  public static Tensor of(double[] values, long... shape) {
    return adopt(TensorData.create(values, shape));
  }

  /** Copies the elements of an array into a new tensor; no sizes make a tensor of one dim. */
  public static Tensor of(long[] values, long... shape) {
    return adopt(TensorData.create(values, shape));
  }

  /** Copies the elements of an array into a new tensor; no sizes make a tensor of one dim. */
  public static Tensor of(int[] values, long... shape) {
    return adopt(TensorData.create(values, shape));
  }

  /** Makes a tensor without dims. */
  public static Tensor scalar(double value, DType dtype) {
    return Operator.call("aten::scalar_tensor", value, dtype);
  }

  /** Makes a tensor of zeros. */
  public static Tensor zeros(DType dtype, long... shape) {
    return Operator.call("aten::zeros", shape, dtype);
  }

  /** Makes a tensor of ones. */
  public static Tensor ones(DType dtype, long... shape) {
    return Operator.call("aten::ones", shape, dtype);
  }

  /**
   * Copies the bytes between the buffer's position and its limit into a new tensor: as many as
   * dtype and shape need, row-major, in the machine's order.
   */
  public static Tensor fromBuffer(ByteBuffer bytes, DType dtype, long... shape) {
    return adopt(TensorData.create(bytes, dtype, shape));
  }

  /**
   * Makes a tensor in the memory of a direct buffer, between its position and its limit, without a
   * copy: what is written to one is in the other. Its elements must be in the machine's byte order
   * ({@code direct.order(ByteOrder.nativeOrder())}; a new ByteBuffer is big-endian). The tensor
   * keeps the buffer alive.
   */
  public static Tensor wrap(ByteBuffer direct, DType dtype, long... shape) {
    return adopt(TensorData.wrap(direct, dtype, shape));
  }

  /**
   * The tensor's own memory as a buffer in the machine's order, without a copy. It stays valid for
   * as long as the buffer lives. The tensor is row-major, see {@link #contiguous}, and does not
   * require gradients.
   */
  public ByteBuffer share() {
    return TensorData.share(this);
  }

  /** Copies the elements out, row-major. Fails for another type than {@link DType#F32}. */
  public float[] toFloats() {
    return TensorData.floats(this);
  }

  /** Copies the elements out, row-major. Fails for another type than {@link DType#F64}. */
  public double[] toDoubles() {
    return TensorData.doubles(this);
  }

  /** Copies the elements out, row-major. Fails for another type than {@link DType#I64}. */
  public long[] toLongs() {
    return TensorData.longs(this);
  }

  /** Copies the elements out, row-major. Fails for another type than {@link DType#I32}. */
  public int[] toInts() {
    return TensorData.ints(this);
  }

  /** Copies the elements out, row-major. Fails for types of more than a byte an element. */
  public byte[] toBytes() {
    return TensorData.bytes(this);
  }

  /** Copies the elements, row-major, to the buffer, which has room for exactly these. */
  public void read(ByteBuffer to) {
    TensorData.read(this, to);
  }

  /**
   * Overwrites the elements, row-major, from the buffer. Autograd does not see it: a backward that
   * needs the old values fails.
   */
  public void write(ByteBuffer from) {
    TensorData.write(this, from);
  }

  /** The value of a tensor of one element. */
  public double getValue() {
    double[] out = new double[1];
    Raw.fsdp2_tensor_get_value(id, out);
    Reference.reachabilityFence(this);
    return out[0];
  }

  /** What the tensor is: type, sizes, place. */
  public TensorInfo getInfo() {
    try (fsdp2_tensor_info raw = new fsdp2_tensor_info()) {
      Raw.fsdp2_tensor_get_info(id, raw);
      Reference.reachabilityFence(this);
      return TensorInfo.of(raw);
    }
  }

  /** The sizes. */
  public long[] shape() {
    return getInfo().shape();
  }

  /** The type of the elements. */
  public DType dtype() {
    return getInfo().dtype();
  }

  /** Whether operators record a gradient for this tensor from now on. Returns the tensor. */
  public Tensor setRequiresGrad(boolean flag) {
    Raw.fsdp2_tensor_set_requires_grad(id, flag ? 1 : 0);
    Reference.reachabilityFence(this);
    return this;
  }

  /** The sum of the gradients that backwards have left; fails if there is none. */
  public Tensor getGrad() {
    long[] out = new long[1];
    Raw.fsdp2_tensor_get_grad(id, out);
    Reference.reachabilityFence(this);
    return adopt(out[0]);
  }

  /** Runs backward from a scalar through everything that made it. Collective if that is sharded. */
  public void backward() {
    Raw.fsdp2_tensor_backward(id);
    Reference.reachabilityFence(this);
  }

  /**
   * Runs backward from several tensors at once.
   *
   * @param outputs where it starts
   * @param gradients of each output, null for 1; or null for 1 everywhere
   * @param keepGraph whether another backward may follow through the same graph
   */
  public static void runBackward(List<Tensor> outputs, List<Tensor> gradients, boolean keepGraph) {
    if (gradients != null && gradients.size() != outputs.size()) {
      throw new IllegalArgumentException(
          "expected a gradient for each of "
              + outputs.size()
              + " outputs, found "
              + gradients.size());
    }
    Tensor[] from = outputs.toArray(Tensor[]::new);
    Tensor[] with = gradients == null ? null : gradients.toArray(Tensor[]::new);
    Raw.fsdp2_tensor_run_backward(
        ids(from), from.length, with == null ? null : ids(with), keepGraph ? 1 : 0);
    Reference.reachabilityFence(from);
    Reference.reachabilityFence(with);
  }

  /** Another object for the same tensor, for a second owner. */
  public Tensor duplicate() {
    long[] out = new long[1];
    Raw.fsdp2_tensor_duplicate(id, out);
    Reference.reachabilityFence(this);
    return adopt(out[0]);
  }

  /**
   * Gives the tensor up: calls of it fail from then on. Closing it again does nothing, nor does
   * closing a tensor that a callback was given.
   */
  @Override
  public synchronized void close() {
    if (isGuarded()) {
      Raw.fsdp2_tensor_destroy(id);
      guard.release();
      guard = CLOSED;
    } else if (scope != null && scope.isOpen()) {
      scope = null;
      Raw.fsdp2_tensor_destroy(id);
    }
  }

  /** The type and the sizes, such as {@code Tensor[F32, [2, 3]]}, or why there are none. */
  @Override
  public String toString() {
    try {
      TensorInfo info = getInfo();
      return "Tensor[" + info.dtype() + ", " + Arrays.toString(info.shape()) + "]";
    } catch (FsdpException gone) {
      return "Tensor[" + gone.code() + "]";
    }
  }

  @Override
  Tensor self() {
    return this;
  }
}
