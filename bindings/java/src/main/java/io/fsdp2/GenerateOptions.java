package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_generate_options;

/**
 * How a language model goes on with a text. What a builder is not told keeps the library's default.
 */
public final class GenerateOptions {
  private final int maxNewTokens;
  private final int topK;
  private final double topP;
  private final double temperature;
  private final long seed;
  private final int reshardAfterForward;
  private final long firstRow;
  private final long[] stopTokens;
  private final Tensor[] visionInputs;

  private GenerateOptions(Builder builder) {
    maxNewTokens = builder.maxNewTokens;
    topK = builder.topK;
    topP = builder.topP;
    temperature = builder.temperature;
    seed = builder.seed;
    reshardAfterForward = builder.reshardAfterForward;
    firstRow = builder.firstRow;
    stopTokens = builder.stopTokens;
    visionInputs = builder.visionInputs;
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

  /** Only the fewest of those whose probabilities add up to it are drawn from; 0: all. */
  public double topP() {
    return topP;
  }

  /** 0: always the most likely token. */
  public double temperature() {
    return temperature;
  }

  /** The seed of the draws. */
  public long seed() {
    return seed;
  }

  /** As in {@link InferOptions}; each token takes a forward. */
  public int reshardAfterForward() {
    return reshardAfterForward;
  }

  /** The number of this rank's first prompt among those of all ranks. */
  public long firstRow() {
    return firstRow;
  }

  /** Each ends the text that it is generated in. */
  public long[] stopTokens() {
    return stopTokens;
  }

  /**
   * Images and videos of this rank's prompts, row by row: the inputs of {@link Module#forward} from
   * pixel_values on, null for one that is left out.
   */
  public Tensor[] visionInputs() {
    return visionInputs;
  }

  /** The caller closes it. */
  fsdp2_generate_options toRaw() {
    fsdp2_generate_options raw = new fsdp2_generate_options();
    raw.setMax_new_tokens(maxNewTokens);
    raw.setTop_k(topK);
    raw.setTop_p(topP);
    raw.setTemperature(temperature);
    raw.setSeed(seed);
    raw.setReshard_after_forward(reshardAfterForward);
    raw.setFirst_row(firstRow);
    raw.setStopTokens(stopTokens.length, stopTokens);
    raw.setVisionInputs(visionInputs.length, Tensor.ids(visionInputs));
    return raw;
  }

  /** Makes {@link GenerateOptions}. */
  public static final class Builder {
    private int maxNewTokens;
    private int topK;
    private double topP;
    private double temperature;
    private long seed;
    private int reshardAfterForward;
    private long firstRow;
    private long[] stopTokens = {};
    private Tensor[] visionInputs = {};

    private Builder() {
      try (fsdp2_generate_options raw = new fsdp2_generate_options()) {
        Raw.fsdp2_generate_options_init(raw, raw.getStruct_size());
        maxNewTokens = raw.getMax_new_tokens();
        topK = raw.getTop_k();
        topP = raw.getTop_p();
        temperature = raw.getTemperature();
        seed = raw.getSeed();
        reshardAfterForward = raw.getReshard_after_forward();
        firstRow = raw.getFirst_row();
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

    /** Only the fewest of those whose probabilities add up to it are drawn from; 0: all. */
    public Builder topP(double topP) {
      this.topP = topP;
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

    /** As in {@link InferOptions}; each token takes a forward. */
    public Builder reshardAfterForward(int reshardAfterForward) {
      this.reshardAfterForward = reshardAfterForward;
      return this;
    }

    /** The number of this rank's first prompt among those of all ranks. */
    public Builder firstRow(long firstRow) {
      this.firstRow = firstRow;
      return this;
    }

    /** Each ends the text that it is generated in. */
    public Builder stopTokens(long... stopTokens) {
      this.stopTokens = stopTokens.clone();
      return this;
    }

    /**
     * Images and videos of this rank's prompts, row by row: the inputs of {@link Module#forward}
     * from pixel_values on, null for one that is left out.
     */
    public Builder visionInputs(Tensor... visionInputs) {
      this.visionInputs = visionInputs.clone();
      return this;
    }

    /** Makes the options as they are now. */
    public GenerateOptions build() {
      return new GenerateOptions(this);
    }
  }
}
