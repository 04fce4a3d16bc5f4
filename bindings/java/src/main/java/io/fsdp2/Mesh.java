package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_device_memory;
import io.fsdp2.internal.fsdp2_group_info;
import io.fsdp2.internal.fsdp2_mesh_info;
import io.fsdp2.internal.fsdp2_mesh_options;
import java.lang.ref.Reference;
import java.util.Arrays;

/**
 * The ranks of a job as an array of several dims, row-major. All ranks of a mesh make its
 * collective calls, in the same order; if one fails, the others get {@link ErrorCode#PEER_FAILED}.
 */
public final class Mesh extends Handle {
  private Mesh(long id) {
    super(id, Raw::fsdp2_mesh_destroy);
  }

  static Mesh adopt(long id) {
    return new Mesh(id);
  }

  /** Joins the job that the launcher's environment describes. Collective. */
  public static Mesh create() {
    return create(MeshOptions.builder().build());
  }

  /** Joins the job. Collective. */
  public static Mesh create(MeshOptions options) {
    try (fsdp2_mesh_options raw = options.toRaw()) {
      return new Mesh(make(out -> Raw.fsdp2_mesh_create(raw, out)));
    }
  }

  /** Makes another mesh over the ranks of this one. Collective. */
  public Mesh createIn(MeshOptions options) {
    try (fsdp2_mesh_options raw = options.toRaw()) {
      return get(id -> new Mesh(make(out -> Raw.fsdp2_mesh_create_in(id, raw, out))));
    }
  }

  /** Makes the mesh of the group of a dim. name: of its dim, or null. */
  public Mesh fromGroup(int dim, String name) {
    return get(id -> new Mesh(make(out -> Raw.fsdp2_mesh_from_group(id, dim, name, out))));
  }

  /** What the mesh is, and this rank in it. */
  public MeshInfo getInfo() {
    try (fsdp2_mesh_info raw = new fsdp2_mesh_info()) {
      use(id -> Raw.fsdp2_mesh_get_info(id, raw));
      return MeshInfo.of(raw);
    }
  }

  /** This rank's number in the job. */
  public int rank() {
    return getInfo().rank();
  }

  /** The number of ranks. */
  public int worldSize() {
    return getInfo().worldSize();
  }

  /** The name of a dim, empty if the dims have none. */
  public String getDimName(int dim) {
    return get(
        id ->
            text((text, room, needed) -> Raw.fsdp2_mesh_get_dim_name(id, dim, text, room, needed)));
  }

  /** The dim of a name. */
  public int getDimIndex(String name) {
    int[] out = new int[1];
    use(id -> Raw.fsdp2_mesh_get_dim_index(id, name, out));
    return out[0];
  }

  private interface RanksCall {
    void get(int[] ranks, long room, long[] needed);
  }

  private static int[] ranks(RanksCall call) {
    long[] needed = new long[1];
    call.get(null, 0, needed);
    int[] ranks = new int[Math.toIntExact(needed[0])];
    call.get(ranks, ranks.length, needed);
    return ranks;
  }

  /** All ranks of the mesh, row-major. */
  public int[] getRanks() {
    return get(
        id -> ranks((ranks, room, needed) -> Raw.fsdp2_mesh_get_ranks(id, ranks, room, needed)));
  }

  /** The group of a dim. */
  public GroupInfo getGroup(int dim) {
    try (fsdp2_group_info raw = new fsdp2_group_info()) {
      use(id -> Raw.fsdp2_mesh_get_group(id, dim, raw));
      return GroupInfo.of(raw);
    }
  }

  /** The ranks of the group of a dim, in its order. */
  public int[] getGroupRanks(int dim) {
    return get(
        id ->
            ranks(
                (ranks, room, needed) ->
                    Raw.fsdp2_mesh_get_group_ranks(id, dim, ranks, room, needed)));
  }

  /** Whether ranks, shape, names and device type are equal. */
  public boolean isEqual(Mesh other) {
    int[] out = new int[1];
    use(id -> Raw.fsdp2_mesh_is_equal(id, other.id(), out));
    Reference.reachabilityFence(other);
    return out[0] != 0;
  }

  /**
   * A paramDtype that the devices of all ranks compute fast in: bf16 where each has products of it,
   * otherwise fp16 where all are GPUs, which needs a loss scale, otherwise fp32. Collective.
   */
  public DType chooseDtype() {
    int[] out = new int[1];
    use(id -> Raw.fsdp2_mesh_choose_dtype(id, out));
    return DType.of(out[0]);
  }

  /** A number that equal meshes have in common. */
  public long getHash() {
    return number(Raw::fsdp2_mesh_get_hash);
  }

