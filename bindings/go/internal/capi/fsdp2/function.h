/* Functions whose gradient the program computes: what torch.autograd.Function is in PyTorch. */
#ifndef FSDP2_FUNCTION_H_
#define FSDP2_FUNCTION_H_

#include "base.h"

FSDP2_BEGIN_DECLS

typedef struct fsdp2_function_info {
  uint32_t struct_size;
  int32_t reserved;
  const int32_t* needs_grad; /* of each input: 1 if its gradient is wanted */
  size_t n_inputs;
} fsdp2_function_info;

/* Both functions follow the rules of hook.h, and run without recording gradients.
 *
 * `forward` computes outputs[0] to [*n_outputs - 1] from the inputs, at least one, and may write to
 * `saved` the tensors that the backward needs: inputs, outputs or others, whose values must not
 * change until then. *n_saved is 0 before it. `cap`, the room in both, is FSDP2_MAX_OUTPUTS. The
 * handles in both belong to the library once it has returned FSDP2_OK. Under activation
 * checkpointing it runs a second time, in backward.
 *
 * `backward` computes gradients[i], for each input whose gradient is wanted, in that input's shape
 * and dtype, from what was saved and the gradients of the outputs; zeros stand for an output that
 * the loss does not depend on. {0}, which all begin as, means no gradient. Handles in `gradients`
 * belong to the library as above. It runs on the thread that is inside the backward call, once for
 * each backward through the outputs. */
typedef fsdp2_status (*fsdp2_function_forward_fn)(const fsdp2_function_info* info,
                                                  const fsdp2_tensor* inputs, size_t n_inputs,
                                                  fsdp2_tensor* outputs, fsdp2_tensor* saved,
                                                  size_t cap, size_t* n_outputs, size_t* n_saved,
                                                  void* user_data);
typedef fsdp2_status (*fsdp2_function_backward_fn)(const fsdp2_function_info* info,
                                                   const fsdp2_tensor* saved, size_t n_saved,
                                                   const fsdp2_tensor* output_gradients,
                                                   size_t n_outputs, fsdp2_tensor* gradients,
                                                   void* user_data);

/* Calls `forward`. If an input requires grad, a backward through the outputs calls `backward`, and
 * both may be needed until the graph that the outputs are in has gone; then user_data is released.
 * `name` is for messages. flags, scope and outputs are those of fsdp2_op_call. Gradients of
 * gradients are not there.
 *
 * Errors: FSDP2_E_CALLBACK (forward failed, or what it wrote is in no order),
 * FSDP2_E_WRONG_STATE (a tensor whose memory FSDP has freed). A backward through the outputs
 * fails with FSDP2_E_CALLBACK if the callback does, or if what it wrote is in no order. */
FSDP2_CALL fsdp2_function_call(const char* name, const fsdp2_tensor* inputs, size_t n_inputs,
                               uint32_t flags, fsdp2_scope scope /*(opt)*/,
                               fsdp2_function_forward_fn forward,
                               fsdp2_function_backward_fn backward, void* user_data,
                               fsdp2_release_fn release /*(opt)*/, fsdp2_tensor* outputs,
                               size_t cap, size_t* needed);

FSDP2_END_DECLS

#endif /* FSDP2_FUNCTION_H_ */
