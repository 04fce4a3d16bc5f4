package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_muon_options;

/** Hyper-parameters of Muon. What a builder is not told keeps the library's default. */
public final class MuonOptions {
  private final int newtonSchulzSteps;
  private final boolean noNesterov;
  private final double lr;
  private final double weightDecay;
  private final double momentum;
  private final double matchedAdamwRms;
  private final double beta1;
  private final double beta2;
  private final double eps;

  private MuonOptions(Builder builder) {
    newtonSchulzSteps = builder.newtonSchulzSteps;
    noNesterov = builder.noNesterov;
    lr = builder.lr;
    weightDecay = builder.weightDecay;
    momentum = builder.momentum;
    matchedAdamwRms = builder.matchedAdamwRms;
    beta1 = builder.beta1;
    beta2 = builder.beta2;
    eps = builder.eps;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** Steps of the iteration that makes a matrix orthogonal: 1 to 99. */
  public int newtonSchulzSteps() {
    return newtonSchulzSteps;
  }

  /** Whether momentum is plain. */
  public boolean noNesterov() {
    return noNesterov;
  }

  /** The learning rate of all groups. */
  public double lr() {
    return lr;
  }

  /** The decay of all groups, decoupled from the gradient. */
  public double weightDecay() {
    return weightDecay;
  }

  /** How much of a matrix's last update goes on. */
  public double momentum() {
    return momentum;
  }

  /** A matrix's rate is lr times this times the root of its longer side; 0: Jordan's scale. */
  public double matchedAdamwRms() {
    return matchedAdamwRms;
  }

  /** AdamW's decay of the first moment. */
  public double beta1() {
    return beta1;
  }

  /** AdamW's decay of the second moment. */
  public double beta2() {
    return beta2;
  }

  /** What AdamW adds to the root of the second moment. */
  public double eps() {
    return eps;
  }

  /** The caller closes it. */
  fsdp2_muon_options toRaw() {
    fsdp2_muon_options raw = new fsdp2_muon_options();
    raw.setNewton_schulz_steps(newtonSchulzSteps);
    raw.setNo_nesterov(noNesterov ? 1 : 0);
    raw.setLr(lr);
    raw.setWeight_decay(weightDecay);
    raw.setMomentum(momentum);
    raw.setMatched_adamw_rms(matchedAdamwRms);
    raw.setBeta1(beta1);
    raw.setBeta2(beta2);
    raw.setEps(eps);
    return raw;
  }

  /** Makes {@link MuonOptions}. */
  public static final class Builder {
    private int newtonSchulzSteps;
    private boolean noNesterov;
    private double lr;
    private double weightDecay;
    private double momentum;
    private double matchedAdamwRms;
    private double beta1;
    private double beta2;
    private double eps;

    private Builder() {
      try (fsdp2_muon_options raw = new fsdp2_muon_options()) {
        Raw.fsdp2_muon_options_init(raw, raw.getStruct_size());
        newtonSchulzSteps = raw.getNewton_schulz_steps();
        noNesterov = raw.getNo_nesterov() != 0;
        lr = raw.getLr();
        weightDecay = raw.getWeight_decay();
        momentum = raw.getMomentum();
        matchedAdamwRms = raw.getMatched_adamw_rms();
        beta1 = raw.getBeta1();
        beta2 = raw.getBeta2();
        eps = raw.getEps();
      }
    }

    /** Steps of the iteration that makes a matrix orthogonal: 1 to 99. */
    public Builder newtonSchulzSteps(int newtonSchulzSteps) {
      this.newtonSchulzSteps = newtonSchulzSteps;
      return this;
    }

    /** Whether momentum is plain. */
    public Builder noNesterov(boolean noNesterov) {
      this.noNesterov = noNesterov;
      return this;
    }

    /** The learning rate of all groups. */
    public Builder lr(double lr) {
      this.lr = lr;
      return this;
    }

    /** The decay of all groups, decoupled from the gradient. */
    public Builder weightDecay(double weightDecay) {
      this.weightDecay = weightDecay;
      return this;
    }

    /** How much of a matrix's last update goes on. */
    public Builder momentum(double momentum) {
      this.momentum = momentum;
      return this;
    }

    /** A matrix's rate is lr times this times the root of its longer side; 0: Jordan's scale. */
    public Builder matchedAdamwRms(double matchedAdamwRms) {
      this.matchedAdamwRms = matchedAdamwRms;
      return this;
    }

    /** AdamW's decay of the first moment. */
    public Builder beta1(double beta1) {
      this.beta1 = beta1;
      return this;
    }

    /** AdamW's decay of the second moment. */
    public Builder beta2(double beta2) {
      this.beta2 = beta2;
      return this;
    }

    /** What AdamW adds to the root of the second moment. */
    public Builder eps(double eps) {
      this.eps = eps;
      return this;
    }

    /** Makes the options as they are now. */
    public MuonOptions build() {
      return new MuonOptions(this);
    }
  }
}
