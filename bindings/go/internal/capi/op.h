/* Calls of operators without C memory: what the inputs point to lies in one block of Go's. */
#ifndef FSDP2_GO_OP_H_
#define FSDP2_GO_OP_H_

#include "error.h"

enum { FSDP2_GO_MAX_OP_INPUTS = 64 };

/* fsdp2_value with an offset in place of its pointer: Go looks at all memory that it hands over by
 * a type with pointers in it. */
typedef struct fsdp2_go_value {
  int32_t kind, reserved;
  int64_t integer;
  double number;
  fsdp2_tensor tensor;
  uintptr_t data;
  size_t count;
} fsdp2_go_value;

/* fsdp2_op_call with the name at the beginning of `block`. The data of an input is an offset in it.
 */
fsdp2_go_error* fsdp2_go_op(const uint64_t* block, const fsdp2_go_value* inputs, size_t n_inputs,
                            uint32_t flags, fsdp2_scope scope, fsdp2_go_value* outputs, size_t cap,
                            size_t* needed);

#endif /* FSDP2_GO_OP_H_ */
