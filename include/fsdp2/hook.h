/* Functions of the caller that run inside a shard's own work.
 *
 * They run on the thread that is inside the call that needs them (a forward, a backward), on every
 * rank in the same order. They may use tensors; collective calls on the mesh and calls on the model
 * are FSDP2_E_BUSY inside. Handles passed in are the library's and end when the function returns.
 *
 * A function that returns another status than FSDP2_OK fails that call with FSDP2_E_CALLBACK (and
 * the other ranks' with FSDP2_E_PEER_FAILED); the message has the status' name and the text of
 * fsdp2_callback_fail, or of the call inside that failed. Nothing may unwind through the library.
 *
 * fn NULL takes a function away. user_data is passed on; release(user_data) runs once the library
 * is done with it: when the function is replaced or taken away, or the model is gone. */
#ifndef FSDP2_HOOK_H_
#define FSDP2_HOOK_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* Inside a callback: sets the text that goes with a status, which is returned. */
FSDP2_CALL fsdp2_callback_fail(fsdp2_status status, const char* message);

/* gradients: 1-D, of all parameters of the unit, summed over the ranks but not divided or cast yet.
 * May be overwritten. */
typedef fsdp2_status (*fsdp2_all_reduce_hook_fn)(fsdp2_tensor gradients, void* user_data);
FSDP2_CALL fsdp2_shard_set_all_reduce_hook(fsdp2_shard shard, const char* unit /*(opt)*/,
                                           fsdp2_all_reduce_hook_fn fn /*(opt)*/, void* user_data,
                                           fsdp2_release_fn release /*(opt)*/);

/* The gradient of this rank's rows of a parameter, now that it holds this backward's. */
typedef fsdp2_status (*fsdp2_gradient_ready_fn)(const char* parameter, fsdp2_tensor gradient,
                                                void* user_data);
/* recurse 1: for every unit below, too. */
FSDP2_CALL fsdp2_shard_set_gradient_ready(fsdp2_shard shard, const char* unit /*(opt)*/,
                                          int32_t recurse, fsdp2_gradient_ready_fn fn /*(opt)*/,
                                          void* user_data, fsdp2_release_fn release /*(opt)*/);

/* What a parameter is gathered from and to. */
typedef struct fsdp2_gather_info {
  uint32_t struct_size;
  int32_t compute_dtype; /* gathered and computed in */
  int32_t shard_rank;    /* this rank's number in the group that gathers (a dim of the mesh) ... */
  int32_t shard_ranks;   /* ... of so many */
  const char* parameter; /* its name; lives during the call */
} fsdp2_gather_info;

/* What travels in an all-gather in place of a parameter's rows, e.g. an 8-bit form of them. Only
 * where there is something to gather: not on one rank that holds the parameter in its compute
 * dtype.
 *
 * Before: from this rank's chunk (1-D, zero-padded to the same length on every rank, in the shard's
 * dtype) to the tensor that is sent: 1-D, of one size and dtype on all ranks, to `out`, whose
 * handle then is the library's. After: from the ranks' pieces [shard_ranks, n] to their chunks
 * [shard_ranks, length] in compute dtype, which it writes to `chunks`. */
typedef fsdp2_status (*fsdp2_pre_all_gather_fn)(const fsdp2_gather_info* info, fsdp2_tensor chunk,
                                                fsdp2_tensor* out, void* user_data);
typedef fsdp2_status (*fsdp2_post_all_gather_fn)(const fsdp2_gather_info* info, fsdp2_tensor pieces,
                                                 fsdp2_tensor chunks, void* user_data);
/* Both or neither. */
FSDP2_CALL fsdp2_shard_set_all_gather_extension(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                fsdp2_pre_all_gather_fn pre /*(opt)*/,
                                                fsdp2_post_all_gather_fn post /*(opt)*/,
                                                void* user_data,
                                                fsdp2_release_fn release /*(opt)*/);

FSDP2_END_DECLS

#endif /* FSDP2_HOOK_H_ */
