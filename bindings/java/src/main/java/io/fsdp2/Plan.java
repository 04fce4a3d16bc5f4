package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_plan_info;
import io.fsdp2.internal.fsdp2_plan_memory;
import io.fsdp2.internal.fsdp2_plan_options;
import io.fsdp2.internal.fsdp2_plan_reshard;
import java.lang.ref.Reference;

/**
 * What a sharded model holds and moves in one training step, worked out without running it. With a
 * mesh of {@link Backend#FAKE} and deferValues, a plan takes one process and no memory.
 */
public final class Plan {
  private Plan() {}

  /** The plan in numbers. */
  public static PlanInfo getInfo(Shard shard, PlanOptions options) {
    try (fsdp2_plan_options given = options.toRaw();
        fsdp2_plan_info raw = new fsdp2_plan_info()) {
      shard.use(id -> Raw.fsdp2_plan_get_info(id, given, raw));
      return PlanInfo.of(raw);
    }
  }

  /**
   * Finds the memory of a step by taking it without values: the forward and the backward of a
   * module whose output is its loss, for each of microBatches with these inputs, of which only the
   * shapes and dtypes count. The shard is over a mesh of {@link Backend#FAKE} and device type
   * "meta", and made with deferValues.
   */
  public static PlanMemory getMemory(
      Shard shard, PlanOptions options, int microBatches, Tensor... inputs) {
    try (fsdp2_plan_options given = options.toRaw();
        fsdp2_plan_memory raw = new fsdp2_plan_memory()) {
      shard.use(
          id ->
              Raw.fsdp2_plan_get_memory(
                  id, Tensor.ids(inputs), inputs.length, microBatches, given, raw));
      Reference.reachabilityFence(inputs);
      return PlanMemory.of(raw);
    }
  }

  /**
   * Sets reshardAfterForward of all units but the root: off for as many as a step of getMemory
   * stays within budgetBytes with, and on for the rest. {@link Unit#getSettings} tells them, and
   * {@link Unit#setReshardAfterForward} does the same to the shard that is to take the step. The
   * mesh is that of rank 0, so that all ranks choose alike. {@link ErrorCode#OUT_OF_MEMORY}, with
   * nothing set, if a step is beyond the budget whichever units stay gathered.
   */
  public static PlanReshard chooseReshard(
      Shard shard, PlanOptions options, long budgetBytes, int microBatches, Tensor... inputs) {
    try (fsdp2_plan_options given = options.toRaw();
        fsdp2_plan_reshard raw = new fsdp2_plan_reshard()) {
      shard.use(
          id ->
              Raw.fsdp2_plan_choose_reshard(
                  id, Tensor.ids(inputs), inputs.length, microBatches, given, budgetBytes, raw));
      Reference.reachabilityFence(inputs);
      return PlanReshard.of(raw);
    }
  }

  /** The plan as text: units, memory, traffic, and the order of gathers and reductions. */
  public static String describe(Shard shard, PlanOptions options) {
    try (fsdp2_plan_options given = options.toRaw()) {
      return shard.get(
          id ->
              Handle.text(
                  (text, room, needed) -> Raw.fsdp2_plan_describe(id, given, text, room, needed)));
    }
  }
}
