package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_state_info;
import io.fsdp2.internal.fsdp2_state_save_options;
import java.lang.ref.Reference;

/**
 * Named tensors, of which each rank holds chunks, and small values: what is not part of a shard,
 * and full states in memory. All ranks add the same names in the same order. A state shares memory
 * with the tensors that are added.
 */
public final class State extends Handle {
  private State(long id) {
    super(id, Raw::fsdp2_state_destroy);
  }

  static State adopt(long id) {
    return new State(id);
  }

  /** Makes an empty state over all ranks of the mesh. */
  public static State create(Mesh mesh) {
    return mesh.get(id -> new State(make(out -> Raw.fsdp2_state_create(id, out))));
  }

  /** Adds a tensor that every rank holds whole. */
  public void addTensor(String name, Tensor whole) {
    use(id -> Raw.fsdp2_state_add_tensor(id, name, null, null, 0, whole.id()));
    Reference.reachabilityFence(whole);
  }

  /** Adds this rank's chunk of a tensor of a global shape; all three have as many dims. */
  public void addTensor(String name, long[] shape, long[] offsets, Tensor chunk) {
    if (shape.length != offsets.length) {
      throw new IllegalArgumentException(
          "expected as many offsets as sizes, found " + offsets.length + " and " + shape.length);
    }
    use(id -> Raw.fsdp2_state_add_tensor(id, name, shape, offsets, shape.length, chunk.id()));
    Reference.reachabilityFence(chunk);
  }

  /** Adds a value as JSON, the same on all ranks. */
  public void addValue(String name, String json) {
    use(id -> Raw.fsdp2_state_add_value(id, name, json));
  }

  /** What the state is as a whole. */
  public StateInfo getInfo() {
    try (fsdp2_state_info raw = new fsdp2_state_info()) {
      use(id -> Raw.fsdp2_state_get_info(id, raw));
      return StateInfo.of(raw);
    }
  }

  /** The number of entries: first the tensors, one for each chunk, then the values. */
  public long getCount() {
    return number(Raw::fsdp2_state_get_count);
  }

  /** The name of an entry. */
  public String getName(long index) {
    return get(
        id ->
            text((text, room, needed) -> Raw.fsdp2_state_get_name(id, index, text, room, needed)));
  }

  /** This rank's first chunk of a tensor, sharing its memory. */
  public Tensor getTensor(String name) {
    return Tensor.adopt(get(id -> make(out -> Raw.fsdp2_state_get_tensor(id, name, out))));
  }

  /** A value as JSON. */
  public String getValue(String name) {
    return get(
        id ->
            text((text, room, needed) -> Raw.fsdp2_state_get_value(id, name, text, room, needed)));
  }

  /** Writes a directory in PyTorch's DCP format. Collective. */
  public void save(String path) {
    save(path, StateSaveOptions.builder().build());
  }

  /** Writes a directory. Collective. */
  public void save(String path, StateSaveOptions options) {
    try (fsdp2_state_save_options raw = options.toRaw()) {
      use(id -> Raw.fsdp2_state_save(id, path, raw));
    }
  }

  /** Overwrites tensors and values from a checkpoint of any format. Collective. */
  public void load(String path) {
    use(id -> Raw.fsdp2_state_load(id, path));
  }

  /** A state of whole tensors: on every rank, or on rank 0 alone. Collective. */
  public State gather(boolean rank0Only) {
    return get(id -> new State(make(out -> Raw.fsdp2_state_gather(id, rank0Only ? 1 : 0, out))));
  }

  /** Another object for the same state, for a second owner. */
  public State duplicate() {
    return get(id -> new State(make(out -> Raw.fsdp2_state_duplicate(id, out))));
  }
}
