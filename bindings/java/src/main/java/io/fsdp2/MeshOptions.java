package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_mesh_options;
import java.util.List;

/**
 * Who this rank is and where the others are. What stays open comes from the launcher's environment.
 * What a builder is not told keeps the library's default.
 */
public final class MeshOptions {
  private final Backend backend;
  private final int rank;
  private final int worldSize;
  private final int localRank;
  private final long[] shape;
  private final List<String> names;
  private final String rendezvous;
  private final long timeoutMs;
  private final long fsdpSize;
  private final int[] ranks;
  private final String deviceType;
  private final long ulyssesSize;

  private MeshOptions(Builder builder) {
    backend = builder.backend;
    rank = builder.rank;
    worldSize = builder.worldSize;
    localRank = builder.localRank;
    shape = builder.shape;
    names = builder.names;
    rendezvous = builder.rendezvous;
    timeoutMs = builder.timeoutMs;
    fsdpSize = builder.fsdpSize;
    ranks = builder.ranks;
    deviceType = builder.deviceType;
    ulyssesSize = builder.ulyssesSize;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /** What carries the collectives. */
  public Backend backend() {
    return backend;
  }

  /** This rank's number; -1: from the environment. */
  public int rank() {
    return rank;
  }

  /** How many ranks there are; -1: from the environment. */
  public int worldSize() {
    return worldSize;
  }

  /** Its number on this machine; -1: from the environment. */
  public int localRank() {
    return localRank;
  }

  /**
   * Sizes of the dims, whose product is the world size; one may be -1. Empty: {@code fsdpSize}
   * decides.
   */
  public long[] shape() {
    return shape;
  }

  /** Distinct names of the dims, as many as {@code shape} has; none: the dims have no names. */
  public List<String> names() {
    return names;
  }

  /**
   * Where the ranks meet: env:// (if null), tcp://host:port, file:///path, thread://name, fake://.
   */
  public String rendezvous() {
    return rendezvous;
  }

  /** How long every collective may take, in milliseconds. */
  public long timeoutMs() {
    return timeoutMs;
  }

  /**
   * Without a shape: the size of the dim "fsdp", beside which replicas make the dim "ddp"; 0: all
   * ranks; -1: replicas only.
   */
  public long fsdpSize() {
    return fsdpSize;
  }

  /** With a shape: the ranks of this mesh, row-major. Empty: all. */
  public int[] ranks() {
    return ranks;
  }

  /** "cpu" (if null) or "cuda". */
  public String deviceType() {
    return deviceType;
  }

  /**
   * Without a shape: so many consecutive ranks share sequences, along a last dim "cp"; 0 or 1: none
   * do.
   */
  public long ulyssesSize() {
    return ulyssesSize;
  }

  /** The caller closes it. */
  fsdp2_mesh_options toRaw() {
    fsdp2_mesh_options raw = new fsdp2_mesh_options();
    raw.setBackend(backend.number());
    raw.setRank(rank);
    raw.setWorld_size(worldSize);
    raw.setLocal_rank(localRank);
    raw.setDims(
        shape.length,
        shape.length == 0 ? null : shape,
        names.isEmpty() ? null : names.toArray(String[]::new));

    raw.setRendezvous(rendezvous);
    raw.setTimeout_ms(timeoutMs);
    raw.setFsdp_size(fsdpSize);
    if (ranks.length > 0) {
      raw.setRanks(ranks.length, ranks);
    }
    raw.setDeviceType(deviceType);
    raw.setUlysses_size(ulyssesSize);
    return raw;
  }

  /** Makes {@link MeshOptions}. */
  public static final class Builder {
    private Backend backend;
    private int rank;
    private int worldSize;
    private int localRank;
    private long[] shape = {};
    private List<String> names = List.of();
    private String rendezvous;
    private long timeoutMs;
    private long fsdpSize;
    private int[] ranks = {};
    private String deviceType;
    private long ulyssesSize;

    private Builder() {
      try (fsdp2_mesh_options raw = new fsdp2_mesh_options()) {
        Raw.fsdp2_mesh_options_init(raw, raw.getStruct_size());
        backend = Backend.of(raw.getBackend());
        rank = raw.getRank();
        worldSize = raw.getWorld_size();
        localRank = raw.getLocal_rank();
        timeoutMs = raw.getTimeout_ms();
        fsdpSize = raw.getFsdp_size();
        ulyssesSize = raw.getUlysses_size();
      }
    }

    /** What carries the collectives. */
    public Builder backend(Backend backend) {
      this.backend = backend;
      return this;
    }

    /** This rank's number; -1: from the environment. */
    public Builder rank(int rank) {
      this.rank = rank;
      return this;
    }

    /** How many ranks there are; -1: from the environment. */
    public Builder worldSize(int worldSize) {
      this.worldSize = worldSize;
      return this;
    }

    /** Its number on this machine; -1: from the environment. */
    public Builder localRank(int localRank) {
      this.localRank = localRank;
      return this;
    }

    /**
     * Sizes of the dims, whose product is the world size; one may be -1. None: {@code fsdpSize}
     * decides.
     */
    public Builder shape(long... shape) {
      this.shape = shape.clone();
      return this;
    }

    /** Distinct names of the dims, as many as {@code shape} has; none: the dims have no names. */
    public Builder names(String... names) {
      this.names = List.of(names);
      return this;
    }

    /**
     * Where the ranks meet: env:// (if null), tcp://host:port, file:///path, thread://name,
     * fake://.
     */
    public Builder rendezvous(String rendezvous) {
      this.rendezvous = rendezvous;
      return this;
    }

    /** How long every collective may take, in milliseconds. */
    public Builder timeoutMs(long timeoutMs) {
      this.timeoutMs = timeoutMs;
      return this;
    }

    /**
     * Without a shape: the size of the dim "fsdp", beside which replicas make the dim "ddp"; 0: all
     * ranks; -1: replicas only.
     */
    public Builder fsdpSize(long fsdpSize) {
      this.fsdpSize = fsdpSize;
      return this;
    }

    /** With a shape: the ranks of this mesh, row-major. None: all. */
    public Builder ranks(int... ranks) {
      this.ranks = ranks.clone();
      return this;
    }

    /** "cpu" (if null) or "cuda". */
    public Builder deviceType(String deviceType) {
      this.deviceType = deviceType;
      return this;
    }

    /**
     * Without a shape: so many consecutive ranks share sequences, along a last dim "cp"; 0 or 1:
     * none do.
     */
    public Builder ulyssesSize(long ulyssesSize) {
      this.ulyssesSize = ulyssesSize;
      return this;
    }

    /**
     * Makes the options as they are now.
     *
     * @throws IllegalArgumentException if there are names, but not one for each dim of the shape
     */
    public MeshOptions build() {
      if (!names.isEmpty() && names.size() != shape.length) {
        throw new IllegalArgumentException(
            "names: expected none, or one for each of "
                + shape.length
                + " dims of the shape, found "
                + names.size());
      }
      return new MeshOptions(this);
    }
  }
}
