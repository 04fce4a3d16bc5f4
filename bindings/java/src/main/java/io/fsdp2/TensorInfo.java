package io.fsdp2;

import io.fsdp2.internal.fsdp2_tensor_info;
import java.util.Arrays;

/**
 * What a tensor is.
 *
 * @param dtype type of its elements
 * @param deviceType where its memory is
 * @param deviceIndex which device of this type
 * @param requiresGrad whether operators record a gradient for it
 * @param shape its sizes
 * @param strides in elements
 * @param bytes elements x size of one
 */
public record TensorInfo(
    DType dtype,
    DeviceType deviceType,
    int deviceIndex,
    boolean requiresGrad,
    long[] shape,
    long[] strides,
    long bytes) {
  static TensorInfo of(fsdp2_tensor_info raw) {
    return new TensorInfo(
        DType.of(raw.getDtype()),
        DeviceType.of(raw.getDevice_type()),
        raw.getDevice_index(),
        raw.getRequires_grad() != 0,
        Arrays.copyOf(raw.getShape(), raw.getN_dims()),
        Arrays.copyOf(raw.getStrides(), raw.getN_dims()),
        raw.getN_bytes());
  }
}
