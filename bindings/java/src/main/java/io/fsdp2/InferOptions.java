package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_infer_options;

/** How the rows of a batch are scored. What a builder is not told keeps the library's default. */
public final class InferOptions {
  private final int reshardAfterForward;
  private final long batchSize;
  private final long chunkSize;
  private final double temperature;

  private InferOptions(Builder builder) {
    reshardAfterForward = builder.reshardAfterForward;
    batchSize = builder.batchSize;
    chunkSize = builder.chunkSize;
    temperature = builder.temperature;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /**
   * {@link Reshard#AUTO}: as the units have it; {@link Reshard#ALWAYS}; or {@link Reshard#NEVER}:
   * what is gathered serves all forwards of the call, which frees it at its end.
   */
  public int reshardAfterForward() {
    return reshardAfterForward;
  }

  /** Rows of one forward, of which the last may have fewer; 0: all. */
  public long batchSize() {
    return batchSize;
  }

  /** Tokens whose logits exist at a time; 0: by the vocabulary. */
  public long chunkSize() {
    return chunkSize;
  }

  /** Above 0; logits are divided by it. */
  public double temperature() {
    return temperature;
  }

  /** The caller closes it. */
  fsdp2_infer_options toRaw() {
    fsdp2_infer_options raw = new fsdp2_infer_options();
    raw.setReshard_after_forward(reshardAfterForward);
    raw.setBatch_size(batchSize);
    raw.setChunk_size(chunkSize);
    raw.setTemperature(temperature);
    return raw;
  }

  /** Makes {@link InferOptions}. */
  public static final class Builder {
    private int reshardAfterForward;
    private long batchSize;
    private long chunkSize;
    private double temperature;

    private Builder() {
      try (fsdp2_infer_options raw = new fsdp2_infer_options()) {
        Raw.fsdp2_infer_options_init(raw, raw.getStruct_size());
        reshardAfterForward = raw.getReshard_after_forward();
        batchSize = raw.getBatch_size();
        chunkSize = raw.getChunk_size();
        temperature = raw.getTemperature();
      }
    }

    /**
     * {@link Reshard#AUTO}: as the units have it; {@link Reshard#ALWAYS}; or {@link Reshard#NEVER}:
     * what is gathered serves all forwards of the call, which frees it at its end.
     */
    public Builder reshardAfterForward(int reshardAfterForward) {
      this.reshardAfterForward = reshardAfterForward;
      return this;
    }

    /** Rows of one forward, of which the last may have fewer; 0: all. */
    public Builder batchSize(long batchSize) {
      this.batchSize = batchSize;
      return this;
    }

    /** Tokens whose logits exist at a time; 0: by the vocabulary. */
    public Builder chunkSize(long chunkSize) {
      this.chunkSize = chunkSize;
      return this;
    }

    /** Above 0; logits are divided by it. */
    public Builder temperature(double temperature) {
      this.temperature = temperature;
      return this;
    }

    /** Makes the options as they are now. */
    public InferOptions build() {
      return new InferOptions(this);
    }
  }
}
