/* Tensors at the boundary: exchanged with other libraries by DLPack without a copy, or copied to
 * and from plain buffers. Layout is row-major. */
#ifndef FSDP2_TENSOR_H_
#define FSDP2_TENSOR_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum { FSDP2_DEVICE_CPU = 1, FSDP2_DEVICE_CUDA = 2 }; /* DLPack's numbers */

typedef struct fsdp2_tensor_info {
  uint32_t struct_size;
  int32_t dtype, device_type, device_index, n_dims, requires_grad;
  int64_t shape[FSDP2_MAX_DIMS], strides[FSDP2_MAX_DIMS]; /* strides in elements */
  uint64_t n_bytes;                                       /* numel x element size */
} fsdp2_tensor_info;

/* Copies n_bytes of `data` into a new CPU tensor. n_bytes must be what dtype and shape need.
 * n_dims 0 is a scalar. */
FSDP2_CALL fsdp2_tensor_from_buffer(const void* data, size_t n_bytes, int32_t dtype,
                                    const int64_t* shape, size_t n_dims, fsdp2_tensor* out);
/* Copies the elements, row-major, into `to`, which holds exactly n_bytes = info.n_bytes. */
FSDP2_CALL fsdp2_tensor_read(fsdp2_tensor tensor, void* to, size_t n_bytes);
/* Overwrites the elements, row-major, from n_bytes = info.n_bytes at `from`. Not seen by gradients:
 * a tensor that a graph has kept for its backward makes that fail. */
FSDP2_CALL fsdp2_tensor_write(fsdp2_tensor tensor, const void* from, size_t n_bytes);
/* The value of a tensor of one element, as a double. */
FSDP2_CALL fsdp2_tensor_get_value(fsdp2_tensor tensor, double* out);

struct DLManagedTensorVersioned;
/* Shares the memory of `source`, which moves to the library on FSDP2_OK only (its deleter runs when
 * the last view is gone). Another DLPack major, a read-only tensor, null or misaligned data,
 * negative strides or a device that this build lacks are refused. */
FSDP2_CALL fsdp2_tensor_from_dlpack(struct DLManagedTensorVersioned* source, fsdp2_tensor* out);
/* Shares the tensor's memory; call (*out)->deleter when done. consumer_stream: 0 on a CPU. A tensor
 * that requires grad or whose memory FSDP has freed is refused. */
FSDP2_CALL fsdp2_tensor_to_dlpack(fsdp2_tensor tensor, uintptr_t consumer_stream,
                                  struct DLManagedTensorVersioned** out);

FSDP2_CALL fsdp2_tensor_get_info(fsdp2_tensor tensor, fsdp2_tensor_info* out);
/* 1: forwards from here on record a gradient for this tensor, which must be floating and no result
 * of a forward. */
FSDP2_CALL fsdp2_tensor_set_requires_grad(fsdp2_tensor tensor, int32_t flag);
/* The sum of the gradients that backwards have left on a tensor that requires grad, sharing its
 * memory. FSDP2_E_NOT_FOUND if there is none. */
FSDP2_CALL fsdp2_tensor_get_grad(fsdp2_tensor tensor, fsdp2_tensor* out);
/* [c] Runs backward from a scalar through everything that made it. Gradients of sharded modules
 * arrive reduced, on the shards. FSDP2_E_WRONG_STATE for a tensor that no forward with gradients
 * has made, or whose graph a backward has used up. */
FSDP2_CALL fsdp2_tensor_backward(fsdp2_tensor loss);
/* [c] As fsdp2_tensor_backward, from several tensors at once, starting with the gradients given:
 * NULL, or {0} for one that is a scalar, stands for 1; else of the output's shape and dtype.
 * keep_graph 1: another backward may follow through the same graph. */
FSDP2_CALL fsdp2_tensor_run_backward(const fsdp2_tensor* outputs, size_t n_outputs,
                                     const fsdp2_tensor* gradients /*(opt)*/, int32_t keep_graph);
FSDP2_API fsdp2_status fsdp2_tensor_destroy(fsdp2_tensor tensor);

FSDP2_END_DECLS

#endif /* FSDP2_TENSOR_H_ */
