/* What the forwards of tests are made of. */
#ifndef TESTS_CAPI_FORWARDS_H_
#define TESTS_CAPI_FORWARDS_H_

#include <math.h>

#include "tests/capi/harness.h"

/* The one tensor that an operator makes; does nothing once something has failed. */
static inline fsdp2_tensor one_of(fsdp2_status* status, const char* name, const fsdp2_value* inputs,
                                  size_t n, fsdp2_scope scope) {
  fsdp2_value output = FSDP2_NONE;
  size_t needed = 0;
  if (*status == FSDP2_OK) {
    *status = fsdp2_op_call(name, inputs, n, 0, scope, &output, 1, &needed);
  }
  return output.tensor;
}

/* Hands `output` out of a forward that succeeds, and destroys all else that it made. */
static inline fsdp2_status end_scope(fsdp2_scope scope, fsdp2_status status, fsdp2_tensor output,
                                     fsdp2_tensor* outputs, size_t* n_outputs) {
  if (status == FSDP2_OK) {
    status = fsdp2_scope_keep(scope, &output, 1);
    outputs[0] = output;
    *n_outputs = 1;
  }
  fsdp2_scope_destroy(scope);
  return status;
}

static inline double value_of(fsdp2_tensor tensor) {
  double value = NAN;
  EXPECT_OK(fsdp2_tensor_get_value(tensor, &value));
  return value;
}

#endif /* TESTS_CAPI_FORWARDS_H_ */
