package io.fsdp2;

import io.fsdp2.internal.Raw;
import java.util.List;

/**
 * LibTorch's operators by their names in the namespace aten, such as {@code aten::linear} or {@code
 * aten::add.Tensor}: the name, a point and the overload if it has one.
 *
 * <p>Arguments are those of the operator's schema in order; the last ones may be missing if they
 * have defaults, and {@link #DEFAULT} stands for one in the middle. An argument is a {@link
 * Tensor}, a number, a {@link Boolean}, a {@link String}, a {@link DType}, a {@link Generator},
 * null for none, an array of numbers or tensors, or a list of tensors.
 */
public final class Operator {
  /** In the place of an argument: as if it were left out. */
  public static final Object DEFAULT = new Object();

  private Operator() {}

  /**
   * Calls an operator that returns one tensor.
   *
   * @throws FsdpException with the operator's schema, if the arguments do not fit
   */
  public static Tensor call(String name, Object... arguments) {
    return OperatorCall.one(name, arguments);
  }

  /**
   * Calls an operator with any results.
   *
   * @return one after the other, the elements of lists as well: {@link Tensor}, {@link Long},
   *     {@link Double}, {@link Boolean}, or null for an output that is left undefined
   */
  public static List<Object> callForAll(String name, Object... arguments) {
    return OperatorCall.all(name, arguments);
  }

  /** The schema of an operator: {@code aten::relu(Tensor self) -> Tensor}. */
  public static String getSchema(String name) {
    return Handle.text((text, room, needed) -> Raw.fsdp2_op_get_schema(name, text, room, needed));
  }
}
