package io.fsdp2;

import io.fsdp2.internal.fsdp2_optimizer_info;

/**
 * An optimizer as a whole.
 *
 * @param algorithm what it computes
 * @param groups 1 until groups are added
 * @param parameters those that are not frozen
 * @param bytes of this rank's state
 * @param receivedBytes from other ranks in all updates so far; 0 but for Muon
 * @param fullBytes what {@code bytes} is once every parameter has been updated
 */
public record OptimizerInfo(
    Algorithm algorithm,
    int groups,
    int parameters,
    long bytes,
    long receivedBytes,
    long fullBytes) {
  static OptimizerInfo of(fsdp2_optimizer_info raw) {
    return new OptimizerInfo(
        Algorithm.of(raw.getAlgorithm()),
        raw.getN_groups(),
        raw.getN_parameters(),
        raw.getN_bytes(),
        raw.getN_received_bytes(),
        raw.getN_full_bytes());
  }
}
