package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_convert_options;
import io.fsdp2.internal.fsdp2_load_options;
import io.fsdp2.internal.fsdp2_save_options;
import java.lang.ref.Reference;
import java.util.Objects;

/**
 * What of a run is saved and loaded: the shard, and with it the optimizer, the step and the loader,
 * as far as they are given.
 *
 * <pre>{@code
 * Checkpoint run = Checkpoint.of(shard).with(optimizer).with(step).with(loader);
 * run.save("/runs/1/step-00000100", SaveOptions.builder().background(true).build());
 * }</pre>
 *
 * <p>It owns nothing and needs no closing. The static methods work offline, on any format.
 */
public final class Checkpoint {
  private final Shard shard;
  private final Optimizer optimizer;
  private final Step step;
  private final Loader loader;

  private Checkpoint(Shard shard, Optimizer optimizer, Step step, Loader loader) {
    this.shard = Objects.requireNonNull(shard);
    this.optimizer = optimizer;
    this.step = step;
    this.loader = loader;
  }

  /** The model alone, so far. */
  public static Checkpoint of(Shard shard) {
    return new Checkpoint(shard, null, null, null);
  }

  /** This, and an optimizer's state. */
  public Checkpoint with(Optimizer optimizer) {
    return new Checkpoint(shard, optimizer, step, loader);
  }

  /** This, and a step's position. */
  public Checkpoint with(Step step) {
    return new Checkpoint(shard, optimizer, step, loader);
  }

  /** This, and a loader's position. */
  public Checkpoint with(Loader loader) {
    return new Checkpoint(shard, optimizer, step, loader);
  }

  private interface Call {
    void call(long shard, long optimizer, long step, long loader);
  }

  private void use(Call call) {
    call.call(shard.id(), Handle.id(optimizer), Handle.id(step), Handle.id(loader));
    Reference.reachabilityFence(shard);
    Reference.reachabilityFence(optimizer);
    Reference.reachabilityFence(step);
    Reference.reachabilityFence(loader);
  }

  /** Saves everything as a sharded checkpoint. Collective. */
  public void save(String path) {
    save(path, SaveOptions.builder().build());
  }

  /**
   * Saves. What was at the path is replaced whole or, if the save fails, stays as it was.
   * Collective.
   */
  public void save(String path, SaveOptions options) {
    try (fsdp2_save_options raw = options.toRaw()) {
      use(
          (id, optimizer, step, loader) ->
              Raw.fsdp2_checkpoint_save(id, optimizer, step, loader, path, raw));
    }
  }

  /** Takes the memory of saves in the background now, and not in the first save. */
  public void prepare() {
    use(Raw::fsdp2_checkpoint_prepare);
  }

  /** Waits until the save in the background has ended, and fails if it has. Collective. */
  public void await() {
    shard.use(Raw::fsdp2_checkpoint_wait);
  }

  /** Whether no save is under way on this rank. */
  public boolean poll() {
    int[] done = new int[1];
    shard.use(id -> Raw.fsdp2_checkpoint_poll(id, done));
    return done[0] != 0;
  }

  /** Restores everything from a checkpoint of any format, world size and mesh. Collective. */
  public void load(String path) {
    load(path, LoadOptions.builder().build());
  }

  /**
   * Restores from a checkpoint, or from the newest complete one of a directory. Collective.
   *
   * @throws FsdpException with nothing changed, but for {@link ErrorCode#CORRUPT_DATA} and {@link
   *     ErrorCode#IO}, after which all values are undefined until the next load
   */
  public void load(String path, LoadOptions options) {
    try (fsdp2_load_options raw = options.toRaw()) {
      use(
          (id, optimizer, step, loader) ->
              Raw.fsdp2_checkpoint_load(id, optimizer, step, loader, path, raw));
    }
  }

  /** The last load as JSON: path, step, missing and unexpected names. */
  public String getReport() {
    return shard.get(
        id ->
            Handle.text(
                (text, room, needed) -> Raw.fsdp2_checkpoint_get_report(id, text, room, needed)));
  }

  /**
   * What {@link #save} would write, as a state that shares memory with the run. Collective.
   *
   * @param flatOptimizerKeys whether parameter groups go by the names of their parameters
   */
  public State getState(boolean flatOptimizerKeys) {
    return State.adopt(
        Handle.make(
            out ->
                use(
                    (id, optimizer, step, loader) ->
                        Raw.fsdp2_checkpoint_get_state(
                            id, optimizer, step, loader, flatOptimizerKeys ? 1 : 0, out))));
  }

  /**
   * Restores from a full state: each rank's own or, with fromRank0, that of rank 0, where the
   * others pass null. Collective.
   */
  public void setState(State state, LoadOptions options) {
    try (fsdp2_load_options raw = options.toRaw()) {
      use(
          (id, optimizer, step, loader) ->
              Raw.fsdp2_checkpoint_set_state(id, optimizer, step, loader, Handle.id(state), raw));
    }
    Reference.reachabilityFence(state);
  }

  /** Saves the model as one file, for torch.load or as safetensors by its ending. Collective. */
  public void saveFull(String path) {
    shard.use(id -> Raw.fsdp2_checkpoint_save_full(id, path));
  }

  /** Loads the model's parameters from any format. Collective. */
  public void loadFull(String path) {
    shard.use(id -> Raw.fsdp2_checkpoint_load_full(id, path));
  }

  /** Saves config.json and safetensors, as the transformers library reads them. Collective. */
  public void savePretrained(String directory) {
    shard.use(id -> Raw.fsdp2_checkpoint_save_pretrained(id, directory));
  }

  /** Fails if such a save could not replace what is at the path. Only looks at the files. */
  public static void checkPath(String path, SaveOptions options) {
    try (fsdp2_save_options raw = options.toRaw()) {
      Raw.fsdp2_checkpoint_check_path(path, raw);
    }
  }

  /** The path that {@link #load} would read. */
  public static String find(String path) {
    return Handle.text((text, room, needed) -> Raw.fsdp2_checkpoint_find(path, text, room, needed));
  }

  /** The contents as JSON. */
  public static String inspect(String path) {
    return Handle.text(
        (text, room, needed) -> Raw.fsdp2_checkpoint_inspect(path, text, room, needed));
  }

  /** Reads everything and compares every checksum. */
  public static void verify(String path) {
    Raw.fsdp2_checkpoint_verify(path);
  }

  /** Writes the checksums of a directory that another program has written or changed. */
  public static void rebuildManifest(String path) {
    Raw.fsdp2_checkpoint_rebuild_manifest(path);
  }

  /** Converts a checkpoint into another form, with one tensor in memory at a time. */
  public static void convert(String from, String to, ConvertOptions options) {
    try (fsdp2_convert_options raw = options.toRaw()) {
      Raw.fsdp2_checkpoint_convert(from, to, raw);
    }
  }
}
