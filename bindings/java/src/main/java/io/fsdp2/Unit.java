package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_unit_info;
import io.fsdp2.internal.fsdp2_unit_settings;
import java.util.Arrays;
import java.util.Objects;

/**
 * A unit of a shard, by the path of its module: PyTorch's methods of an FSDPModule. Settings hold
 * from now on; all ranks make the same ones. recurse: for every unit below as well.
 */
public final class Unit {
  private final Shard shard;
  private final String path;

  Unit(Shard shard, String path) {
    this.shard = shard;
    this.path = Objects.requireNonNull(path);
  }

  /** The path of its module; empty for the root. */
  public String path() {
    return path;
  }

  /** What the unit is. */
  public UnitInfo getInfo() {
    long index = getIndex();
    try (fsdp2_unit_info raw = new fsdp2_unit_info()) {
      shard.use(id -> Raw.fsdp2_shard_get_unit_info(id, index, raw));
      return UnitInfo.of(raw);
    }
  }

  /** Its number among the units of the shard. */
  public long getIndex() {
    return shard.number((id, out) -> Raw.fsdp2_shard_get_unit_index(id, path, out));
  }

  /** Whether backward reduces gradients, or leaves them on every rank for later ones. */
  public void setRequiresGradientSync(boolean flag, boolean recurse) {
    shard.use(
        id -> Raw.fsdp2_shard_set_requires_gradient_sync(id, path, flag ? 1 : 0, recurse ? 1 : 0));
  }

  /** Whether replicas reduce gradients, too. */
  public void setRequiresAllReduce(boolean flag, boolean recurse) {
    shard.use(
        id -> Raw.fsdp2_shard_set_requires_all_reduce(id, path, flag ? 1 : 0, recurse ? 1 : 0));
  }

  /** Whether forward frees gathered parameters. */
  public void setReshardAfterForward(boolean flag, boolean recurse) {
    shard.use(
        id -> Raw.fsdp2_shard_set_reshard_after_forward(id, path, flag ? 1 : 0, recurse ? 1 : 0));
  }

  /** Whether backward frees gathered parameters. */
  public void setReshardAfterBackward(boolean flag, boolean recurse) {
    shard.use(
        id -> Raw.fsdp2_shard_set_reshard_after_backward(id, path, flag ? 1 : 0, recurse ? 1 : 0));
  }

  /** Whether backward gathers the unit; false: it can do without its parameters. */
  public void setUnshardInBackward(boolean flag) {
    shard.use(id -> Raw.fsdp2_shard_set_unshard_in_backward(id, path, flag ? 1 : 0));
  }

  /** Whether a parameter without a gradient on any rank gets zeros. */
  public void setReduceUnusedParameters(boolean flag, boolean recurse) {
    shard.use(
        id ->
            Raw.fsdp2_shard_set_reduce_unused_parameters(id, path, flag ? 1 : 0, recurse ? 1 : 0));
  }

  /** Divides gradients by this factor, above 0, instead of the number of data-parallel ranks. */
  public void setGradientDivideFactor(double factor) {
    shard.use(id -> Raw.fsdp2_shard_set_gradient_divide_factor(id, path, factor));
  }

  /** Whether collectives only sum, and scaling is a pass of its own. */
  public void setForceSumReduction(boolean flag) {
    shard.use(id -> Raw.fsdp2_shard_set_force_sum_reduction(id, path, flag ? 1 : 0));
  }

  /**
   * Whether what gathers and reductions send and receive is in memory that their groups of ranks
   * give (NCCL's).
   */
  public void setAllocateMemoryFromProcessGroup(boolean flag) {
    shard.use(id -> Raw.fsdp2_shard_set_allocate_memory_from_process_group(id, path, flag ? 1 : 0));
  }

  /** The units that are gathered when this one's forward begins; none: the schedule's own rule. */
  public void setForwardPrefetch(String... units) {
    shard.use(id -> Raw.fsdp2_shard_set_forward_prefetch(id, path, units, units.length));
  }

  /** The units that are gathered when this one's backward begins; none: the schedule's own rule. */
  public void setBackwardPrefetch(String... units) {
    shard.use(id -> Raw.fsdp2_shard_set_backward_prefetch(id, path, units, units.length));
  }

  private interface PrefetchCall {
    void get(long[] units, long room, long[] needed);
  }

  private static long[] prefetch(PrefetchCall call) {
    long[] needed = new long[1];
    call.get(null, 0, needed);
    long[] units = new long[Math.toIntExact(needed[0])];
    call.get(units, units.length, needed);
    return Arrays.copyOf(units, Math.toIntExact(needed[0]));
  }

  /** That list, as indices of units. */
  public long[] getForwardPrefetch() {
    return shard.get(
        id ->
            prefetch(
                (units, room, needed) ->
                    Raw.fsdp2_shard_get_forward_prefetch(id, path, units, room, needed)));
  }

  /** That list, as indices of units. */
  public long[] getBackwardPrefetch() {
    return shard.get(
        id ->
            prefetch(
                (units, room, needed) ->
                    Raw.fsdp2_shard_get_backward_prefetch(id, path, units, room, needed)));
  }

  /** What has been set, to keep it. */
  public UnitSettings getSettings() {
    try (fsdp2_unit_settings raw = new fsdp2_unit_settings()) {
      shard.use(id -> Raw.fsdp2_shard_get_unit_settings(id, path, raw));
      return UnitSettings.of(raw);
    }
  }

  /** Sets all of them at once, to restore what {@link #getSettings} has returned. */
  public void setSettings(UnitSettings settings) {
    try (fsdp2_unit_settings raw = settings.toRaw()) {
      shard.use(id -> Raw.fsdp2_shard_set_unit_settings(id, path, raw));
    }
  }

  /** Gathers the unit's own parameters, or only starts to. Collective. */
  public void unshard(boolean async) {
    shard.use(id -> Raw.fsdp2_shard_unshard(id, path, async ? 1 : 0));
  }

  /** Waits until the unit's parameters are gathered. Collective. */
  public void waitUnshard() {
    shard.use(id -> Raw.fsdp2_shard_wait_unshard(id, path));
  }

  /** Frees the unit's gathered parameters. */
  public void reshard() {
    shard.use(id -> Raw.fsdp2_shard_reshard(id, path));
  }

  /** Sees, and may change, the unit's reduced gradients; null takes the hook away. */
  public void setAllReduceHook(AllReduceHook hook) {
    io.fsdp2.internal.AllReduceHook raw = hook == null ? null : Adapters.allReduce(hook);
    shard.use(id -> Raw.fsdp2_shard_set_all_reduce_hook(id, path, raw));
  }

  /** Is told of complete gradients; null takes the function away. */
  public void setGradientReady(GradientReady ready, boolean recurse) {
    io.fsdp2.internal.GradientReady raw = ready == null ? null : Adapters.gradientReady(ready);
    shard.use(id -> Raw.fsdp2_shard_set_gradient_ready(id, path, recurse ? 1 : 0, raw));
  }

  /** Changes what travels in place of parameters; null takes the extension away. */
  public void setAllGatherExtension(AllGatherExtension extension) {
    io.fsdp2.internal.AllGatherExtension raw =
        extension == null ? null : Adapters.allGather(extension);
    shard.use(id -> Raw.fsdp2_shard_set_all_gather_extension(id, path, raw));
  }
}
