/* The calls that programs make most, with everything by value: what Go hands over by its
 * address has to be in its heap, and memory that nobody has just touched takes longer than the
 * crossing. */
#ifndef FSDP2_GO_FEW_H_
#define FSDP2_GO_FEW_H_

#include "error.h"

enum {
  FSDP2_GO_FEW_INPUTS = 6,
  FSDP2_GO_FEW_ELEMENTS = 8,
  FSDP2_GO_FEW_NAME = 127,
  FSDP2_GO_FEW_DIMS = 4,
  FSDP2_GO_FEW_FORWARD_INPUTS = 4,
};

/* A fsdp2_value. Its bits are an integer, those of a number, the id of a tensor or, for a list of
 * `count` elements, the place of the first one in `elements`. */
typedef struct fsdp2_go_few_value {
  int32_t kind, count;
  uint64_t bits;
} fsdp2_go_few_value;

typedef struct fsdp2_go_few {
  fsdp2_scope scope;
  uint32_t flags;
  int32_t n_inputs;
  fsdp2_go_few_value inputs[FSDP2_GO_FEW_INPUTS];
  uint64_t elements[FSDP2_GO_FEW_ELEMENTS];
} fsdp2_go_few;

typedef struct fsdp2_go_few_sizes {
  int64_t sizes[FSDP2_GO_FEW_DIMS];
} fsdp2_go_few_sizes;

/* The first output that is a tensor, {0} if there is none; the other outputs are destroyed. */
typedef struct fsdp2_go_first {
  fsdp2_go_error* error;
  fsdp2_tensor tensor;
} fsdp2_go_first;

/* The name has n_name bytes, at most FSDP2_GO_FEW_NAME. */
fsdp2_go_first fsdp2_go_op_few(const char* name, size_t n_name, fsdp2_go_few call);
/* Ids of handles, which registers take. The output goes into the scope unless that is 0. */
fsdp2_go_first fsdp2_go_forward_few(uint64_t module, uint64_t scope, size_t n_inputs,
                                    uint64_t input0, uint64_t input1, uint64_t input2,
                                    uint64_t input3);

/* fsdp2_tensor_from_buffer. Go does not look for pointers in what a pointer to char points to. */
fsdp2_go_first fsdp2_go_tensor_few(const char* data, size_t n_bytes, int32_t dtype,
                                   fsdp2_go_few_sizes shape, size_t n_dims);

#endif /* FSDP2_GO_FEW_H_ */
