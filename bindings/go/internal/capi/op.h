/* Calls of operators without C memory: what the inputs point to lies in one block of Go's. */
#ifndef FSDP2_GO_OP_H_
#define FSDP2_GO_OP_H_

#include "error.h"

enum { FSDP2_GO_MAX_OP_INPUTS = 64 };

/* fsdp2_op_call with the name at the beginning of `block`. The data of an input is an offset in it.
 * inputs and outputs are fsdp2_value*. */
fsdp2_go_error* fsdp2_go_op(const void* block, const void* inputs, size_t n_inputs, uint32_t flags,
                            fsdp2_scope scope, void* outputs, size_t cap, void* needed);

#endif /* FSDP2_GO_OP_H_ */
