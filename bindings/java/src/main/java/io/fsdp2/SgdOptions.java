package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_sgd_options;

/** Hyper-parameters of SGD. What a builder is not told keeps the library's default. */
public final class SgdOptions {
  private final boolean nesterov;
  private final double lr;
  private final double momentum;
  private final double weightDecay;

  private SgdOptions(Builder builder) {
    nesterov = builder.nesterov;
    lr = builder.lr;
    momentum = builder.momentum;
    weightDecay = builder.weightDecay;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** Whether momentum looks ahead. */
  public boolean nesterov() {
    return nesterov;
  }

  /** The learning rate. */
  public double lr() {
    return lr;
  }

  /** How much of the last update goes on. */
  public double momentum() {
    return momentum;
  }

  /** Added to the gradient. */
  public double weightDecay() {
    return weightDecay;
  }

  /** The caller closes it. */
  fsdp2_sgd_options toRaw() {
    fsdp2_sgd_options raw = new fsdp2_sgd_options();
    raw.setNesterov(nesterov ? 1 : 0);
    raw.setLr(lr);
    raw.setMomentum(momentum);
    raw.setWeight_decay(weightDecay);
    return raw;
  }

  /** Makes {@link SgdOptions}. */
  public static final class Builder {
    private boolean nesterov;
    private double lr;
    private double momentum;
    private double weightDecay;

    private Builder() {
      try (fsdp2_sgd_options raw = new fsdp2_sgd_options()) {
        Raw.fsdp2_sgd_options_init(raw, raw.getStruct_size());
        nesterov = raw.getNesterov() != 0;
        lr = raw.getLr();
        momentum = raw.getMomentum();
        weightDecay = raw.getWeight_decay();
      }
    }

    /** Whether momentum looks ahead. */
    public Builder nesterov(boolean nesterov) {
      this.nesterov = nesterov;
      return this;
    }

    /** The learning rate. */
    public Builder lr(double lr) {
      this.lr = lr;
      return this;
    }

    /** How much of the last update goes on. */
    public Builder momentum(double momentum) {
      this.momentum = momentum;
      return this;
    }

    /** Added to the gradient. */
    public Builder weightDecay(double weightDecay) {
      this.weightDecay = weightDecay;
      return this;
    }

    /** Makes the options as they are now. */
    public SgdOptions build() {
      return new SgdOptions(this);
    }
  }
}
