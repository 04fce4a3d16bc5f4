package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_adamw_options;

/** Hyper-parameters of AdamW or Adam. What a builder is not told keeps the library's default. */
public final class AdamwOptions {
  private final double lr;
  private final double beta1;
  private final double beta2;
  private final double eps;
  private final double weightDecay;
  private final boolean coupledDecay;
  private final DType stateDtype;

  private AdamwOptions(Builder builder) {
    lr = builder.lr;
    beta1 = builder.beta1;
    beta2 = builder.beta2;
    eps = builder.eps;
    weightDecay = builder.weightDecay;
    coupledDecay = builder.coupledDecay;
    stateDtype = builder.stateDtype;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** The learning rate. */
  public double lr() {
    return lr;
  }

  /** Decay of the mean of gradients. */
  public double beta1() {
    return beta1;
  }

  /** Decay of the mean of their squares. */
  public double beta2() {
    return beta2;
  }

  /** Added to the denominator. */
  public double eps() {
    return eps;
  }

  /** Weight decay, decoupled from the gradient unless {@code coupledDecay}. */
  public double weightDecay() {
    return weightDecay;
  }

  /** Whether it is Adam, whose weight decay is added to the gradient. */
  public boolean coupledDecay() {
    return coupledDecay;
  }

  /** Dtype of both moments; {@code KEEP}: each parameter's own or, for a group, the optimizer's. */
  public DType stateDtype() {
    return stateDtype;
  }

  /** The caller closes it. */
  fsdp2_adamw_options toRaw() {
    fsdp2_adamw_options raw = new fsdp2_adamw_options();
    raw.setLr(lr);
    raw.setBeta1(beta1);
    raw.setBeta2(beta2);
    raw.setEps(eps);
    raw.setWeight_decay(weightDecay);
    raw.setCoupled_decay(coupledDecay ? 1 : 0);
    raw.setState_dtype(stateDtype.number());
    return raw;
  }

  /** Makes {@link AdamwOptions}. */
  public static final class Builder {
    private double lr;
    private double beta1;
    private double beta2;
    private double eps;
    private double weightDecay;
    private boolean coupledDecay;
    private DType stateDtype;

    private Builder() {
      try (fsdp2_adamw_options raw = new fsdp2_adamw_options()) {
        Raw.fsdp2_adamw_options_init(raw, raw.getStruct_size());
        lr = raw.getLr();
        beta1 = raw.getBeta1();
        beta2 = raw.getBeta2();
        eps = raw.getEps();
        weightDecay = raw.getWeight_decay();
        coupledDecay = raw.getCoupled_decay() != 0;
        stateDtype = DType.of(raw.getState_dtype());
      }
    }

    /** The learning rate. */
    public Builder lr(double lr) {
      this.lr = lr;
      return this;
    }

    /** Decay of the mean of gradients. */
    public Builder beta1(double beta1) {
      this.beta1 = beta1;
      return this;
    }

    /** Decay of the mean of their squares. */
    public Builder beta2(double beta2) {
      this.beta2 = beta2;
      return this;
    }

    /** Added to the denominator. */
    public Builder eps(double eps) {
      this.eps = eps;
      return this;
    }

    /** Weight decay, decoupled from the gradient unless {@code coupledDecay}. */
    public Builder weightDecay(double weightDecay) {
      this.weightDecay = weightDecay;
      return this;
    }

    /** Whether it is Adam, whose weight decay is added to the gradient. */
    public Builder coupledDecay(boolean coupledDecay) {
      this.coupledDecay = coupledDecay;
      return this;
    }

    /** Dtype of both moments, such as {@code BF16} beside fp32 parameters, in half the memory. */
    public Builder stateDtype(DType stateDtype) {
      this.stateDtype = stateDtype;
      return this;
    }

    /** Makes the options as they are now. */
    public AdamwOptions build() {
      return new AdamwOptions(this);
    }
  }
}
