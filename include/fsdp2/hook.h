/* Functions of the caller that run inside a shard's own work.
 *
 * They run on the thread that is inside the call that needs them (a forward, a backward), in the
 * same order on every rank. They may use tensors and read the model's parameters
 * (fsdp2_module_get_parameter_*, fsdp2_module_is_training); collective calls and all other calls on
 * the model are FSDP2_E_BUSY inside them, but for what a function below says. The handles that they
 * receive belong to the library and are valid until the function returns.
 *
 * A function that returns anything but FSDP2_OK fails the call around it with FSDP2_E_CALLBACK, and
 * the other ranks' calls with FSDP2_E_PEER_FAILED. The message has the name of the status and the
 * text of fsdp2_callback_fail, or of the library call that failed inside the function. A status of
 * class 3 or 4 is that of the call around it, too: a function that runs out of memory can be told
 * from one that fails, and if another rank has failed, a forward that waits for it in a call
 * of its child returns FSDP2_E_PEER_FAILED, and has not failed itself. Nothing may unwind through
 * the library.
 *
 * Each function gets an info struct first and user_data last. The library fills the struct, and
 * sets struct_size to its own sizeof. Later versions may append fields; a function that reads one
 * looks at struct_size first, which an earlier library sets to less. The struct and the texts that
 * it points to are valid until the function returns. The indices in it are those of
 * fsdp2_shard_get_unit_info and fsdp2_shard_get_parameter_info.
 *
 * What sets a function takes fn, user_data and release as its last arguments. fn NULL removes a
 * function. The library passes user_data on, and calls release(user_data) once it is done with it
 * (base.h): when the function is replaced or removed, or the model is gone. */
#ifndef FSDP2_HOOK_H_
#define FSDP2_HOOK_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* Sets, inside a callback, the text that goes with `status`, a status of base.h other than
 * FSDP2_OK, and returns `status`; any other number is FSDP2_E_INVALID_ARGUMENT. */
FSDP2_CALL fsdp2_callback_fail(fsdp2_status status, const char* message);

typedef struct fsdp2_all_reduce_info {
  uint32_t struct_size;
  int32_t unit_index;
  const char* unit; /* its name; "": the root */
} fsdp2_all_reduce_info;

/* gradients: 1-D, those of all parameters of the unit, averaged over the ranks and not yet cast;
 * with fsdp2_shard_set_gradient_divide_factor or _set_force_sum_reduction, not yet divided by what
 * is left to divide by. The hook may overwrite them, and make the collective calls on tensors and
 * numbers of mesh.h (all ranks alike), over a sub-mesh or another mesh than the unit's: one more
 * all-reduce, say. */
typedef fsdp2_status (*fsdp2_all_reduce_hook_fn)(const fsdp2_all_reduce_info* info,
                                                 fsdp2_tensor gradients, void* user_data);
/* Sets the hook of a unit; NULL: none. */
FSDP2_CALL fsdp2_shard_set_all_reduce_hook(fsdp2_shard shard, const char* unit /*(opt)*/,
                                           fsdp2_all_reduce_hook_fn fn /*(opt)*/, void* user_data,
                                           fsdp2_release_fn release /*(opt)*/);

typedef struct fsdp2_gradient_info {
  uint32_t struct_size;
  int32_t unit_index;
  int32_t parameter_index;
  int32_t reserved;
  const char* parameter; /* its name */
} fsdp2_gradient_info;

/* Called when the gradient of this rank's rows of a parameter is complete for this backward. */
typedef fsdp2_status (*fsdp2_gradient_ready_fn)(const fsdp2_gradient_info* info,
                                                fsdp2_tensor gradient, void* user_data);
/* Sets the function that is called with a unit's gradients; NULL: none. recurse 1: for every unit
 * below as well. */
FSDP2_CALL fsdp2_shard_set_gradient_ready(fsdp2_shard shard, const char* unit /*(opt)*/,
                                          int32_t recurse, fsdp2_gradient_ready_fn fn /*(opt)*/,
                                          void* user_data, fsdp2_release_fn release /*(opt)*/);

/* How a parameter is gathered. */
typedef struct fsdp2_gather_info {
  uint32_t struct_size;
  int32_t compute_dtype; /* for gathering and computing */
  int32_t shard_rank;    /* this rank's number in the group that gathers (a dim of the mesh) */
  int32_t shard_ranks;   /* the size of that group */
  int32_t unit_index;
  int32_t parameter_index;
  const char* parameter; /* its name */
} fsdp2_gather_info;

/* All-gather extensions change what travels in place of a parameter's rows, for example to an 8-bit
 * form of them. They run only where there is something to gather: not on a single rank that holds
 * the parameter in its compute dtype.
 *
 * `pre` turns this rank's chunk (1-D, zero-padded to the same length on every rank, in the shard's
 * dtype) into the tensor that is sent (1-D, of the same size and dtype on all ranks). The handle
 * that it writes to `out` then belongs to the library. `post` turns the tensors of all ranks,
 * `pieces` [shard_ranks, n], back into their chunks in the compute dtype, and writes these to
 * `chunks` [shard_ranks, length]. */
typedef fsdp2_status (*fsdp2_pre_all_gather_fn)(const fsdp2_gather_info* info, fsdp2_tensor chunk,
                                                fsdp2_tensor* out, void* user_data);
typedef fsdp2_status (*fsdp2_post_all_gather_fn)(const fsdp2_gather_info* info, fsdp2_tensor pieces,
                                                 fsdp2_tensor chunks, void* user_data);
/* Sets the unit's extension. Pass both functions, or neither for none. */
FSDP2_CALL fsdp2_shard_set_all_gather_extension(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                fsdp2_pre_all_gather_fn pre /*(opt)*/,
                                                fsdp2_post_all_gather_fn post /*(opt)*/,
                                                void* user_data,
                                                fsdp2_release_fn release /*(opt)*/);

FSDP2_END_DECLS

#endif /* FSDP2_HOOK_H_ */
