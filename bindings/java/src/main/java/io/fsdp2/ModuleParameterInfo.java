package io.fsdp2;

import io.fsdp2.internal.fsdp2_module_parameter_info;
import java.util.Arrays;

/**
 * A parameter of a module.
 *
 * @param dtype with which the module was made
 * @param requiresGrad false: frozen
 * @param isSharded whether sharding has taken it over
 * @param hasGrad whether it has a gradient; false where it is sharded
 * @param names more than 1: tied
 * @param shape global
 */
public record ModuleParameterInfo(
    DType dtype,
    boolean requiresGrad,
    boolean isSharded,
    boolean hasGrad,
    int names,
    long[] shape) {
  static ModuleParameterInfo of(fsdp2_module_parameter_info raw) {
    return new ModuleParameterInfo(
        DType.of(raw.getDtype()),
        raw.getRequires_grad() != 0,
        raw.getIs_sharded() != 0,
        raw.getHas_grad() != 0,
        raw.getN_names(),
        Arrays.copyOf(raw.getShape(), raw.getN_dims()));
  }
}
