package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_plan_options;

/** What a plan assumes. What a builder is not told keeps the library's default. */
public final class PlanOptions {
  private final double optimizerStates;
  private final long rows;
  private final long sequenceLength;
  private final long optimizerBytes;

  private PlanOptions(Builder builder) {
    optimizerStates = builder.optimizerStates;
    rows = builder.rows;
    sequenceLength = builder.sequenceLength;
    optimizerBytes = builder.optimizerBytes;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** Elements kept for each trainable element: 2 for AdamW, 1 for SGD with momentum. */
  public double optimizerStates() {
    return optimizerStates;
  }

  /** Rows of a micro batch, for what ranks that share sequences exchange; 0: nothing is counted. */
  public long rows() {
    return rows;
  }

  /** Tokens of each of these rows. */
  public long sequenceLength() {
    return sequenceLength;
  }

  /** {@link OptimizerInfo#fullBytes}, in place of {@code optimizerStates}; 0: those count. */
  public long optimizerBytes() {
    return optimizerBytes;
  }

  /** The caller closes it. */
  fsdp2_plan_options toRaw() {
    fsdp2_plan_options raw = new fsdp2_plan_options();
    raw.setOptimizer_states(optimizerStates);
    raw.setRows(rows);
    raw.setSequence_length(sequenceLength);
    raw.setOptimizer_bytes(optimizerBytes);
    return raw;
  }

  /** Makes {@link PlanOptions}. */
  public static final class Builder {
    private double optimizerStates;
    private long rows;
    private long sequenceLength;
    private long optimizerBytes;

    private Builder() {
      try (fsdp2_plan_options raw = new fsdp2_plan_options()) {
        Raw.fsdp2_plan_options_init(raw, raw.getStruct_size());
        optimizerStates = raw.getOptimizer_states();
        rows = raw.getRows();
        sequenceLength = raw.getSequence_length();
        optimizerBytes = raw.getOptimizer_bytes();
      }
    }

    /** Elements kept for each trainable element: 2 for AdamW, 1 for SGD with momentum. */
    public Builder optimizerStates(double optimizerStates) {
      this.optimizerStates = optimizerStates;
      return this;
    }

    /**
     * Rows of a micro batch, for what ranks that share sequences exchange; 0: nothing is counted.
     */
    public Builder rows(long rows) {
      this.rows = rows;
      return this;
    }

    /** Tokens of each of these rows. */
    public Builder sequenceLength(long sequenceLength) {
      this.sequenceLength = sequenceLength;
      return this;
    }

    /** {@link OptimizerInfo#fullBytes}, in place of {@code optimizerStates}; 0: those count. */
    public Builder optimizerBytes(long optimizerBytes) {
      this.optimizerBytes = optimizerBytes;
      return this;
    }

    /** Makes the options as they are now. */
    public PlanOptions build() {
      return new PlanOptions(this);
    }
  }
}
