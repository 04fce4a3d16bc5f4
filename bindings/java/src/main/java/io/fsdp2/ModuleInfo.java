package io.fsdp2;

import io.fsdp2.internal.fsdp2_module_info;

/**
 * A module as a whole.
 *
 * @param parameters how many, a tied one once
 * @param numel elements of all parameters, ties counted once
 * @param vocabSize 0 for a module that is no language model
 * @param maxPositions 0 for a module that is no language model
 * @param bytes what parameters and gradients take on this rank now
 */
public record ModuleInfo(
    int parameters, long numel, long vocabSize, long maxPositions, long bytes) {
  static ModuleInfo of(fsdp2_module_info raw) {
    return new ModuleInfo(
        raw.getN_parameters(),
        raw.getNumel(),
        raw.getVocab_size(),
        raw.getMax_positions(),
        raw.getN_bytes());
  }
}
