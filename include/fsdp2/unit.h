/* The units of a shard, its root first: what each is, what may be changed about it while it is in
 * use (PyTorch's methods of an FSDPModule), and what they have done.
 *
 * A unit is named by the dotted path of its module; NULL or "" is the root. Of a unit of several
 * modules any one's path will do. FSDP2_E_NOT_FOUND for a path where there is no module,
 * FSDP2_E_INVALID_ARGUMENT for a module that is no unit. recurse 1: for every unit below, too.
 * Settings hold from now on; all ranks must make the same ones. */
#ifndef FSDP2_UNIT_H_
#define FSDP2_UNIT_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_UNIT_SHARDED = 0,
  FSDP2_UNIT_GATHERING = 1, /* an all-gather is under way */
  FSDP2_UNIT_UNSHARDED = 2,
  FSDP2_UNIT_SLICED = 3 /* reshard_after_forward n: slices on the ranks of a smaller group */
};

typedef struct fsdp2_unit_info {
  uint32_t struct_size;
  int32_t state;
  int32_t n_modules, n_parameters; /* n_parameters 0: the units below have taken all */
  int32_t dtype, compute_dtype;    /* of the first parameter, and computed in; 0 if there is none */
  int32_t shard_dim;               /* -1: parameters differ in it, or there are none */
  int32_t is_root;
  int64_t numel;                       /* global elements */
  int64_t sharded_bytes;               /* of this rank's part, padding included */
  int64_t unsharded_bytes, live_bytes; /* of the gathered parameters: once there; alive now */
} fsdp2_unit_info;
FSDP2_CALL fsdp2_shard_get_unit_count(fsdp2_shard shard, size_t* out);
FSDP2_CALL fsdp2_shard_get_unit_info(fsdp2_shard shard, size_t index, fsdp2_unit_info* out);
/* Empty for the root. */
FSDP2_CALL fsdp2_shard_get_unit_name(fsdp2_shard shard, size_t index, char* buf, size_t cap,
                                     size_t* needed);
FSDP2_CALL fsdp2_shard_get_unit_index(fsdp2_shard shard, const char* unit /*(opt)*/, size_t* out);

/* 0: backward leaves gradients unreduced on every rank, to be added to (accumulation). Sets
 * requires_all_reduce, too. */
FSDP2_CALL fsdp2_shard_set_requires_gradient_sync(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                  int32_t flag, int32_t recurse);
/* 0, over replicas: gradients are reduced to the shards only, and kept for a later backward. */
FSDP2_CALL fsdp2_shard_set_requires_all_reduce(fsdp2_shard shard, const char* unit /*(opt)*/,
                                               int32_t flag, int32_t recurse);
/* 0: backward's end neither waits for the last reduction nor forgets the order of forwards, since
 * more backwards follow. Of the whole tree. */
FSDP2_CALL fsdp2_shard_set_is_last_backward(fsdp2_shard shard, int32_t flag);
/* 1 or 0 as FSDP2_RESHARD_ALWAYS or _NEVER, in place of the option of that name, the root's
 * exception included. */
FSDP2_CALL fsdp2_shard_set_reshard_after_forward(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                 int32_t flag, int32_t recurse);
FSDP2_CALL fsdp2_shard_set_reshard_after_backward(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                  int32_t flag, int32_t recurse);
/* 0: backward does not gather the unit, whose parameters it can do without (an embedding). Where it
 * needs one after all, or would run a checkpointed segment of the unit again, that backward is
 * FSDP2_E_WRONG_STATE. With another autograd engine in the process (Python's torch) turning it off
 * is FSDP2_E_UNSUPPORTED. */
FSDP2_CALL fsdp2_shard_set_unshard_in_backward(fsdp2_shard shard, const char* unit /*(opt)*/,
                                               int32_t flag);
