/* Tensors at the boundary: shared with other libraries by DLPack, without a copy, or copied from
 * and to plain buffers, which are row-major. */
#ifndef FSDP2_TENSOR_H_
#define FSDP2_TENSOR_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum { FSDP2_DEVICE_CPU = 1, FSDP2_DEVICE_CUDA = 2 }; /* DLPack's numbers */

typedef struct fsdp2_tensor_info {
  uint32_t struct_size;
  int32_t dtype, device_type; /* FSDP2_DTYPE_..., FSDP2_DEVICE_... */
  int32_t device_index, n_dims, requires_grad;
  int64_t shape[FSDP2_MAX_DIMS], strides[FSDP2_MAX_DIMS]; /* strides in elements */
  int64_t n_bytes;                                        /* numel x element size */
} fsdp2_tensor_info;

/* Copies n_bytes of `data` into a new CPU tensor. n_bytes must be what dtype and shape need. n_dims
 * 0 makes a scalar. */
FSDP2_CALL fsdp2_tensor_from_buffer(const void* data, size_t n_bytes, int32_t dtype,
                                    const int64_t* shape, size_t n_dims, fsdp2_tensor* out);
/* Copies the elements, row-major, to `to`; n_bytes must equal info.n_bytes. */
FSDP2_CALL fsdp2_tensor_read(fsdp2_tensor tensor, void* to, size_t n_bytes);
/* Overwrites the elements, row-major, from `from`; n_bytes must equal info.n_bytes. Autograd does
 * not see the write: if a graph has kept the tensor for its backward, that backward fails. */
FSDP2_CALL fsdp2_tensor_write(fsdp2_tensor tensor, const void* from, size_t n_bytes);
/* Returns the value of a tensor of one element, as a double. */
FSDP2_CALL fsdp2_tensor_get_value(fsdp2_tensor tensor, double* out);

struct DLManagedTensorVersioned;
/* Shares the memory of `source`. The library takes `source` over only on FSDP2_OK, and calls its
 * deleter once the last view is gone: by the rules of fsdp2_release_fn (base.h), so never on a
 * thread that is outside of this library. On a GPU, whatever writes the tensor must have ended.
 * Refused: another DLPack major, a read-only tensor, null or misaligned data, negative strides, a
 * device that is not there, and memory that is on another device than the source says. */
FSDP2_CALL fsdp2_tensor_from_dlpack(struct DLManagedTensorVersioned* source, fsdp2_tensor* out);
/* Shares the tensor's memory; call (*out)->deleter, on any thread, when done. consumer_stream: 0 on
 * a CPU; any on a GPU, since the call waits until the tensor has its values. Refused: a tensor that
 * requires grad, or whose memory FSDP has freed. */
FSDP2_CALL fsdp2_tensor_to_dlpack(fsdp2_tensor tensor, uintptr_t consumer_stream,
                                  struct DLManagedTensorVersioned** out);

/* Tells the tensor's dtype, device, shape and strides. */
FSDP2_CALL fsdp2_tensor_get_info(fsdp2_tensor tensor, fsdp2_tensor_info* out);
/* Sets whether the tensor requires grad. 1: forwards and operators from now on record a gradient
 * for it; it must be floating-point and not the result of one that recorded gradients. */
FSDP2_CALL fsdp2_tensor_set_requires_grad(fsdp2_tensor tensor, int32_t flag);
/* Returns the sum of the gradients that backwards have left on a tensor that requires grad, sharing
 * its memory. FSDP2_E_NOT_FOUND if there is none. */
FSDP2_CALL fsdp2_tensor_get_grad(fsdp2_tensor tensor, fsdp2_tensor* out);
/* [c] Runs backward from a scalar through everything that made it. Gradients of sharded modules
 * arrive reduced, on the shards. FSDP2_E_WRONG_STATE if neither a forward nor an operator (op.h)
 * has made the tensor with gradients, if a backward has used up its graph, or if a module was
 * sharded after it had made the tensor. */
FSDP2_CALL fsdp2_tensor_backward(fsdp2_tensor loss);
/* [c] Like fsdp2_tensor_backward, from several tensors at once, starting with the given gradients,
 * each of its output's shape and dtype. NULL, or {0} for an output that is a scalar, stands for 1.
 * keep_graph 1: another backward may follow through the same graph. */
FSDP2_CALL fsdp2_tensor_run_backward(const fsdp2_tensor* outputs, size_t n_outputs,
                                     const fsdp2_tensor* gradients /*(opt)*/, int32_t keep_graph);
FSDP2_API fsdp2_status fsdp2_tensor_destroy(fsdp2_tensor tensor);
/* Returns another handle to the same tensor; see convention 2 of fsdp2.h. */
FSDP2_CALL fsdp2_tensor_duplicate(fsdp2_tensor tensor, fsdp2_tensor* out);

FSDP2_END_DECLS

#endif /* FSDP2_TENSOR_H_ */
