package io.fsdp2;

import io.fsdp2.internal.Raw;

/** The library itself: its version, its objects, and settings of the whole process. */
public final class FsdpRuntime {
  private FsdpRuntime() {}

  /** The library's version: major * 65536 + minor. The classes have checked that it is theirs. */
  public static int version() {
    return Raw.fsdp2_version();
  }

  /** The version that these classes were built for, in the same form. */
  public static int builtFor() {
    return Raw.FSDP2_HEADER_VERSION;
  }

  /** The number of objects of this process that have not ended yet. */
  public static long liveHandles() {
    return Raw.fsdp2_live_handles();
  }

  /** What runs here, in lines of "key: value". */
  public static String describe() {
    return Handle.text(Raw::fsdp2_runtime_describe);
  }

  /** Sets the CPU threads per operation, for this thread and for later threads of the process. */
  public static void setThreads(int threads) {
    Raw.fsdp2_runtime_set_threads(threads);
  }

  /** Chooses what computes the fp32 products of linear layers on a CPU. */
  public static void setProductEngine(ProductEngine engine) {
    Raw.fsdp2_runtime_set_product_engine(engine.number());
  }

  /**
   * Makes LibTorch's operators in this process give the same bits in every run on the same
   * machines, with as many ranks and threads. On a CPU they do anyway once an engine is named. On a
   * GPU a call that cannot fails, and products need {@code CUBLAS_WORKSPACE_CONFIG=:4096:8} in the
   * environment.
   */
  public static void setDeterministic(boolean on) {
    Raw.fsdp2_runtime_set_deterministic(on ? 1 : 0);
  }

  /**
   * Whether the memory of large CPU tensors that are freed stays with the process, for those that
   * are made next: a training step then takes the memory of the one before. False, as a process
   * begins, gives back what is kept. What is kept and what is in use are together never more than
   * was in use at once.
   */
  public static void keepMemory(boolean on) {
    Raw.fsdp2_runtime_keep_memory(on ? 1 : 0);
  }

  /**
   * Chooses what the fp32 products of linear layers may round on a CPU. All ranks must have the
   * same when they shard a module.
   */
  public static void setMatmulPrecision(MatmulPrecision precision) {
    Raw.fsdp2_runtime_set_matmul_precision(precision.number());
  }
}
