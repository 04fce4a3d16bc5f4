package io.fsdp2;

import io.fsdp2.internal.ForwardFunction;
import io.fsdp2.internal.Raw;
import io.fsdp2.internal.RawJNI;
import io.fsdp2.internal.fsdp2_module_info;
import io.fsdp2.internal.fsdp2_module_options;
import io.fsdp2.internal.fsdp2_module_parameter_info;
import io.fsdp2.internal.fsdp2_parameter_options;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.LongConsumer;

/**
 * A model, or a part of one. It has its structure at once and its memory later: when it is sharded
 * or, without sharding, at its first forward.
 *
 * <p>Import it by its name: java.lang has a Module, too.
 */
public final class Module extends Inference {
  private static final int USUAL_OUTPUTS = 16;
  private static final int FEW_INPUTS = 4;

  /** What was added to a custom module or a layer; null for any other. */
  private final CustomParts parts;

  private Module(long id, CustomParts parts) {
    super(id, destruction(parts));
    this.parts = parts;
  }

  static Module adopt(long id) {
    return new Module(id, null);
  }

  private static LongConsumer destruction(CustomParts parts) {
    if (parts == null) {
      return Raw::fsdp2_module_destroy;
    }
    parts.join();
    return id -> {
      Raw.fsdp2_module_destroy(id);
      parts.leave();
    };
  }

  private interface Making {
    void make(fsdp2_module_options options, long[] out);
  }

  private static Module make(ModuleOptions options, Making making) {
    try (fsdp2_module_options raw = options.toRaw()) {
      return new Module(make(out -> making.make(raw, out)), null);
    }
  }

  /** Makes the model of a Hugging Face directory. */
  public static Module fromPretrained(String directory) {
    return fromPretrained(directory, ModuleOptions.builder().build());
  }

  /** Makes the model of a Hugging Face directory: config.json and safetensors. */
  public static Module fromPretrained(String directory, ModuleOptions options) {
    return make(options, (raw, out) -> Raw.fsdp2_module_from_pretrained(directory, raw, out));
  }

  /** Makes the model that the text of a config.json describes. */
  public static Module fromConfig(String json, ModuleOptions options) {
    return make(options, (raw, out) -> Raw.fsdp2_module_from_config(json, raw, out));
  }

  /** Makes the model that torch.export has written to a .pt2 file, or torch.jit.save to any. */
  public static Module fromExported(String path) {
    return fromExported(path, ModuleOptions.builder().build());
  }

  /** Makes the model that torch.export has written to a .pt2 file, or torch.jit.save to any. */
  public static Module fromExported(String path, ModuleOptions options) {
    return make(options, (raw, out) -> Raw.fsdp2_module_from_exported(path, raw, out));
  }

  /**
   * Makes a module of the program's own; see {@link #createCustom(String, ModuleOptions, Forward)}.
   */
  public static Module createCustom(String kind, Forward forward) {
    return createCustom(kind, ModuleOptions.builder().build(), forward);
  }

  /**
   * Makes a module whose forward is the program's own. Parameters and children are added before it
   * runs or is sharded.
   *
   * @param kind its class, by which it can be wrapped
   * @param options the seed is that of the whole
   * @param forward called by {@link #forward}
   */
  public static Module createCustom(String kind, ModuleOptions options, Forward forward) {
    CustomParts parts = new CustomParts();
    ForwardFunction function = Adapters.forward(kind, Objects.requireNonNull(forward), parts);
    try (fsdp2_module_options raw = options.toRaw()) {
      return new Module(
          make(out -> Raw.fsdp2_module_create_custom(kind, raw, function, out)), parts);
    }
  }

  /** Makes a layer; see {@link #createLayer(String, Map, ModuleOptions)}. */
  public static Module createLayer(String kind) {
    return createLayer(kind, Map.of());
  }

  /** Makes a layer; see {@link #createLayer(String, Map, ModuleOptions)}. */
  public static Module createLayer(String kind, Map<String, ?> settings) {
    return createLayer(kind, settings, ModuleOptions.builder().build());
  }

