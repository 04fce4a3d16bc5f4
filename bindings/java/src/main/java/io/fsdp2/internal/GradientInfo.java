package io.fsdp2.internal;

/**
 * Whose gradient is final; {@code fsdp2_gradient_info} of hook.h.
 *
 * @param parameter its name
 * @param parameterIndex its index
 * @param unitIndex that of its unit
 */
public record GradientInfo(String parameter, int parameterIndex, int unitIndex) {}
