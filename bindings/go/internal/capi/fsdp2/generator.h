/* Sources of random numbers. An operator that draws (aten::bernoulli, aten::normal_,
 * aten::randn.generator) takes one as its argument `generator`, and what it draws then depends on
 * that one alone; without it, on the process's default generator, which all threads share. Threads
 * may share a generator: each operator has it for itself.
 *
 * A forward that draws draws the same again under activation checkpointing, and leaves the
 * generator as its first run did. Ranks that are to draw the same begin with the same seed. */
#ifndef FSDP2_GENERATOR_H_
#define FSDP2_GENERATOR_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* Creates a generator whose numbers follow from the seed. */
FSDP2_CALL fsdp2_generator_create(uint64_t seed, fsdp2_generator* out);
/* Returns a copy of all that the generator's next numbers depend on: a tensor of u8, 1-D, PyTorch's
 * Generator.get_state(). It may be kept in a checkpoint (fsdp2_state_add_tensor). */
FSDP2_CALL fsdp2_generator_get_state(fsdp2_generator generator, fsdp2_tensor* out);
/* Goes on from a state that fsdp2_generator_get_state has returned, of this generator or another.
 * FSDP2_E_INVALID_ARGUMENT, with nothing changed, for a tensor that is no such state. */
FSDP2_CALL fsdp2_generator_set_state(fsdp2_generator generator, fsdp2_tensor state);
FSDP2_API fsdp2_status fsdp2_generator_destroy(fsdp2_generator generator);
/* Returns another handle to the same generator; see convention 2 of fsdp2.h. */
FSDP2_CALL fsdp2_generator_duplicate(fsdp2_generator generator, fsdp2_generator* out);

FSDP2_END_DECLS

#endif /* FSDP2_GENERATOR_H_ */