  /**
   * Makes a layer that the library has: {@code Module.createLayer("Linear", Map.of("in_features",
   * 8, "out_features", 4))}. Settings and parameters have PyTorch's names, meanings and defaults.
   *
   * <p>Kinds are Linear, Embedding, LayerNorm, RMSNorm, Conv1d, Conv2d, Dropout, ReLU, SiLU, Tanh,
   * GELU, Flatten, MultiheadAttention, TransformerEncoderLayer, TransformerEncoder, MLP, GatedMLP,
   * Sequential, which runs the children that it is given in order, and ModuleList, which only holds
   * them. {@code include/fsdp2/custom.h} lists their settings. What is added to any other kind, its
   * forward does not use.
   *
   * @param kind its class, by which it can be wrapped
   * @param settings numbers, booleans, texts, and arrays of whole numbers
   * @param options the seed is that of the whole
   * @throws FsdpException if there is no such kind or setting; it names the nearest that there is
   */
  public static Module createLayer(String kind, Map<String, ?> settings, ModuleOptions options) {
    String json = LayerSettings.toJson(settings);
    try (fsdp2_module_options raw = options.toRaw()) {
      return new Module(
          make(out -> Raw.fsdp2_module_create_layer(kind, json, raw, out)), new CustomParts());
    }
  }

  /** Adds a parameter to a custom module. */
  public void addParameter(String name, long... shape) {
    addParameter(name, ParameterOptions.builder().build(), shape);
  }

  /** Adds a parameter to a custom module. */
  public void addParameter(String name, ParameterOptions options, long... shape) {
    try (fsdp2_parameter_options raw = options.toRaw()) {
      use(id -> Raw.fsdp2_module_add_parameter(id, name, shape, shape.length, raw));
    }
    parts.parameters.add(name);
  }

  /**
   * Makes another module a part of this custom one, or of this layer. The child's object then
   * serves to call it in a forward. It is closed together with this module: those of a custom one
   * once nothing can run its forward any more, those of a layer with the layer's last object.
   */
  public void addChild(String name, Module child) {
    use(id -> Raw.fsdp2_module_add_child(id, name, child.id()));
    parts.children.add(child);
  }

  /**
   * Makes a parameter the same as another one, as PyTorch's {@code head.weight = embed.weight}: one
   * parameter, with the gradients of both places.
   *
   * @param name a dotted path in this module, which is that of the whole
   * @param other likewise; what it begins with stays
   */
  public void tieParameter(String name, String other) {
    use(id -> Raw.fsdp2_module_tie_parameter(id, name, other));
  }

  /** Adds a buffer that checkpoints hold to a custom module; see {@link #addBuffer}. */
  public void addBuffer(String name, Tensor value) {
    addBuffer(name, value, true);
  }

  /**
   * Adds a buffer to a custom module: a tensor that no optimizer updates, such as a table or a
   * running mean. Every rank has all of it, and each rank's changes are its own.
   *
   * @param value what it begins with, which is copied
   * @param persistent whether checkpoints hold it
   */
  public void addBuffer(String name, Tensor value, boolean persistent) {
    int flags = persistent ? 0 : Raw.FSDP2_BUFFER_NOT_PERSISTENT;
    use(id -> Raw.fsdp2_module_add_buffer(id, name, value.id(), flags));
    Reference.reachabilityFence(value);
    parts.buffers.add(name);
  }

  /** The buffer at a dotted path in the module, sharing its memory. */
  public Tensor getBuffer(String name) {
    return Tensor.adopt(get(id -> make(out -> Raw.fsdp2_module_get_buffer(id, name, out))));
  }

  /** What the module is as a whole. */
  public ModuleInfo getInfo() {
    try (fsdp2_module_info raw = new fsdp2_module_info()) {
      use(id -> Raw.fsdp2_module_get_info(id, raw));
      return ModuleInfo.of(raw);
    }
  }

