#include "op.h"

#include <string.h>

#include "calls.h"

_Static_assert(sizeof(fsdp2_go_value) == sizeof(fsdp2_value), "they have the same fields");

fsdp2_go_error* fsdp2_go_op(const uint64_t* block, const fsdp2_go_value* inputs, size_t n_inputs,
                            uint32_t flags, fsdp2_scope scope, fsdp2_go_value* outputs, size_t cap,
                            size_t* needed) {
  fsdp2_value values[FSDP2_GO_MAX_OP_INPUTS];
  size_t i;
  if (!fsdp2_go_is_loaded()) return fsdp2_go_load_error();
  for (i = 0; i < n_inputs; ++i) {
    memcpy(&values[i], &inputs[i], sizeof values[i]);
    values[i].data = (const char*)block + inputs[i].data;
  }
  return fsdp2_go_check(fsdp2_go_library.op_call((const char*)block, values, n_inputs, flags, scope,
                                                 (fsdp2_value*)outputs, cap, needed));
}
