package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_mesh_options;
import io.fsdp2.internal.fsdp2_parameter_info;
import io.fsdp2.internal.fsdp2_shard_options;
import io.fsdp2.internal.fsdp2_shard_stats;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;

/**
 * A module whose parameters are cut over the ranks of a mesh: PyTorch's fully_shard. They are
 * gathered around the forward and backward of each {@link Unit}, and gradients are reduced to the
 * shards.
 */
public final class Shard extends Handle {
  private Shard(long id) {
    super(id, Raw::fsdp2_shard_destroy);
  }

  static Shard adopt(long id) {
    return new Shard(id);
  }

  /** Shards the module over the mesh, with the library's defaults. Collective. */
  public static Shard create(Module module, Mesh mesh) {
    return create(module, mesh, ShardOptions.builder().build());
  }

  /** Shards the module over the mesh, of one dim, or of two as (replicate, shard). Collective. */
  public static Shard create(Module module, Mesh mesh, ShardOptions options) {
    try (fsdp2_shard_options raw = options.toRaw()) {
      Shard shard =
          new Shard(make(out -> Raw.fsdp2_shard_create(module.id(), mesh.id(), raw, out)));
      Reference.reachabilityFence(module);
      Reference.reachabilityFence(mesh);
      return shard;
    }
  }

  /**
   * Makes one unit by hand, of one or several modules below this one, before {@link #create} makes
   * the rest the root. Collective.
   */
  public static void makeUnit(Module module, Mesh mesh, ShardOptions options, String... names) {
    try (fsdp2_shard_options raw = options.toRaw()) {
      Raw.fsdp2_shard_make_unit(module.id(), mesh.id(), names, names.length, raw);
      Reference.reachabilityFence(module);
      Reference.reachabilityFence(mesh);
    }
  }

  /** Makes a unit of each module that the options' wrap fields select. Collective. */
  public static void makeUnits(Module module, Mesh mesh, ShardOptions options) {
    try (fsdp2_shard_options raw = options.toRaw()) {
      Raw.fsdp2_shard_make_units(module.id(), mesh.id(), raw);
      Reference.reachabilityFence(module);
      Reference.reachabilityFence(mesh);
    }
  }

  /**
   * Applies a strategy of PyTorch's older FullyShardedDataParallel, such as HYBRID_SHARD, to the
   * options of a mesh and of a shard.
   *
   * @param fsdpSize ranks of a shard group, which the hybrid strategies need; 0: all ranks
   */
  public static void applyStrategy(
      String name, long fsdpSize, MeshOptions.Builder mesh, ShardOptions.Builder options) {
    try (fsdp2_mesh_options place = mesh.build().toRaw();
        fsdp2_shard_options shard = options.build().toRaw()) {
      Raw.fsdp2_shard_apply_strategy(name, fsdpSize, place, shard);
      mesh.fsdpSize(place.getFsdp_size());
      options.reshardAfterForward(shard.getReshard_after_forward());
    }
  }

  /** Gives the parameters their values, after deferValues. Collective. */
  public void loadValues() {
    use(Raw::fsdp2_shard_load_values);
  }

  /** The mesh that the module is sharded over, a new object to close. */
  public Mesh getMesh() {
    return get(id -> Mesh.adopt(make(out -> Raw.fsdp2_shard_get_mesh(id, out))));
  }

  /** Forgets all gradients of what is sharded. */
  public void zeroGrad() {
    use(Raw::fsdp2_shard_zero_grad);
  }

  /** The norm of all gradients. normType: p above 0, or infinity. Collective. */
  public double getGradNorm(double normType) {
    double[] out = new double[1];
    use(id -> Raw.fsdp2_shard_get_grad_norm(id, normType, out));
    return out[0];
  }

  /** Clips the gradients, and returns their norm before; maxNorm 0 only measures. Collective. */
  public double clipGradNorm(double maxNorm, double normType) {
    double[] out = new double[1];
    use(id -> Raw.fsdp2_shard_clip_grad_norm(id, maxNorm, normType, out));
    return out[0];
  }

  /** Whether the gradients of any rank contain an infinity or a NaN. Collective. */
  public boolean getGradOverflow() {
    int[] out = new int[1];
    use(id -> Raw.fsdp2_shard_get_grad_overflow(id, out));
    return out[0] != 0;
  }

  /** Multiplies this rank's gradients. */
  public void scaleGrad(double factor) {
    use(id -> Raw.fsdp2_shard_scale_grad(id, factor));
  }

  /** The number of sharded parameters. */
  public long getParameterCount() {
    return number(Raw::fsdp2_shard_get_parameter_count);
  }

