package io.fsdp2.internal;

/**
 * Whose gradients an all-reduce hook sees; {@code fsdp2_all_reduce_info} of hook.h.
 *
 * @param unit the unit's name; empty for the root
 * @param unitIndex its index
 */
public record AllReduceInfo(String unit, int unitIndex) {}
