package io.fsdp2;

import java.util.List;

/** What lowers a configuration, beside its text. */
public final class ConfigOptions {
  private final String name;
  private final String role;
  private final List<String> sets;
  private final int worldSize;

  private ConfigOptions(Builder builder) {
    name = builder.name;
    role = builder.role;
    sets = builder.sets;
    worldSize = builder.worldSize;
  }

  /** Begins with no options. */
  public static Builder builder() {
    return new Builder();
  }

  /** What messages call the text, usually the name of its file; null: "config". */
  public String name() {
    return name;
  }

  /** The role to train, where the configuration has several; null: the only one. */
  public String role() {
    return role;
  }

  /** Assignments "path.to.key=value" to keys of the configuration, which go before it. */
  public List<String> sets() {
    return sets;
  }

  /** Settles what depends on the number of ranks, such as global_batch; 0 leaves it open. */
  public int worldSize() {
    return worldSize;
  }

  /** Makes {@link ConfigOptions}. */
  public static final class Builder {
    private String name;
    private String role;
    private List<String> sets = List.of();
    private int worldSize;

    private Builder() {}

    /** What messages call the text, usually the name of its file; null: "config". */
    public Builder name(String name) {
      this.name = name;
      return this;
    }

    /** The role to train, where the configuration has several; null: the only one. */
    public Builder role(String role) {
      this.role = role;
      return this;
    }

    /** Assignments "path.to.key=value" to keys of the configuration, which go before it. */
    public Builder sets(String... sets) {
      this.sets = List.of(sets);
      return this;
    }

    /** Settles what depends on the number of ranks, such as global_batch; 0 leaves it open. */
    public Builder worldSize(int worldSize) {
      this.worldSize = worldSize;
      return this;
    }

    /** Makes the options as they are now. */
    public ConfigOptions build() {
      return new ConfigOptions(this);
    }
  }
}