  /** The number of parameters, a tied one once. */
  public long getParameterCount() {
    return number(Raw::fsdp2_module_get_parameter_count);
  }

  /** A parameter; the order does not change with sharding. */
  public ModuleParameterInfo getParameterInfo(long index) {
    try (fsdp2_module_parameter_info raw = new fsdp2_module_parameter_info()) {
      use(id -> Raw.fsdp2_module_get_parameter_info(id, index, raw));
      return ModuleParameterInfo.of(raw);
    }
  }

  /** A name of a parameter: 0 is its own, the others are its ties. */
  public String getParameterName(long index, long nameIndex) {
    return get(
        id ->
            text(
                (text, room, needed) ->
                    Raw.fsdp2_module_get_parameter_name(id, index, nameIndex, text, room, needed)));
  }

  /** The parameter of a name. */
  public long getParameterIndex(String name) {
    return number((id, out) -> Raw.fsdp2_module_get_parameter_index(id, name, out));
  }

  /** A parameter that is not sharded, or its gradient, sharing its memory. */
  public Tensor getParameter(long index, ParameterPart part) {
    return Tensor.adopt(
        get(id -> make(out -> Raw.fsdp2_module_get_parameter(id, index, part.number(), out))));
  }

  /** Forgets all gradients. */
  public void zeroGrad() {
    use(Raw::fsdp2_module_zero_grad);
  }

  /**
   * Freezes parameters or lets them train again, before anything is sharded.
   *
   * @param names of parameters or modules; none: the whole module
   */
  public void setRequiresGrad(boolean flag, String... names) {
    use(id -> Raw.fsdp2_module_set_requires_grad(id, names, names.length, flag ? 1 : 0));
  }

  /** Keeps only the inputs of each module of these classes; none: the model's own layers. */
  public void checkpointActivations(String... kinds) {
    checkpointActivations(List.of(kinds), 1, false);
  }

  /**
   * Keeps only the inputs of modules in forward, which run again in backward.
   *
   * @param kinds classes of modules; none: the model's own layers
   * @param every the last of each so many modules
   * @param noEarlyStop whether the second run goes to its end
   */
  public void checkpointActivations(Collection<String> kinds, long every, boolean noEarlyStop) {
    checkpointActivations(kinds, every, noEarlyStop, 0);
  }

  /** Keeps only the inputs of the modules at these dotted paths, at least one. */
  public void checkpointActivationsByPath(String... paths) {
    checkpointActivationsByPath(List.of(paths), 1, false);
  }

  /**
   * Keeps only the inputs of modules in forward, which run again in backward.
   *
   * @param paths dotted paths of modules, such as "model.layers.3", in any order; at least one
   * @param every the last of each so many modules, in the model's order
   * @param noEarlyStop whether the second run goes to its end
   */
  public void checkpointActivationsByPath(
      Collection<String> paths, long every, boolean noEarlyStop) {
    checkpointActivations(paths, every, noEarlyStop, Raw.FSDP2_ACTIVATIONS_BY_PATH);
  }

  private void checkpointActivations(
      Collection<String> names, long every, boolean noEarlyStop, int by) {
    int flags = by | (noEarlyStop ? Raw.FSDP2_ACTIVATIONS_NO_EARLY_STOP : 0);
    String[] chosen = names.toArray(String[]::new);
    use(id -> Raw.fsdp2_module_checkpoint_activations(id, chosen, chosen.length, every, flags));
  }

  /**
   * Makes the gated MLPs of a model from config.json run in tiles of tokens, each computed again in
   * backward. What lies between their projections then exists for one tile at a time.
   *
   * @param tiles at least 1; 4 is usual
   * @return how many MLPs these are
   */
  public long tileMlps(long tiles) {
    long[] mlps = new long[1];
    use(id -> Raw.fsdp2_module_tile_mlps(id, tiles, mlps));
    return mlps[0];
  }

  /** Puts the module into training mode, in which it begins, or into evaluation mode. */
  public void train(boolean mode) {
    use(id -> Raw.fsdp2_module_train(id, mode ? 1 : 0));
  }

