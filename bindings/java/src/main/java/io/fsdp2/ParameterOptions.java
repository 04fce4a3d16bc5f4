package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_parameter_options;

/**
 * What a parameter of a custom module is like. What a builder is not told keeps the library's
 * default.
 */
public final class ParameterOptions {
  private final DType dtype;
  private final Init init;
  private final double std;

  private ParameterOptions(Builder builder) {
    dtype = builder.dtype;
    init = builder.init;
    std = builder.std;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** Its type; {@link DType#KEEP}: that of its module. */
  public DType dtype() {
    return dtype;
  }

  /** What it begins with. */
  public Init init() {
    return init;
  }

  /** The standard deviation of {@link Init#NORMAL}. */
  public double std() {
    return std;
  }

  /** The caller closes it. */
  fsdp2_parameter_options toRaw() {
    fsdp2_parameter_options raw = new fsdp2_parameter_options();
    raw.setDtype(dtype.number());
    raw.setInit(init.number());
    raw.setStd(std);
    return raw;
  }

  /** Makes {@link ParameterOptions}. */
  public static final class Builder {
    private DType dtype;
    private Init init;
    private double std;

    private Builder() {
      try (fsdp2_parameter_options raw = new fsdp2_parameter_options()) {
        Raw.fsdp2_parameter_options_init(raw, raw.getStruct_size());
        dtype = DType.of(raw.getDtype());
        init = Init.of(raw.getInit());
        std = raw.getStd();
      }
    }

    /** Its type; {@link DType#KEEP}: that of its module. */
    public Builder dtype(DType dtype) {
      this.dtype = dtype;
      return this;
    }

    /** What it begins with. */
    public Builder init(Init init) {
      this.init = init;
      return this;
    }

    /** The standard deviation of {@link Init#NORMAL}. */
    public Builder std(double std) {
      this.std = std;
      return this;
    }

    /** Makes the options as they are now. */
    public ParameterOptions build() {
      return new ParameterOptions(this);
    }
  }
}
