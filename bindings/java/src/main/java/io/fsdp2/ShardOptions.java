package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_shard_options;
import java.util.List;

/**
 * How a module is cut over the ranks of a mesh. What a builder is not told keeps the library's
 * default.
 */
public final class ShardOptions {
  private final int reshardAfterForward;
  private final DType paramDtype;
  private final DType reduceDtype;
  private final DType outputDtype;
  private final boolean noCastForwardInputs;
  private final boolean cpuOffload;
  private final Wrap wrap;
  private final CommPath commPath;
  private final int prefetch;
  private final boolean noPinMemory;
  private final CommSchedule commSchedule;
  private final boolean loadFromRank0;
  private final int modulesPerUnit;
  private final boolean wrapEmbeddings;
  private final boolean wrapHead;
  private final boolean deferValues;
  private final boolean keepBuffers;
  private final boolean oneCommunicator;
  private final long wrapMinNumel;
  private final List<String> wrapKinds;
  private final List<String> wrapNames;
  private final List<String> ignoredNames;
  private final ShardDim shardDim;

  private ShardOptions(Builder builder) {
    reshardAfterForward = builder.reshardAfterForward;
    paramDtype = builder.paramDtype;
    reduceDtype = builder.reduceDtype;
    outputDtype = builder.outputDtype;
    noCastForwardInputs = builder.noCastForwardInputs;
    cpuOffload = builder.cpuOffload;
    wrap = builder.wrap;
    commPath = builder.commPath;
    prefetch = builder.prefetch;
    noPinMemory = builder.noPinMemory;
    commSchedule = builder.commSchedule;
    loadFromRank0 = builder.loadFromRank0;
    modulesPerUnit = builder.modulesPerUnit;
    wrapEmbeddings = builder.wrapEmbeddings;
    wrapHead = builder.wrapHead;
    deferValues = builder.deferValues;
    keepBuffers = builder.keepBuffers;
    oneCommunicator = builder.oneCommunicator;
    wrapMinNumel = builder.wrapMinNumel;
    wrapKinds = builder.wrapKinds;
    wrapNames = builder.wrapNames;
    ignoredNames = builder.ignoredNames;
    shardDim = builder.shardDim;
  }

  /** Begins with the library's defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /**
   * What forward leaves of a unit's gathered parameters: {@link Reshard#AUTO}, {@link
   * Reshard#ALWAYS}, {@link Reshard#NEVER}, or n for 1/n of them.
   */
  public int reshardAfterForward() {
    return reshardAfterForward;
  }

  /** For gathering and computing. */
  public DType paramDtype() {
    return paramDtype;
  }

  /** For reducing gradients. */
  public DType reduceDtype() {
    return reduceDtype;
  }

  /** For floating-point outputs of the root. */
  public DType outputDtype() {
    return outputDtype;
  }

  /** Leave floating-point inputs in their dtype. */
  public boolean noCastForwardInputs() {
    return noCastForwardInputs;
  }

  /** Keep shards, gradients and optimizer states in host memory. */
  public boolean cpuOffload() {
    return cpuOffload;
  }

  /** Which modules become units. */
  public Wrap wrap() {
    return wrap;
  }

  /** How parameters travel. */
  public CommPath commPath() {
    return commPath;
  }

  /** Units gathered ahead of use; -1: none, 0: one. */
  public int prefetch() {
    return prefetch;
  }

  /** {@code cpuOffload} uses ordinary memory. */
  public boolean noPinMemory() {
    return noPinMemory;
  }

  /** When units are gathered and reduced. */
  public CommSchedule commSchedule() {
    return commSchedule;
  }

  /** Rank 0 alone reads the weights, and broadcasts them. */
  public boolean loadFromRank0() {
    return loadFromRank0;
  }

  /** Consecutive siblings that make one unit; 0: one. */
  public int modulesPerUnit() {
    return modulesPerUnit;
  }

  /** Each embedding table is a unit. */
  public boolean wrapEmbeddings() {
    return wrapEmbeddings;
  }

  /** The language-model head is a unit. */
  public boolean wrapHead() {
    return wrapHead;
  }

  /** Parameters get their values later. */
  public boolean deferValues() {
    return deferValues;
  }

  /** The memory of gathered parameters, and of what travels, is kept from step to step. */
  public boolean keepBuffers() {
    return keepBuffers;
  }

  /** Reductions share the connections of the gathers, in one order on all ranks. */
  public boolean oneCommunicator() {
    return oneCommunicator;
  }

