package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_save_options;

/** How a checkpoint is saved. What a builder is not told keeps the library's default. */
public final class SaveOptions {
  private final CheckpointFormat format;
  private final boolean background;
  private final int keepLast;
  private final boolean noRng;
  private final DType dtype;
  private final long maxFileBytes;
  private final boolean noOverwrite;
  private final boolean allowNotFinite;

  private SaveOptions(Builder builder) {
    format = builder.format;
    background = builder.background;
    keepLast = builder.keepLast;
    noRng = builder.noRng;
    dtype = builder.dtype;
    maxFileBytes = builder.maxFileBytes;
    noOverwrite = builder.noOverwrite;
    allowNotFinite = builder.allowNotFinite;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** Its form. */
  public CheckpointFormat format() {
    return format;
  }

  /** Return once a copy has been made; sharded only. */
  public boolean background() {
    return background;
  }

  /** Keep only so many of a series DIR/step-00000100, DIR/step-00000200, ...; 0: all. */
  public int keepLast() {
    return keepLast;
  }

  /** Leave out the random generator. */
  public boolean noRng() {
    return noRng;
  }

  /** To which the file rounds parameters; not sharded. */
  public DType dtype() {
    return dtype;
  }

  /** Split a model directory's weights above this size; 0: 5 GiB. */
  public long maxFileBytes() {
    return maxFileBytes;
  }

  /** Fail if anything exists at the path. */
  public boolean noOverwrite() {
    return noOverwrite;
  }

  /** Save even values that a step has made infinite or NaN. */
  public boolean allowNotFinite() {
    return allowNotFinite;
  }

  /** The caller closes it. */
  fsdp2_save_options toRaw() {
    fsdp2_save_options raw = new fsdp2_save_options();
    raw.setFormat(format.number());
    raw.setBackground(background ? 1 : 0);
    raw.setKeep_last(keepLast);
    raw.setNo_rng(noRng ? 1 : 0);
    raw.setDtype(dtype.number());
    raw.setMax_file_bytes(maxFileBytes);
    raw.setNo_overwrite(noOverwrite ? 1 : 0);
    raw.setAllow_not_finite(allowNotFinite ? 1 : 0);
    return raw;
  }

  /** Makes {@link SaveOptions}. */
  public static final class Builder {
    private CheckpointFormat format;
    private boolean background;
    private int keepLast;
    private boolean noRng;
    private DType dtype;
    private long maxFileBytes;
    private boolean noOverwrite;
    private boolean allowNotFinite;

    private Builder() {
      try (fsdp2_save_options raw = new fsdp2_save_options()) {
        Raw.fsdp2_save_options_init(raw, raw.getStruct_size());
        format = CheckpointFormat.of(raw.getFormat());
        background = raw.getBackground() != 0;
        keepLast = raw.getKeep_last();
        noRng = raw.getNo_rng() != 0;
        dtype = DType.of(raw.getDtype());
        maxFileBytes = raw.getMax_file_bytes();
        noOverwrite = raw.getNo_overwrite() != 0;
        allowNotFinite = raw.getAllow_not_finite() != 0;
      }
    }

    /** Its form. */
    public Builder format(CheckpointFormat format) {
      this.format = format;
      return this;
    }

    /** Return once a copy has been made; sharded only. */
    public Builder background(boolean background) {
      this.background = background;
      return this;
    }

    /** Keep only so many of a series DIR/step-00000100, DIR/step-00000200, ...; 0: all. */
    public Builder keepLast(int keepLast) {
      this.keepLast = keepLast;
      return this;
    }

    /** Leave out the random generator. */
    public Builder noRng(boolean noRng) {
      this.noRng = noRng;
      return this;
    }

    /** To which the file rounds parameters; not sharded. */
    public Builder dtype(DType dtype) {
      this.dtype = dtype;
      return this;
    }

    /** Split a model directory's weights above this size; 0: 5 GiB. */
    public Builder maxFileBytes(long maxFileBytes) {
      this.maxFileBytes = maxFileBytes;
      return this;
    }

    /** Fail if anything exists at the path. */
    public Builder noOverwrite(boolean noOverwrite) {
      this.noOverwrite = noOverwrite;
      return this;
    }

    /** Save even values that a step has made infinite or NaN. */
    public Builder allowNotFinite(boolean allowNotFinite) {
      this.allowNotFinite = allowNotFinite;
      return this;
    }

    /** Makes the options as they are now. */
    public SaveOptions build() {
      return new SaveOptions(this);
    }
  }
}
