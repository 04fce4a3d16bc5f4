package io.fsdp2;

import io.fsdp2.internal.Raw;

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
 * <p>It is a text of the program's, which any thread may use and nobody closes.
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

  /** The plan. */
  @Override
  public String toString() {
    return plan;
  }
}
