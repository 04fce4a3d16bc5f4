#include "op.h"

#include "calls.h"

fsdp2_go_error* fsdp2_go_op(const void* block, const void* inputs, size_t n_inputs, uint32_t flags,
                            fsdp2_scope scope, void* outputs, size_t cap, void* needed) {
  fsdp2_value values[FSDP2_GO_MAX_OP_INPUTS];
  size_t i;
  if (!fsdp2_go_is_loaded()) return fsdp2_go_load_error();
  for (i = 0; i < n_inputs; ++i) {
    values[i] = ((const fsdp2_value*)inputs)[i];
    values[i].data = (const char*)block + (uintptr_t)values[i].data;
  }
  return fsdp2_go_check(
      fsdp2_go_library.op_call(block, values, n_inputs, flags, scope, outputs, cap, needed));
}