  /** A module with so many elements of its own is a unit; 0: none is for that. */
  public long wrapMinNumel() {
    return wrapMinNumel;
  }

  /** With {@link Wrap#KINDS}: class names. */
  public List<String> wrapKinds() {
    return wrapKinds;
  }

  /** More modules, each of which is a unit. */
  public List<String> wrapNames() {
    return wrapNames;
  }

  /** Parameters to leave alone: not sharded, whole on every rank. */
  public List<String> ignoredNames() {
    return ignoredNames;
  }

  /** Chooses the dim that each parameter is cut on; null: dim 0. */
  public ShardDim shardDim() {
    return shardDim;
  }

  /** The caller closes it. */
  fsdp2_shard_options toRaw() {
    fsdp2_shard_options raw = new fsdp2_shard_options();
    raw.setReshard_after_forward(reshardAfterForward);
    raw.setParam_dtype(paramDtype.number());
    raw.setReduce_dtype(reduceDtype.number());
    raw.setOutput_dtype(outputDtype.number());
    raw.setNo_cast_forward_inputs(noCastForwardInputs ? 1 : 0);
    raw.setCpu_offload(cpuOffload ? 1 : 0);
    raw.setWrap(wrap.number());
    raw.setComm_path(commPath.number());
    raw.setPrefetch(prefetch);
    raw.setNo_pin_memory(noPinMemory ? 1 : 0);
    raw.setComm_schedule(commSchedule.number());
    raw.setLoad_from_rank0(loadFromRank0 ? 1 : 0);
    raw.setModules_per_unit(modulesPerUnit);
    raw.setWrap_embeddings(wrapEmbeddings ? 1 : 0);
    raw.setWrap_head(wrapHead ? 1 : 0);
    raw.setDefer_values(deferValues ? 1 : 0);
    raw.setKeep_buffers(keepBuffers ? 1 : 0);
    raw.setOne_communicator(oneCommunicator ? 1 : 0);
    raw.setWrap_min_numel(wrapMinNumel);
    raw.setWrapKinds(wrapKinds.size(), wrapKinds.toArray(String[]::new));
    raw.setWrapNames(wrapNames.size(), wrapNames.toArray(String[]::new));
    raw.setIgnoredNames(ignoredNames.size(), ignoredNames.toArray(String[]::new));
    if (shardDim != null) {
      raw.setShardDim(Adapters.shardDim(shardDim));
    }
    return raw;
  }

  /** Makes {@link ShardOptions}. */
  public static final class Builder {
    private int reshardAfterForward;
    private DType paramDtype;
    private DType reduceDtype;
    private DType outputDtype;
    private boolean noCastForwardInputs;
    private boolean cpuOffload;
    private Wrap wrap;
    private CommPath commPath;
    private int prefetch;
    private boolean noPinMemory;
    private CommSchedule commSchedule;
    private boolean loadFromRank0;
    private int modulesPerUnit;
    private boolean wrapEmbeddings;
    private boolean wrapHead;
    private boolean deferValues;
    private boolean keepBuffers;
    private boolean oneCommunicator;
    private long wrapMinNumel;
    private List<String> wrapKinds = List.of();
    private List<String> wrapNames = List.of();
    private List<String> ignoredNames = List.of();
    private ShardDim shardDim = null;

    private Builder() {
      try (fsdp2_shard_options raw = new fsdp2_shard_options()) {
        Raw.fsdp2_shard_options_init(raw, raw.getStruct_size());
        reshardAfterForward = raw.getReshard_after_forward();
        paramDtype = DType.of(raw.getParam_dtype());
        reduceDtype = DType.of(raw.getReduce_dtype());
        outputDtype = DType.of(raw.getOutput_dtype());
        noCastForwardInputs = raw.getNo_cast_forward_inputs() != 0;
        cpuOffload = raw.getCpu_offload() != 0;
        wrap = Wrap.of(raw.getWrap());
        commPath = CommPath.of(raw.getComm_path());
        prefetch = raw.getPrefetch();
        noPinMemory = raw.getNo_pin_memory() != 0;
        commSchedule = CommSchedule.of(raw.getComm_schedule());
        loadFromRank0 = raw.getLoad_from_rank0() != 0;
        modulesPerUnit = raw.getModules_per_unit();
        wrapEmbeddings = raw.getWrap_embeddings() != 0;
        wrapHead = raw.getWrap_head() != 0;
        deferValues = raw.getDefer_values() != 0;
        keepBuffers = raw.getKeep_buffers() != 0;
        oneCommunicator = raw.getOne_communicator() != 0;
        wrapMinNumel = raw.getWrap_min_numel();
      }
    }

