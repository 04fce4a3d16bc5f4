package io.fsdp2;

import java.util.List;

/** What a forward runs with. Its tensors end when the forward returns. */
public final class ForwardContext {
  private final String kind;
  private final boolean training;
  private final CustomParts parts;
  private final Tensor[] parameters;
  private final Tensor[] buffers;

  ForwardContext(
      String kind, boolean training, CustomParts parts, Tensor[] parameters, Tensor[] buffers) {
    this.kind = kind;
    this.training = training;
    this.parts = parts;
    this.parameters = parameters;
    this.buffers = buffers;
  }

  /** The module's class. */
  public String kind() {
    return kind;
  }

  /** Whether the module is in training mode. */
  public boolean isTraining() {
    return training;
  }

  /** The module's own parameter of this name. */
  public Tensor parameter(String name) {
    return named("parameter", name, parts.parameters, parameters);
  }

  /** The module's own parameters, in the order in which they were added. */
  public List<Tensor> parameters() {
    return List.of(parameters);
  }

  /** The module's own buffer of this name, whose values may be changed in place. */
  public Tensor buffer(String name) {
    return named("buffer", name, parts.buffers, buffers);
  }

  /** The module's own buffers, in the order in which they were added. */
  public List<Tensor> buffers() {
    return List.of(buffers);
  }

  private Tensor named(String what, String name, List<String> names, Tensor[] tensors) {
    int index = names.indexOf(name);
    if (index < 0) {
      throw new IllegalArgumentException(
          kind + " has no " + what + " of its own named " + name + "; it has " + names);
    }
    return tensors[index];
  }
}