  /**
   * The memory of the device that the mesh has on this rank.
   *
   * @throws FsdpException for the host, whose memory the system counts
   */
  public DeviceMemory getDeviceMemory() {
    try (fsdp2_device_memory raw = new fsdp2_device_memory()) {
      use(id -> Raw.fsdp2_mesh_get_device_memory(id, raw));
      return DeviceMemory.of(raw);
    }
  }

  /** The mesh and this rank in words. */
  public String describe() {
    return get(id -> text((text, room, needed) -> Raw.fsdp2_mesh_describe(id, text, room, needed)));
  }

  /** The sub-mesh along some dims that this rank is in. */
  public Mesh getSubmesh(String... names) {
    return get(
        id -> new Mesh(make(out -> Raw.fsdp2_mesh_get_submesh(id, names, names.length, out))));
  }

  /** Makes one dim of several. name: its name, or null for theirs, joined. Collective. */
  public Mesh flatten(String name, String... names) {
    return get(
        id -> new Mesh(make(out -> Raw.fsdp2_mesh_flatten(id, names, names.length, name, out))));
  }

  /**
   * What a sub-mesh is of.
   *
   * @param mesh the whole, a new object to close
   * @param dims which of its dims the sub-mesh has
   */
  public record Root(Mesh mesh, int[] dims) {}

  /** The mesh that this one is a sub-mesh of; {@link ErrorCode#NOT_FOUND} if it is none. */
  public Root getRoot() {
    int[] dims = new int[Raw.FSDP2_MAX_DIMS];
    long[] needed = new long[1];
    Mesh root =
        get(
            id ->
                new Mesh(make(out -> Raw.fsdp2_mesh_get_root(id, dims, dims.length, needed, out))));
    return new Root(root, Arrays.copyOf(dims, Math.toIntExact(needed[0])));
  }

  /** Returns once all ranks have called it. Collective. */
  public void barrier() {
    use(Raw::fsdp2_mesh_barrier);
  }

  /** Reduces numbers over all ranks, in place. Collective. */
  public void allReduce(double[] values, Reduction reduction) {
    use(id -> Raw.fsdp2_mesh_all_reduce(id, values, values.length, reduction.number()));
  }

  /** Overwrites the tensor with that of the first rank of the dim's group. Collective. */
  public void broadcast(int dim, Tensor tensor) {
    use(id -> Raw.fsdp2_mesh_broadcast(id, dim, tensor.id()));
    Reference.reachabilityFence(tensor);
  }

  /**
   * This rank's piece of the tensor that the group's first rank passes; the others pass null.
   * Collective.
   */
  public Tensor scatter(int dim, Tensor whole, int tensorDim) {
    long out =
        get(id -> make(made -> Raw.fsdp2_mesh_scatter(id, dim, Tensor.id(whole), tensorDim, made)));
    Reference.reachabilityFence(whole);
    return Tensor.adopt(out);
  }

  /** All ranks' tensors one after the other along tensorDim. Collective. */
  public Tensor allGather(int dim, Tensor piece, int tensorDim) {
    long out =
        get(id -> make(made -> Raw.fsdp2_mesh_all_gather(id, dim, piece.id(), tensorDim, made)));
    Reference.reachabilityFence(piece);
    return Tensor.adopt(out);
  }

  /** This rank's piece of the sum or mean of all ranks' tensors. Collective. */
  public Tensor reduceScatter(int dim, Tensor whole, int tensorDim, Reduction reduction) {
    long out =
        get(
            id ->
                make(
                    made ->
                        Raw.fsdp2_mesh_reduce_scatter(
                            id, dim, whole.id(), tensorDim, reduction.number(), made)));
    Reference.reachabilityFence(whole);
    return Tensor.adopt(out);
  }

  /** Reduces a tensor over the group, in place. Collective. */
  public void allReduceTensor(int dim, Tensor tensor, Reduction reduction) {
    use(id -> Raw.fsdp2_mesh_all_reduce_tensor(id, dim, tensor.id(), reduction.number()));
    Reference.reachabilityFence(tensor);
  }

  /** Fails on all ranks, with the first line that differs, unless their texts agree. Collective. */
  public void agree(String what, String text) {
    use(id -> Raw.fsdp2_mesh_agree(id, what, text));
  }

  /**
   * Tells all ranks that this one has failed, and ends their calls on the mesh; for failures
   * outside of the library. Any thread may call it.
   */
  public void fail(String message) {
    use(id -> Raw.fsdp2_mesh_fail(id, message));
  }

  /** Another object for the same mesh, for a second owner. */
  public Mesh duplicate() {
    return get(id -> new Mesh(make(out -> Raw.fsdp2_mesh_duplicate(id, out))));
  }
}
