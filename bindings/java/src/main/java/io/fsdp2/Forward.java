package io.fsdp2;

import java.util.List;

/**
 * The forward of a custom module. It computes with operators and with the forwards of the module's
 * children; what it makes, but for its outputs, ends when it returns. An exception that it throws
 * is the cause of the {@link FsdpException} of the call around it, whose code is {@link
 * ErrorCode#CALLBACK}. If it throws one of the class {@link ErrorClass#MEMORY}, the call around it
 * has the same code. If it throws one of the class {@link ErrorClass#COMMUNICATION}, another rank
 * has failed and not this forward: the call around it then has the same code, and no cause.
 *
 * <p>Under activation checkpointing it runs a second time, in backward. The module keeps it alive,
 * so let it not refer to the module itself.
 */
@FunctionalInterface
public interface Forward {
  /**
   * Computes the outputs.
   *
   * @param context the module's parameters, and how it runs
   * @param inputs null for one that is left out; they end when this returns
   * @return the outputs, at most 64; inputs and parameters may be among them
   */
  List<Tensor> forward(ForwardContext context, Tensor[] inputs) throws Exception;
}
