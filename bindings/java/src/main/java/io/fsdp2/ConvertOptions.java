package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_convert_options;

/** What a checkpoint is converted to. What a builder is not told keeps the library's default. */
public final class ConvertOptions {
  private final CheckpointFormat format;
  private final boolean modelOnly;
  private final int ranks;
  private final long step;
  private final long maxFileBytes;
  private final String configPath;

  private ConvertOptions(Builder builder) {
    format = builder.format;
    modelOnly = builder.modelOnly;
    ranks = builder.ranks;
    step = builder.step;
    maxFileBytes = builder.maxFileBytes;
    configPath = builder.configPath;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** To write. */
  public CheckpointFormat format() {
    return format;
  }

  /** Leave out all but the model. */
  public boolean modelOnly() {
    return modelOnly;
  }

  /** The number of per-rank files; 0: one. */
  public int ranks() {
    return ranks;
  }

  /** The number in the names of per-rank files. */
  public long step() {
    return step;
  }

  /** As in {@link SaveOptions}. */
  public long maxFileBytes() {
    return maxFileBytes;
  }

  /** A config.json for a model directory; null: the source's. */
  public String configPath() {
    return configPath;
  }

  /** The caller closes it. */
  fsdp2_convert_options toRaw() {
    fsdp2_convert_options raw = new fsdp2_convert_options();
    raw.setFormat(format.number());
    raw.setModel_only(modelOnly ? 1 : 0);
    raw.setRanks(ranks);
    raw.setStep(step);
    raw.setMax_file_bytes(maxFileBytes);
    raw.setConfigPath(configPath);
    return raw;
  }

  /** Makes {@link ConvertOptions}. */
  public static final class Builder {
    private CheckpointFormat format;
    private boolean modelOnly;
    private int ranks;
    private long step;
    private long maxFileBytes;
    private String configPath;

    private Builder() {
      try (fsdp2_convert_options raw = new fsdp2_convert_options()) {
        Raw.fsdp2_convert_options_init(raw, raw.getStruct_size());
        format = CheckpointFormat.of(raw.getFormat());
        modelOnly = raw.getModel_only() != 0;
        ranks = raw.getRanks();
        step = raw.getStep();
        maxFileBytes = raw.getMax_file_bytes();
      }
    }

    /** To write. */
    public Builder format(CheckpointFormat format) {
      this.format = format;
      return this;
    }

    /** Leave out all but the model. */
    public Builder modelOnly(boolean modelOnly) {
      this.modelOnly = modelOnly;
      return this;
    }

    /** The number of per-rank files; 0: one. */
    public Builder ranks(int ranks) {
      this.ranks = ranks;
      return this;
    }

    /** The number in the names of per-rank files. */
    public Builder step(long step) {
      this.step = step;
      return this;
    }

    /** As in {@link SaveOptions}. */
    public Builder maxFileBytes(long maxFileBytes) {
      this.maxFileBytes = maxFileBytes;
      return this;
    }

    /** A config.json for a model directory; null: the source's. */
    public Builder configPath(String configPath) {
      this.configPath = configPath;
      return this;
    }

    /** Makes the options as they are now. */
    public ConvertOptions build() {
      return new ConvertOptions(this);
    }
  }
}
