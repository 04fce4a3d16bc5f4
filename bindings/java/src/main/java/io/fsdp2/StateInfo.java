package io.fsdp2;

import io.fsdp2.internal.fsdp2_state_info;

/**
 * A state as a whole.
 *
 * @param tensors entries that are chunks of tensors
 * @param values entries that are values
 * @param bytes of this rank's chunks
 */
public record StateInfo(int tensors, int values, long bytes) {
  static StateInfo of(fsdp2_state_info raw) {
    return new StateInfo(raw.getN_tensors(), raw.getN_values(), raw.getN_bytes());
  }
}
