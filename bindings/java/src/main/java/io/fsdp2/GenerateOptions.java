package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_generate_options;

/**
 * How a language model goes on with a text. What a builder is not told keeps the library's default.
 */
public final class GenerateOptions {
  private final int maxNewTokens;
  private final int topK;
  private final double temperature;
  private final long seed;

  private GenerateOptions(Builder builder) {
    maxNewTokens = builder.maxNewTokens;
    topK = builder.topK;
    temperature = builder.temperature;
    seed = builder.seed;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** The most tokens that are made. */
  public int maxNewTokens() {
    return maxNewTokens;
  }

  /** Only the k most likely tokens are drawn from; 0: all. */
  public int topK() {
    return topK;
  }

  /** 0: always the most likely token. */
  public double temperature() {
    return temperature;
  }

  /** The seed of the draws. */
  public long seed() {
    return seed;
  }

  /** The caller closes it. */
  fsdp2_generate_options toRaw() {
    fsdp2_generate_options raw = new fsdp2_generate_options();
    raw.setMax_new_tokens(maxNewTokens);
    raw.setTop_k(topK);
    raw.setTemperature(temperature);
    raw.setSeed(seed);
    return raw;
  }

  /** Makes {@link GenerateOptions}. */
  public static final class Builder {
    private int maxNewTokens;
    private int topK;
    private double temperature;
    private long seed;

    private Builder() {
      try (fsdp2_generate_options raw = new fsdp2_generate_options()) {
        Raw.fsdp2_generate_options_init(raw, raw.getStruct_size());
        maxNewTokens = raw.getMax_new_tokens();
        topK = raw.getTop_k();
        temperature = raw.getTemperature();
        seed = raw.getSeed();
      }
    }

    /** The most tokens that are made. */
    public Builder maxNewTokens(int maxNewTokens) {
      this.maxNewTokens = maxNewTokens;
      return this;
    }

    /** Only the k most likely tokens are drawn from; 0: all. */
    public Builder topK(int topK) {
      this.topK = topK;
      return this;
    }

    /** 0: always the most likely token. */
    public Builder temperature(double temperature) {
      this.temperature = temperature;
      return this;
    }

    /** The seed of the draws. */
    public Builder seed(long seed) {
      this.seed = seed;
      return this;
    }

    /** Makes the options as they are now. */
    public GenerateOptions build() {
      return new GenerateOptions(this);
    }
  }
}
