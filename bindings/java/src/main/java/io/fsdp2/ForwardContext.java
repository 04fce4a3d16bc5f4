package io.fsdp2;

import java.util.List;

/** What a forward runs with. Its tensors end when the forward returns. */
public final class ForwardContext {
  private final String kind;
  private final boolean training;
  private final List<String> names;
  private final Tensor[] parameters;

  ForwardContext(String kind, boolean training, List<String> names, Tensor[] parameters) {
    this.kind = kind;
    this.training = training;
    this.names = names;
    this.parameters = parameters;
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
    int index = names.indexOf(name);
    if (index < 0) {
      throw new IllegalArgumentException(
          kind + " has no parameter of its own named " + name + "; it has " + names);
    }
    return parameters[index];
  }

  /** The module's own parameters, in the order in which they were added. */
  public List<Tensor> parameters() {
    return List.of(parameters);
  }
}
