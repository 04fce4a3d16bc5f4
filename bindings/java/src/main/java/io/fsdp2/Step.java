package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_step_options;
import io.fsdp2.internal.fsdp2_step_result;
import java.lang.ref.Reference;

/**
 * A training step in one call: forward and backward of each micro batch, gradient norm, clipping,
 * optimizer, schedule, zero-grad.
 */
public final class Step extends Handle {
  private Step(long id) {
    super(id, Raw::fsdp2_step_destroy);
  }

  static Step adopt(long id) {
    return new Step(id);
  }

  /** Makes a step with the library's defaults. Collective. */
  public static Step create(Shard shard, Optimizer optimizer) {
    return create(shard, optimizer, StepOptions.builder().build());
  }

  /**
   * Makes a step. The optimizer's learning rate now is the schedule's peak. Options that the
   * module, the optimizer or the machine cannot have are unsupported; {@code fsdp2_step_create} in
   * step.h lists them. Collective.
   */
  public static Step create(Shard shard, Optimizer optimizer, StepOptions options) {
    try (fsdp2_step_options raw = options.toRaw()) {
      Step step =
          new Step(make(out -> Raw.fsdp2_step_create(shard.id(), optimizer.id(), raw, out)));
      Reference.reachabilityFence(shard);
      Reference.reachabilityFence(optimizer);
      return step;
    }
  }

  /** Runs one step on micro batches of a language model. Collective. */
  public StepResult run(Batch... batches) {
    Tensor[] inputs = new Tensor[2 * batches.length];
    for (int i = 0; i < batches.length; i++) {
      inputs[2 * i] = batches[i].tokens();
      inputs[2 * i + 1] = batches[i].labels();
    }
    return run(inputs);
  }

  /**
   * Runs one step. Collective.
   *
   * @param batch the inputs of each micro batch in turn, null for one that is left out
   */
  public StepResult run(Tensor... batch) {
    try (fsdp2_step_result raw = new fsdp2_step_result()) {
      use(id -> Raw.fsdp2_step_run(id, Tensor.ids(batch), batch.length, raw));
      Reference.reachabilityFence(batch);
      return StepResult.of(raw);
    }
  }

  /** Says where to continue, after a resume. */
  public void setPosition(long nextStep) {
    use(id -> Raw.fsdp2_step_set_position(id, nextStep));
  }

  /** The number of the next step. */
  public long getPosition() {
    return number(Raw::fsdp2_step_get_position);
  }

  /** Another object for the same step, for a second owner. */
  public Step duplicate() {
    return get(id -> new Step(make(out -> Raw.fsdp2_step_duplicate(id, out))));
  }
}