    /**
     * What forward leaves of a unit's gathered parameters: {@link Reshard#AUTO}, {@link
     * Reshard#ALWAYS}, {@link Reshard#NEVER}, or n for 1/n of them.
     */
    public Builder reshardAfterForward(int reshardAfterForward) {
      this.reshardAfterForward = reshardAfterForward;
      return this;
    }

    /** For gathering and computing. */
    public Builder paramDtype(DType paramDtype) {
      this.paramDtype = paramDtype;
      return this;
    }

    /** For reducing gradients. */
    public Builder reduceDtype(DType reduceDtype) {
      this.reduceDtype = reduceDtype;
      return this;
    }

    /** For floating-point outputs of the root. */
    public Builder outputDtype(DType outputDtype) {
      this.outputDtype = outputDtype;
      return this;
    }

    /** Leave floating-point inputs in their dtype. */
    public Builder noCastForwardInputs(boolean noCastForwardInputs) {
      this.noCastForwardInputs = noCastForwardInputs;
      return this;
    }

    /** Keep shards, gradients and optimizer states in host memory. */
    public Builder cpuOffload(boolean cpuOffload) {
      this.cpuOffload = cpuOffload;
      return this;
    }

    /** Which modules become units. */
    public Builder wrap(Wrap wrap) {
      this.wrap = wrap;
      return this;
    }

    /** How parameters travel. */
    public Builder commPath(CommPath commPath) {
      this.commPath = commPath;
      return this;
    }

    /** Units gathered ahead of use; -1: none, 0: one. */
    public Builder prefetch(int prefetch) {
      this.prefetch = prefetch;
      return this;
    }

    /** {@code cpuOffload} uses ordinary memory. */
    public Builder noPinMemory(boolean noPinMemory) {
      this.noPinMemory = noPinMemory;
      return this;
    }

    /** When units are gathered and reduced. */
    public Builder commSchedule(CommSchedule commSchedule) {
      this.commSchedule = commSchedule;
      return this;
    }

    /** Rank 0 alone reads the weights, and broadcasts them. */
    public Builder loadFromRank0(boolean loadFromRank0) {
      this.loadFromRank0 = loadFromRank0;
      return this;
    }

    /** Consecutive siblings that make one unit; 0: one. */
    public Builder modulesPerUnit(int modulesPerUnit) {
      this.modulesPerUnit = modulesPerUnit;
      return this;
    }

    /** Each embedding table is a unit. */
    public Builder wrapEmbeddings(boolean wrapEmbeddings) {
      this.wrapEmbeddings = wrapEmbeddings;
      return this;
    }

    /** The language-model head is a unit. */
    public Builder wrapHead(boolean wrapHead) {
      this.wrapHead = wrapHead;
      return this;
    }

    /** Parameters get their values later. */
    public Builder deferValues(boolean deferValues) {
      this.deferValues = deferValues;
      return this;
    }

    /** The memory of gathered parameters, and of what travels, is kept from step to step. */
    public Builder keepBuffers(boolean keepBuffers) {
      this.keepBuffers = keepBuffers;
      return this;
    }

    /** Reductions share the connections of the gathers, in one order on all ranks. */
    public Builder oneCommunicator(boolean oneCommunicator) {
      this.oneCommunicator = oneCommunicator;
      return this;
    }

    /** A module with so many elements of its own is a unit; 0: none is for that. */
    public Builder wrapMinNumel(long wrapMinNumel) {
      this.wrapMinNumel = wrapMinNumel;
      return this;
    }

    /** With {@link Wrap#KINDS}: class names. */
    public Builder wrapKinds(String... wrapKinds) {
      this.wrapKinds = List.of(wrapKinds);
      return this;
    }

    /** More modules, each of which is a unit. */
    public Builder wrapNames(String... wrapNames) {
      this.wrapNames = List.of(wrapNames);
      return this;
    }

    /** Parameters to leave alone: not sharded, whole on every rank. */
    public Builder ignoredNames(String... ignoredNames) {
      this.ignoredNames = List.of(ignoredNames);
      return this;
    }

    /** Chooses the dim that each parameter is cut on; null: dim 0. */
    public Builder shardDim(ShardDim shardDim) {
      this.shardDim = shardDim;
      return this;
    }

    /** Makes the options as they are now. */
    public ShardOptions build() {
      return new ShardOptions(this);
    }
  }
}