  /** A sharded parameter. The indices of a module are others. */
  public ParameterInfo getParameterInfo(long index) {
    try (fsdp2_parameter_info raw = new fsdp2_parameter_info()) {
      use(id -> Raw.fsdp2_shard_get_parameter_info(id, index, raw));
      return ParameterInfo.of(raw);
    }
  }

  /** A name of a parameter: 0 is its own, the others are its ties. */
  public String getParameterName(long index, long nameIndex) {
    return get(
        id ->
            text(
                (text, room, needed) ->
                    Raw.fsdp2_shard_get_parameter_name(id, index, nameIndex, text, room, needed)));
  }

  /** The parameter of a name. */
  public long getParameterIndex(String name) {
    return number((id, out) -> Raw.fsdp2_shard_get_parameter_index(id, name, out));
  }

  /** A parameter or its gradient: this rank's rows, or a copy of the whole. */
  public Tensor getParameter(long index, ParameterPart part) {
    return Tensor.adopt(
        get(id -> make(out -> Raw.fsdp2_shard_get_parameter(id, index, part.number(), out))));
  }

  /** Casts every shard to a floating-point type, and forgets gradients. */
  public void castParameters(DType dtype) {
    use(id -> Raw.fsdp2_shard_cast_parameters(id, dtype.number()));
  }

  /** The unit of the module at a dotted path; empty: the root. */
  public Unit unit(String path) {
    return new Unit(this, path);
  }

  /** The root's unit. */
  public Unit root() {
    return unit("");
  }

  /** All units, the root first. */
  public List<Unit> units() {
    List<Unit> units = new ArrayList<>();
    for (long i = 0; i < getUnitCount(); i++) {
      units.add(unit(getUnitName(i)));
    }
    return units;
  }

  /** The number of units. */
  public long getUnitCount() {
    return number(Raw::fsdp2_shard_get_unit_count);
  }

  /** The name of a unit; that of the root is empty. */
  public String getUnitName(long index) {
    return get(
        id ->
            text(
                (text, room, needed) ->
                    Raw.fsdp2_shard_get_unit_name(id, index, text, room, needed)));
  }

  /** Whether the end of a backward waits for its reductions; false: more backwards follow. */
  public void setIsLastBackward(boolean flag) {
    use(id -> Raw.fsdp2_shard_set_is_last_backward(id, flag ? 1 : 0));
  }

  /**
   * Ends the backwards of a step by hand: reduces what they have put off for want of gradient sync
   * or all-reduce, and waits for it. Collective.
   */
  public void finalizeBackward() {
    use(Raw::fsdp2_shard_finalize_backward);
  }

  /** What {@link #setIsLastBackward} has set. */
  public boolean getIsLastBackward() {
    int[] out = new int[1];
    use(id -> Raw.fsdp2_shard_get_is_last_backward(id, out));
    return out[0] != 0;
  }

  /** Leaves the whole tree sharded and idle, for an iteration that was given up. */
  public void reset() {
    use(Raw::fsdp2_shard_reset);
  }

  /** Gives the memory that keepBuffers has kept, and that is not in use, back to the allocator. */
  public void releaseBuffers() {
    use(Raw::fsdp2_shard_release_buffers);
  }

  /**
   * Something that a unit did.
   *
   * @param kind what it was
   * @param unit the unit's index
   */
  public record Event(EventKind kind, long unit) {}

  /** What the units did since creation or the last clear, oldest first; the last 16,384 events. */
  public List<Event> getEvents() {
    long[] needed = new long[1];
    use(id -> Raw.fsdp2_shard_get_events(id, null, null, 0, needed));
    int[] kinds = new int[Math.toIntExact(needed[0])];
    long[] units = new long[kinds.length];
    use(id -> Raw.fsdp2_shard_get_events(id, kinds, units, kinds.length, needed));
    List<Event> events = new ArrayList<>();
    for (int i = 0; i < needed[0]; i++) {
      events.add(new Event(EventKind.of(kinds[i]), units[i]));
    }
    return events;
  }

  /** Forgets the events. */
  public void clearEvents() {
    use(Raw::fsdp2_shard_clear_events);
  }

  /** What the shard has moved, and holds. */
  public ShardStats getStats() {
    try (fsdp2_shard_stats raw = new fsdp2_shard_stats()) {
      use(id -> Raw.fsdp2_shard_get_stats(id, raw));
      return ShardStats.of(raw);
    }
  }

  /** Counts from 0 again. */
  public void resetStats() {
    use(Raw::fsdp2_shard_reset_stats);
  }

  /** The units as a table. */
  public String describe() {
    return get(
        id -> text((text, room, needed) -> Raw.fsdp2_shard_describe(id, text, room, needed)));
  }

  /** Another object for the same shard, for a second owner. */
  public Shard duplicate() {
    return get(id -> new Shard(make(out -> Raw.fsdp2_shard_duplicate(id, out))));
  }
}