  /** Whether the module is in training mode. */
  public boolean isTraining() {
    int[] out = new int[1];
    use(id -> Raw.fsdp2_module_is_training(id, out));
    return out[0] != 0;
  }

  /** Runs a module that has one output. inputs: null for one that is left out. Collective. */
  public Tensor forward(Tensor... inputs) {
    if (inputs.length > FEW_INPUTS) {
      return only(forwardForAll(inputs));
    }
    TensorScope scope = TensorScope.innermost();
    long made =
        RawJNI.java_forward(
            id(),
            inputs.length,
            id(inputs, 0),
            id(inputs, 1),
            id(inputs, 2),
            id(inputs, 3),
            TensorScope.recordsGradients(scope) ? 0 : Raw.FSDP2_FORWARD_NO_GRAD,
            TensorScope.id(scope));
    Reference.reachabilityFence(this);
    Reference.reachabilityFence(inputs);
    Reference.reachabilityFence(scope);
    if (made <= 0) {
      throw notOne(-made);
    }
    return Tensor.madeIn(scope, made);
  }

  private static long id(Tensor[] inputs, int index) {
    return index < inputs.length ? Tensor.id(inputs[index]) : 0;
  }

  /** Runs a module. Language models take tokens, and labels for the loss. Collective. */
  public List<Tensor> forwardForAll(Tensor... inputs) {
    return run(
        inputs,
        (id, flags, outputs, needed) ->
            Raw.fsdp2_module_forward(
                id, Tensor.ids(inputs), inputs.length, flags, outputs, outputs.length, needed));
  }

  /** Runs the module at a dotted path inside this one. Collective. */
  public List<Tensor> forwardSubmodule(String path, Tensor... inputs) {
    return run(
        inputs,
        (id, flags, outputs, needed) ->
            Raw.fsdp2_module_forward_submodule(
                id,
                path,
                Tensor.ids(inputs),
                inputs.length,
                flags,
                outputs,
                outputs.length,
                needed));
  }

  private static Tensor only(List<Tensor> outputs) {
    if (outputs.size() != 1) {
      outputs.forEach(Tensor::close);
      throw notOne(outputs.size());
    }
    return outputs.get(0);
  }

  private static IllegalArgumentException notOne(long outputs) {
    return new IllegalArgumentException(
        "expected a module with one output, found " + outputs + "; forwardForAll gives all");
  }

  private interface Run {
    void run(long id, int flags, long[] outputs, long[] needed);
  }

  private List<Tensor> run(Tensor[] inputs, Run run) {
    int flags = TensorScope.recordsGradients() ? 0 : Raw.FSDP2_FORWARD_NO_GRAD;
    long[] needed = new long[1];
    long[] outputs = new long[USUAL_OUTPUTS];
    try {
      run.run(id(), flags, outputs, needed);
    } catch (FsdpException failure) {
      if (failure.status() != Raw.FSDP2_E_BUFFER_TOO_SMALL || needed[0] <= USUAL_OUTPUTS) {
        throw failure;
      }
      outputs = new long[Math.toIntExact(needed[0])];
      run.run(id(), flags, outputs, needed);
    }
    Reference.reachabilityFence(this);
    Reference.reachabilityFence(inputs);
    List<Tensor> made = new ArrayList<>();
    for (int i = 0; i < needed[0]; i++) {
      made.add(Tensor.adopt(outputs[i]));
    }
    return made;
  }

  /** Fails as {@link #forward} would with these inputs, with nothing computed. */
  public void checkInputs(Tensor... inputs) {
    use(id -> Raw.fsdp2_module_check_inputs(id, Tensor.ids(inputs), inputs.length));
    Reference.reachabilityFence(inputs);
  }

  /** Another object for the same module, for a second owner. */
  public Module duplicate() {
    return get(id -> new Module(make(out -> Raw.fsdp2_module_duplicate(id, out)), parts));
  }
}
