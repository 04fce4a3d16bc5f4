package io.fsdp2;

import io.fsdp2.internal.Raw;
import java.lang.ref.Reference;

/**
 * The configuration of a training run as a plan: YAML with every key of fsdp2 train once, in its
 * own words, and after each the place that its value comes from. So trainers read the files that
 * fsdp2 train reads.
 *
 * <pre>{@code
 * String yaml = Files.readString(Path.of("run.yaml"));
 * Config config =
 *     Config.lower(yaml, ConfigOptions.builder().name("run.yaml").worldSize(4).build());
 * double lr = Double.parseDouble(config.getValue("lr"));
 * mesh.agree("options", config.getShared());
 * }</pre>
 *
 * <p>It is a text of the program's, which any thread may use and nobody closes. A program takes
 * values from it for objects of its own, or has the objects made that fsdp2 train would make.
 */
public final class Config {
  private final String plan;

  private Config(String plan) {
    this.plan = plan;
  }

  /** Lowers a text with nothing beside it. */
  public static Config lower(String text) {
    return lower(text, ConfigOptions.builder().build());
  }

  /**
   * Lowers a file of ROLL, of MindSpeed-MM, the simple file of the GPT presets, a plain one, or a
   * plan again; docs/yaml.md has the keys. {@link ErrorCode#INVALID_ARGUMENT} names place and key:
   * an unknown key, a value that a key does not take, a job of another size, what libfsdp2 cannot
   * do.
   */
  public static Config lower(String text, ConfigOptions options) {
    String[] sets = options.sets().toArray(String[]::new);
    return new Config(
        Handle.text(
            (plan, room, needed) ->
                Raw.fsdp2_config_lower(
                    text,
                    options.name(),
                    options.role(),
                    sets,
                    sets.length,
                    options.worldSize(),
                    plan,
                    room,
                    needed)));
  }

  /**
   * The value of a key: "0.001", "true", or a list as "A,B"; empty where nothing is given. {@link
   * ErrorCode#NOT_FOUND} for what is no key.
   *
   * @param key a key of plain files: "global_batch" or "global-batch"
   */
  public String getValue(String key) {
    return Handle.text(
        (value, room, needed) -> Raw.fsdp2_config_get_value(plan, key, value, room, needed));
  }

  /**
   * What all ranks must have alike, for {@link Mesh#agree}: "key=value" lines, with the places in
   * the plan as notes.
   */
  public String getShared() {
    return Handle.text(
        (shared, room, needed) -> Raw.fsdp2_config_get_shared(plan, shared, room, needed));
  }

  /**
   * The plan with steps in place of its epochs, and with the warmup that depends on them. A plan
   * without epochs stays.
   *
   * @param stepsPerEpoch at least 1, as {@link Loader#getInfo} has it
   */
  public Config settleEpochs(long stepsPerEpoch) {
    return new Config(
        Handle.text(
            (settled, room, needed) ->
                Raw.fsdp2_config_settle_epochs(plan, stepsPerEpoch, settled, room, needed)));
  }

  /**
   * Applies threads, product engine, precision of products, determinism and kept memory, which hold
   * for the whole process. With determinism it also sets an environment variable. Call it before
   * other threads use the library.
   */
  public void setUpProcess() {
    Raw.fsdp2_config_set_up_process(plan);
  }

  /**
   * Joins the job that the environment describes. Its ranks must have the same plan: otherwise each
   * of them is told the first key that differs. Collective.
   */
  public Mesh joinJob() {
    return Mesh.adopt(Handle.make(out -> Raw.fsdp2_config_join_job(plan, out)));
  }

  /** Makes the mesh that strategy, sizes and device describe, over a job's ranks. Collective. */
  public Mesh makeMesh(Mesh job) {
    Mesh made = Mesh.adopt(Handle.make(out -> Raw.fsdp2_config_make_mesh(plan, job.id(), out)));
    Reference.reachabilityFence(job);
    return made;
  }

  /** Makes the model, with parameters frozen and activations recomputed as the plan says. */
  public Module makeModule() {
    return Module.adopt(Handle.make(out -> Raw.fsdp2_config_make_module(plan, out)));
  }

  /** Opens the data; they must fit the model's vocabulary and positions. Collective. */
  public Loader makeLoader(Module module, Mesh mesh) {
    Loader made =
        Loader.adopt(
            Handle.make(out -> Raw.fsdp2_config_make_loader(plan, module.id(), mesh.id(), out)));
    Reference.reachabilityFence(module);
    Reference.reachabilityFence(mesh);
    return made;
  }

  /**
   * Shards the module; its values come from {@link Shard#loadValues} or a checkpoint. Collective.
   */
  public Shard makeShard(Module module, Mesh mesh) {
    Shard made =
        Shard.adopt(
            Handle.make(out -> Raw.fsdp2_config_make_shard(plan, module.id(), mesh.id(), out)));
    Reference.reachabilityFence(module);
    Reference.reachabilityFence(mesh);
    return made;
  }

  /** Makes the optimizer, with its groups. */
  public Optimizer makeOptimizer(Shard shard) {
    Optimizer made =
        Optimizer.adopt(Handle.make(out -> Raw.fsdp2_config_make_optimizer(plan, shard.id(), out)));
    Reference.reachabilityFence(shard);
    return made;
  }

  /**
   * Makes the step: accumulation, schedule, clipping, loss scaling. A plan in epochs is refused;
   * see {@link #settleEpochs}. Collective.
   */
  public Step makeStep(Shard shard, Optimizer optimizer) {
    Step made =
        Step.adopt(
            Handle.make(out -> Raw.fsdp2_config_make_step(plan, shard.id(), optimizer.id(), out)));
    Reference.reachabilityFence(shard);
    Reference.reachabilityFence(optimizer);
    return made;
  }

  /** The plan. */
  @Override
  public String toString() {
    return plan;
  }
}
