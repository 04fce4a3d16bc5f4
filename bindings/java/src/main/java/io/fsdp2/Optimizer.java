package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_adamw_options;
import io.fsdp2.internal.fsdp2_muon_options;
import io.fsdp2.internal.fsdp2_optimizer_group_info;
import io.fsdp2.internal.fsdp2_optimizer_info;
import io.fsdp2.internal.fsdp2_sgd_options;
import java.util.Arrays;

/**
 * An optimizer of a shard's parameters. At first all of them are in group 0, whose learning rate is
 * the optimizer's; those of the other groups follow it, each in a ratio of its own.
 */
public final class Optimizer extends Handle {
  private Optimizer(long id) {
    super(id, Raw::fsdp2_optimizer_destroy);
  }

  static Optimizer adopt(long id) {
    return new Optimizer(id);
  }

  /** Makes AdamW: decoupled decay, bias-corrected. */
  public static Optimizer createAdamw(Shard shard, AdamwOptions options) {
    try (fsdp2_adamw_options raw = options.toRaw()) {
      return shard.get(
          id -> new Optimizer(make(out -> Raw.fsdp2_optimizer_create_adamw(id, raw, out))));
    }
  }

  /** Makes SGD with momentum, without dampening. */
  public static Optimizer createSgd(Shard shard, SgdOptions options) {
    try (fsdp2_sgd_options raw = options.toRaw()) {
      return shard.get(
          id -> new Optimizer(make(out -> Raw.fsdp2_optimizer_create_sgd(id, raw, out))));
    }
  }

  /**
   * Makes Muon for the matrices of hidden layers, and AdamW for the rest in group 1. Its {@link
   * #run} is collective.
   */
  public static Optimizer createMuon(Shard shard, MuonOptions options) {
    try (fsdp2_muon_options raw = options.toRaw()) {
      return shard.get(
          id -> new Optimizer(make(out -> Raw.fsdp2_optimizer_create_muon(id, raw, out))));
    }
  }

  /** Moves parameters out of group 0 into a new group. All ranks make the same call. */
  public void addAdamwGroup(AdamwOptions options, String... names) {
    try (fsdp2_adamw_options raw = options.toRaw()) {
      use(id -> Raw.fsdp2_optimizer_add_adamw_group(id, names, names.length, raw));
    }
  }

  /** Moves parameters out of group 0 into a new group. All ranks make the same call. */
  public void addSgdGroup(SgdOptions options, String... names) {
    try (fsdp2_sgd_options raw = options.toRaw()) {
      use(id -> Raw.fsdp2_optimizer_add_sgd_group(id, names, names.length, raw));
    }
  }

  /** Sets the weight decay of norms, of biases or of both to 0. All ranks make the same call. */
  public void exemptFromDecay(boolean norms, boolean biases) {
    int flags = (norms ? Raw.FSDP2_NO_DECAY_NORMS : 0) | (biases ? Raw.FSDP2_NO_DECAY_BIASES : 0);
    use(id -> Raw.fsdp2_optimizer_exempt_from_decay(id, flags));
  }

  /**
   * Sets the weight decay of the parameters whose whole name one of these matches to 0. They may be
   * patterns of the shell. All ranks make the same call.
   */
  public void exemptNamedFromDecay(String... names) {
    use(id -> Raw.fsdp2_optimizer_exempt_named_from_decay(id, names, names.length, 0));
  }

  /**
   * Sets the weight decay of all parameters at and below modules of these classes to 0. All ranks
   * make the same call.
   */
  public void exemptClassesFromDecay(String... classes) {
    int flags = Raw.FSDP2_NO_DECAY_BY_CLASS;
    use(id -> Raw.fsdp2_optimizer_exempt_named_from_decay(id, classes, classes.length, flags));
  }

  /**
   * Multiplies the learning rate of the parameters whose whole name one of the patterns of the
   * shell matches, each once. All ranks make the same call.
   */
  public void scaleNamedLr(double factor, String... patterns) {
    use(id -> Raw.fsdp2_optimizer_scale_named_lr(id, patterns, patterns.length, factor));
  }

  /**
   * Multiplies the learning rate of the parameters whose whole name matches a pattern of the shell.
   * All ranks make the same call.
   */
  public void scaleLr(String pattern, double factor) {
    use(id -> Raw.fsdp2_optimizer_scale_lr(id, pattern, factor));
  }

  /** What the optimizer is as a whole. */
  public OptimizerInfo getInfo() {
    try (fsdp2_optimizer_info raw = new fsdp2_optimizer_info()) {
      use(id -> Raw.fsdp2_optimizer_get_info(id, raw));
      return OptimizerInfo.of(raw);
    }
  }

  /** A group. */
  public OptimizerGroupInfo getGroupInfo(long group) {
    try (fsdp2_optimizer_group_info raw = new fsdp2_optimizer_group_info()) {
      use(id -> Raw.fsdp2_optimizer_get_group_info(id, group, raw));
      return OptimizerGroupInfo.of(raw);
    }
  }

  /** The indices of a group's parameters, as in {@link Shard#getParameterIndex}, ascending. */
  public long[] getGroupParameters(long group) {
    long[] needed = new long[1];
    use(id -> Raw.fsdp2_optimizer_get_group_parameters(id, group, null, 0, needed));
    long[] parameters = new long[Math.toIntExact(needed[0])];
    use(
        id ->
            Raw.fsdp2_optimizer_get_group_parameters(
                id, group, parameters, parameters.length, needed));
    return Arrays.copyOf(parameters, Math.toIntExact(needed[0]));
  }

  /**
   * A parameter's state.
   *
   * @param parameter its index in the shard
   * @param name torch.optim's: exp_avg, exp_avg_sq, step, or momentum_buffer
   * @param part {@link ParameterPart#LOCAL}, or FULL, which is collective
   */
  public Tensor getState(long parameter, String name, ParameterPart part) {
    return Tensor.adopt(
        get(
            id ->
                make(
                    out ->
                        Raw.fsdp2_optimizer_get_state(id, parameter, name, part.number(), out))));
  }

  /** Sets the learning rate. */
  public void setLr(double lr) {
    use(id -> Raw.fsdp2_optimizer_set_lr(id, lr));
  }

  /** The learning rate. */
  public double getLr() {
    double[] out = new double[1];
    use(id -> Raw.fsdp2_optimizer_get_lr(id, out));
    return out[0];
  }

  /** Sets the learning rate of one group. All ranks make the same call. */
  public void setGroupLr(long group, double lr) {
    use(id -> Raw.fsdp2_optimizer_set_group_lr(id, group, lr));
  }

  /** Sets the weight decay of one group. All ranks make the same call. */
  public void setGroupWeightDecay(long group, double weightDecay) {
    use(id -> Raw.fsdp2_optimizer_set_group_weight_decay(id, group, weightDecay));
  }

  /** Updates every shard that has a gradient, once. */
  public void run() {
    use(Raw::fsdp2_optimizer_run);
  }

  /** Another object for the same optimizer, for a second owner. */
  public Optimizer duplicate() {
    return get(id -> new Optimizer(make(out -> Raw.fsdp2_optimizer_duplicate(id, out))));
  }
}
