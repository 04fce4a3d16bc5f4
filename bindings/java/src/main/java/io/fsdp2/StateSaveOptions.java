package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_state_save_options;

/** How a state is saved. What a builder is not told keeps the library's default. */
public final class StateSaveOptions {
  private final boolean safetensors;
  private final int threads;
  private final boolean filePerTensor;
  private final boolean noOverwrite;

  private StateSaveOptions(Builder builder) {
    safetensors = builder.safetensors;
    threads = builder.threads;
    filePerTensor = builder.filePerTensor;
    noOverwrite = builder.noOverwrite;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** Sharded safetensors: tensors only, one chunk of each per rank. */
  public boolean safetensors() {
    return safetensors;
  }

  /** Writers on each rank. */
  public int threads() {
    return threads;
  }

  /** One file for each tensor. */
  public boolean filePerTensor() {
    return filePerTensor;
  }

  /** Fail if anything exists at the path. */
  public boolean noOverwrite() {
    return noOverwrite;
  }

  /** The caller closes it. */
  fsdp2_state_save_options toRaw() {
    fsdp2_state_save_options raw = new fsdp2_state_save_options();
    raw.setSafetensors(safetensors ? 1 : 0);
    raw.setThreads(threads);
    raw.setFile_per_tensor(filePerTensor ? 1 : 0);
    raw.setNo_overwrite(noOverwrite ? 1 : 0);
    return raw;
  }

  /** Makes {@link StateSaveOptions}. */
  public static final class Builder {
    private boolean safetensors;
    private int threads;
    private boolean filePerTensor;
    private boolean noOverwrite;

    private Builder() {
      try (fsdp2_state_save_options raw = new fsdp2_state_save_options()) {
        Raw.fsdp2_state_save_options_init(raw, raw.getStruct_size());
        safetensors = raw.getSafetensors() != 0;
        threads = raw.getThreads();
        filePerTensor = raw.getFile_per_tensor() != 0;
        noOverwrite = raw.getNo_overwrite() != 0;
      }
    }

    /** Sharded safetensors: tensors only, one chunk of each per rank. */
    public Builder safetensors(boolean safetensors) {
      this.safetensors = safetensors;
      return this;
    }

    /** Writers on each rank. */
    public Builder threads(int threads) {
      this.threads = threads;
      return this;
    }

    /** One file for each tensor. */
    public Builder filePerTensor(boolean filePerTensor) {
      this.filePerTensor = filePerTensor;
      return this;
    }

    /** Fail if anything exists at the path. */
    public Builder noOverwrite(boolean noOverwrite) {
      this.noOverwrite = noOverwrite;
      return this;
    }

    /** Makes the options as they are now. */
    public StateSaveOptions build() {
      return new StateSaveOptions(this);
    }
  }
}
