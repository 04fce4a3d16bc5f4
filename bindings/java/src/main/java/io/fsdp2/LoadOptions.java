package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_load_options;

/** How a checkpoint is loaded. What a builder is not told keeps the library's default. */
public final class LoadOptions {
  private final boolean partial;
  private final boolean noRng;
  private final boolean fromRank0;

  private LoadOptions(Builder builder) {
    partial = builder.partial;
    noRng = builder.noRng;
    fromRank0 = builder.fromRank0;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** Skip names that only the run or only the checkpoint has. */
  public boolean partial() {
    return partial;
  }

  /** Leave the random generator as it is. */
  public boolean noRng() {
    return noRng;
  }

  /** Rank 0 alone reads, and sends one tensor after the other. */
  public boolean fromRank0() {
    return fromRank0;
  }

  /** The caller closes it. */
  fsdp2_load_options toRaw() {
    fsdp2_load_options raw = new fsdp2_load_options();
    raw.setPartial(partial ? 1 : 0);
    raw.setNo_rng(noRng ? 1 : 0);
    raw.setFrom_rank0(fromRank0 ? 1 : 0);
    return raw;
  }

  /** Makes {@link LoadOptions}. */
  public static final class Builder {
    private boolean partial;
    private boolean noRng;
    private boolean fromRank0;

    private Builder() {
      try (fsdp2_load_options raw = new fsdp2_load_options()) {
        Raw.fsdp2_load_options_init(raw, raw.getStruct_size());
        partial = raw.getPartial() != 0;
        noRng = raw.getNo_rng() != 0;
        fromRank0 = raw.getFrom_rank0() != 0;
      }
    }

    /** Skip names that only the run or only the checkpoint has. */
    public Builder partial(boolean partial) {
      this.partial = partial;
      return this;
    }

    /** Leave the random generator as it is. */
    public Builder noRng(boolean noRng) {
      this.noRng = noRng;
      return this;
    }

    /** Rank 0 alone reads, and sends one tensor after the other. */
    public Builder fromRank0(boolean fromRank0) {
      this.fromRank0 = fromRank0;
      return this;
    }

    /** Makes the options as they are now. */
    public LoadOptions build() {
      return new LoadOptions(this);
    }
  }
}
