package io.fsdp2.internal;

/**
 * The module that runs; {@code fsdp2_forward_info} of custom.h.
 *
 * @param isTraining whether it is in training mode
 * @param parameters its own, as tensors that are valid until the function returns
 * @param buffers likewise
 */
public record ForwardInfo(boolean isTraining, long[] parameters, long[] buffers) {}
