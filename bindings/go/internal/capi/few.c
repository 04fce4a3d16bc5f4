#include "few.h"

#include <string.h>

#include "calls.h"

static fsdp2_go_first failed(fsdp2_status status) {
  fsdp2_go_first first = {fsdp2_go_check(status), {0}};
  return first;
}

static fsdp2_go_first not_loaded(void) {
  fsdp2_go_first first = {fsdp2_go_load_error(), {0}};
  return first;
}

static fsdp2_value value_of(const fsdp2_go_few_value* few, const uint64_t* elements) {
  fsdp2_value value = {few->kind, 0, 0, 0, {0}, NULL, 0};
  switch (few->kind) {
    case FSDP2_VALUE_DOUBLE:
      memcpy(&value.number, &few->bits, sizeof value.number);
      break;
    case FSDP2_VALUE_TENSOR:
      value.tensor.id = few->bits;
      break;
    case FSDP2_VALUE_INTS:
    case FSDP2_VALUE_DOUBLES:
    case FSDP2_VALUE_TENSORS:
      value.data = elements + few->bits;
      value.count = (size_t)few->count;
      break;
    default:
      value.integer = (int64_t)few->bits;
  }
  return value;
}

fsdp2_go_first fsdp2_go_op_few(const char* given, size_t n_name, fsdp2_go_few call) {
  fsdp2_value inputs[FSDP2_GO_FEW_INPUTS], outputs[FSDP2_MAX_OUTPUTS];
  fsdp2_go_first first = {NULL, {0}};
  char name[FSDP2_GO_FEW_NAME + 1];
  fsdp2_status status;
  size_t needed = 0, i;
  if (!fsdp2_go_is_loaded()) return not_loaded();
  memcpy(name, given, n_name);
  name[n_name] = '\0';
  for (i = 0; i < (size_t)call.n_inputs; ++i) {
    inputs[i] = value_of(&call.inputs[i], call.elements);
  }
  status = fsdp2_go_library.op_call(name, inputs, i, call.flags, call.scope, outputs,
                                    FSDP2_MAX_OUTPUTS, &needed);
  if (status != FSDP2_OK) return failed(status);
  for (i = 0; i < needed; ++i) {
    if (outputs[i].kind != FSDP2_VALUE_TENSOR) continue;
    if (first.tensor.id == 0) {
      first.tensor = outputs[i].tensor;
    } else {
      fsdp2_go_library.tensor_destroy(outputs[i].tensor);
    }
  }
  return first;
}

/* Those but the first. */
static void destroy_others(const fsdp2_tensor* outputs, size_t n) {
  size_t i;
  for (i = 1; i < n; ++i) fsdp2_go_library.tensor_destroy(outputs[i]);
}

fsdp2_go_first fsdp2_go_forward_few(uint64_t module, uint64_t scope, size_t n_inputs,
                                    uint64_t input0, uint64_t input1, uint64_t input2,
                                    uint64_t input3) {
  const fsdp2_module called = {module};
  const fsdp2_scope within = {scope};
  const fsdp2_tensor inputs[FSDP2_GO_FEW_FORWARD_INPUTS] = {{input0}, {input1}, {input2}, {input3}};
  fsdp2_tensor outputs[FSDP2_MAX_OUTPUTS];
  fsdp2_go_first first = {NULL, {0}};
  fsdp2_status status;
  size_t needed = 0;
  if (!fsdp2_go_is_loaded()) return not_loaded();
  status = fsdp2_go_library.module_forward(called, inputs, n_inputs, 0, outputs, FSDP2_MAX_OUTPUTS,
                                           &needed);
  if (status != FSDP2_OK) return failed(status);
  destroy_others(outputs, needed);
  if (needed > 0 && scope != 0) {
    first.error = fsdp2_go_check(fsdp2_go_library.scope_add(within, outputs, 1));
    if (first.error != NULL) fsdp2_go_library.tensor_destroy(outputs[0]);
  }
  if (needed > 0 && first.error == NULL) first.tensor = outputs[0];
  return first;
}

fsdp2_go_first fsdp2_go_tensor_few(const char* data, size_t n_bytes, int32_t dtype,
                                   fsdp2_go_few_sizes shape, size_t n_dims) {
  fsdp2_go_first first = {NULL, {0}};
  if (!fsdp2_go_is_loaded()) return not_loaded();
  first.error = fsdp2_go_check(fsdp2_go_library.tensor_from_buffer(
      data, n_bytes, dtype, shape.sizes, n_dims, &first.tensor));
  return first;
}
