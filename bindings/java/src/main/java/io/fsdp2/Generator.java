package io.fsdp2;

import io.fsdp2.internal.Raw;
import java.lang.ref.Reference;

/**
 * A source of random numbers. An operator that draws takes one as its argument {@code generator},
 * and what it draws then depends on that one alone. Threads may share it: each operator has it for
 * itself.
 *
 * <pre>{@code
 * Tensor noise = Operator.call("aten::randn.generator", new long[] {2, 3}, generator);
 * }</pre>
 *
 * <p>A forward that draws draws the same again under activation checkpointing. Ranks that are to
 * draw the same begin with the same seed.
 */
public final class Generator extends Handle {
  private Generator(long id) {
    super(id, Raw::fsdp2_generator_destroy);
  }

  /** Makes a generator that begins with a seed. */
  public static Generator create(long seed) {
    return new Generator(make(out -> Raw.fsdp2_generator_create(seed, out)));
  }

  /** All that the next numbers depend on, as bytes. */
  public Tensor getState() {
    return Tensor.adopt(get(id -> make(out -> Raw.fsdp2_generator_get_state(id, out))));
  }

  /** Goes on from a state, of this generator or another. */
  public void setState(Tensor state) {
    use(id -> Raw.fsdp2_generator_set_state(id, state.id()));
    Reference.reachabilityFence(state);
  }

  /** Another object for the same generator, for a second owner. */
  public Generator duplicate() {
    return get(id -> new Generator(make(out -> Raw.fsdp2_generator_duplicate(id, out))));
  }
}
