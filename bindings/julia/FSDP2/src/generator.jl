@handle Generator "generator"

"""
    Generator(; seed = 0)

A source of random numbers. An operator that draws takes one as its argument `generator`, and what it draws then depends on that one alone.
Tasks may share it: each operator has it for itself.

    noise = op("aten::randn.generator", (2, 3), generator)

A forward that draws draws the same again under activation checkpointing. Ranks that are to draw the same begin with the same seed.
"""
Generator(; seed::Integer = 0) = own(Generator(output(out -> fsdp2_generator_create(seed, out), fsdp2_generator).id))

"""
    get_state(generator::Generator)

All that the next numbers depend on: a tensor of bytes.
"""
get_state(generator::Generator) = output_tensor(out -> fsdp2_generator_get_state(generator, out))

"""
    set_state!(generator::Generator, state::Tensor)

Goes on from a state that `get_state` has given, of this generator or another.
"""
set_state!(generator::Generator, state::Tensor) = check(fsdp2_generator_set_state(generator, state))