/* 1: a parameter without a gradient on any rank gets zeros in place of none. */
FSDP2_CALL fsdp2_shard_set_reduce_unused_parameters(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                    int32_t flag, int32_t recurse);
/* Gradients are divided by this in place of the number of data-parallel ranks. Finite, > 0. */
FSDP2_CALL fsdp2_shard_set_gradient_divide_factor(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                  double factor);
/* 1: only sums on the wire, scaled by passes of their own. */
FSDP2_CALL fsdp2_shard_set_force_sum_reduction(fsdp2_shard shard, const char* unit /*(opt)*/,
                                               int32_t flag);
/* The units whose all-gathers are issued when this one's forward (backward) begins. None: back to
 * the schedule's own rule. */
FSDP2_CALL fsdp2_shard_set_forward_prefetch(fsdp2_shard shard, const char* unit /*(opt)*/,
                                            const char* const* units, size_t n_units);
FSDP2_CALL fsdp2_shard_set_backward_prefetch(fsdp2_shard shard, const char* unit /*(opt)*/,
                                             const char* const* units, size_t n_units);

/* [c] Gathers the unit's own parameters. async_op 1: only begins to; the next use, or
 * fsdp2_shard_wait_unshard, waits. */
FSDP2_CALL fsdp2_shard_unshard(fsdp2_shard shard, const char* unit /*(opt)*/, int32_t async_op);
/* [c] Until they are there. */
FSDP2_CALL fsdp2_shard_wait_unshard(fsdp2_shard shard, const char* unit /*(opt)*/);
/* Frees them. */
FSDP2_CALL fsdp2_shard_reshard(fsdp2_shard shard, const char* unit /*(opt)*/);
/* After an iteration that was given up: the whole tree sharded and idle, unreduced gradients gone.
 * Calls that fail in here have done that themselves. */
FSDP2_CALL fsdp2_shard_reset(fsdp2_shard shard);

enum {
  FSDP2_EVENT_ALL_GATHER = 0,     /* an all-gather was issued */
  FSDP2_EVENT_UNSHARD = 1,        /* its parameters are there */
  FSDP2_EVENT_RESHARD = 2,        /* they were freed, or cut to slices */
  FSDP2_EVENT_REDUCE_SCATTER = 3, /* a reduction of gradients was issued */
  FSDP2_EVENT_POST_BACKWARD = 4   /* the unit is done with this backward */
};
/* What the units did, oldest first: kinds[i] of the unit with index units[i]. The last 16,384
 * events since creation or the last clear. Writes the first cap of them and their number to needed;
 * more than cap is FSDP2_E_BUFFER_TOO_SMALL, (NULL, NULL, 0) asks. */
FSDP2_CALL fsdp2_shard_get_events(fsdp2_shard shard, int32_t* kinds, int32_t* units, size_t cap,
                                  size_t* needed);
FSDP2_CALL fsdp2_shard_clear_events(fsdp2_shard shard);

typedef struct fsdp2_shard_stats {
  uint32_t struct_size;
  int32_t n_units;                                                  /* with parameters */
  int64_t all_gathers, reduce_scatters, all_reduces;                /* of units */
  int64_t all_gather_bytes, reduce_scatter_bytes, all_reduce_bytes; /* received by this rank */
  int64_t unsharded_bytes, peak_unsharded_bytes; /* of gathered parameters alive now, at most */
} fsdp2_shard_stats;
/* Counts since creation or the last reset. Bytes are those of the groups of the shard's mesh, which
 * other shards on the same mesh share. */
FSDP2_CALL fsdp2_shard_get_stats(fsdp2_shard shard, fsdp2_shard_stats* out);
FSDP2_CALL fsdp2_shard_reset_stats(fsdp2_shard shard);
/* The units as a table: name, parameters, bytes, dtypes, shard dim, path of communication. */
FSDP2_CALL fsdp2_shard_describe(fsdp2_shard shard, char* buf, size_t cap, size_t* needed);

FSDP2_END_DECLS

#endif /* FSDP2_UNIT_H_ */
