package io.fsdp2;

import io.fsdp2.internal.fsdp2_parameter_info;
import java.util.Arrays;

/**
 * A parameter of a shard.
 *
 * @param dtype of the shard
 * @param computeDtype for gathering and computing
 * @param requiresGrad false: frozen
 * @param shardDim the dim it is cut on; -1: whole on this rank
 * @param hasGrad whether it has a gradient
 * @param names more than 1: tied
 * @param shape global
 * @param localShape this rank's rows; may be empty
 * @param localOffset global index of the first of these rows
 * @param shardRanks ranks over which it is cut
 * @param replicaRanks ranks that hold the same rows
 * @param unit index of its unit
 */
public record ParameterInfo(
    DType dtype,
    DType computeDtype,
    boolean requiresGrad,
    int shardDim,
    boolean hasGrad,
    int names,
    long[] shape,
    long[] localShape,
    long localOffset,
    int shardRanks,
    int replicaRanks,
    int unit) {
  static ParameterInfo of(fsdp2_parameter_info raw) {
    return new ParameterInfo(
        DType.of(raw.getDtype()),
        DType.of(raw.getCompute_dtype()),
        raw.getRequires_grad() != 0,
        raw.getShard_dim(),
        raw.getHas_grad() != 0,
        raw.getN_names(),
        Arrays.copyOf(raw.getShape(), raw.getN_dims()),
        Arrays.copyOf(raw.getLocal_shape(), raw.getN_dims()),
        raw.getLocal_offset(),
        raw.getShard_ranks(),
        raw.getReplica_ranks(),
        raw.getUnit());
  }
}
