package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_module_options;

/** How a module is made. What a builder is not told keeps the library's default. */
public final class ModuleOptions {
  private final DType dtype;
  private final long seed;
  private final String configOverrides;
  private final boolean plainOperators;

  private ModuleOptions(Builder builder) {
    dtype = builder.dtype;
    seed = builder.seed;
    configOverrides = builder.configOverrides;
    plainOperators = builder.plainOperators;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** The parameters' dtype; {@link DType#KEEP}: fp32, or that of an exported program. */
  public DType dtype() {
    return dtype;
  }

  /** For dropout, and for the initial values if there are no weights to read. */
  public long seed() {
    return seed;
  }

  /** The text of a JSON object: fields that are changed in config.json; null: none. */
  public String configOverrides() {
    return configOverrides;
  }

  /** Whether a program of torch.export runs as the operators in its file alone. */
  public boolean plainOperators() {
    return plainOperators;
  }

  /** The caller closes it. */
  fsdp2_module_options toRaw() {
    fsdp2_module_options raw = new fsdp2_module_options();
    raw.setDtype(dtype.number());
    raw.setSeed(seed);
    raw.setConfigOverrides(configOverrides);
    raw.setPlain_operators(plainOperators ? 1 : 0);
    return raw;
  }

  /** Makes {@link ModuleOptions}. */
  public static final class Builder {
    private DType dtype;
    private long seed;
    private String configOverrides;
    private boolean plainOperators;

    private Builder() {
      try (fsdp2_module_options raw = new fsdp2_module_options()) {
        Raw.fsdp2_module_options_init(raw, raw.getStruct_size());
        dtype = DType.of(raw.getDtype());
        seed = raw.getSeed();
        plainOperators = raw.getPlain_operators() != 0;
      }
    }

    /** The parameters' dtype; {@link DType#KEEP}: fp32, or that of an exported program. */
    public Builder dtype(DType dtype) {
      this.dtype = dtype;
      return this;
    }

    /** For dropout, and for the initial values if there are no weights to read. */
    public Builder seed(long seed) {
      this.seed = seed;
      return this;
    }

    /** Fields that are changed in config.json, as JSON. Weights that are read must still fit. */
    public Builder configOverrides(String configOverrides) {
      this.configOverrides = configOverrides;
      return this;
    }

    /**
     * Runs a program of torch.export as the operators in its file: none of the library's, which are
     * faster, differ by rounding alone and mostly have no second derivatives, takes their place.
     */
    public Builder plainOperators(boolean plainOperators) {
      this.plainOperators = plainOperators;
      return this;
    }

    /** Makes the options as they are now. */
    public ModuleOptions build() {
      return new ModuleOptions(this);
    }
  }
}
