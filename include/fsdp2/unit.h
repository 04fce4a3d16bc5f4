/* The units of a shard, the root first: what each unit is, what can be changed about it while it is
 * in use (PyTorch's methods of an FSDPModule), and what the units have done.
 *
 * A unit is named by the dotted path of its module; NULL or "" is the root. A unit of several
 * modules goes by the path of any of them. FSDP2_E_NOT_FOUND if there is no module at a path,
 * FSDP2_E_INVALID_ARGUMENT if the module there is no unit. recurse 1: for every unit below as well;
 * a setting that has no recurse has none in PyTorch either. Settings hold from now on; all ranks
 * must make the same ones. Reading them is not collective. */
#ifndef FSDP2_UNIT_H_
#define FSDP2_UNIT_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_UNIT_SHARDED = 0,
  FSDP2_UNIT_GATHERING = 1, /* an all-gather is under way */
  FSDP2_UNIT_UNSHARDED = 2,
  FSDP2_UNIT_SLICED = 3 /* reshard_after_forward n: cut into slices over a smaller group */
};

typedef struct fsdp2_unit_info {
  uint32_t struct_size;
  int32_t state;
  int32_t n_modules, n_parameters; /* n_parameters 0: the units below have them all */
  int32_t dtype, compute_dtype; /* of the first parameter, and for computing; 0 if there is none */
  int32_t shard_dim;            /* -1: parameters differ in it, or there are none */
  int32_t is_root;
  int64_t numel;                       /* global elements */
  int64_t sharded_bytes;               /* of this rank's part, with padding */
  int64_t unsharded_bytes, live_bytes; /* of the gathered parameters: in full, and alive now */
} fsdp2_unit_info;
/* Returns the number of units, and tells one by its index, which is below it. */
FSDP2_CALL fsdp2_shard_get_unit_count(fsdp2_shard shard, size_t* out);
FSDP2_CALL fsdp2_shard_get_unit_info(fsdp2_shard shard, size_t index, fsdp2_unit_info* out);
/* Returns the name of a unit; that of the root is empty. */
FSDP2_CALL fsdp2_shard_get_unit_name(fsdp2_shard shard, size_t index, char* buf, size_t cap,
                                     size_t* needed);
/* Finds a unit by its name. */
FSDP2_CALL fsdp2_shard_get_unit_index(fsdp2_shard shard, const char* unit /*(opt)*/, size_t* out);

/* Sets whether backward reduces gradients. 0: it leaves them unreduced on every rank, and later
 * ones add to them (accumulation). Sets requires_all_reduce as well. */
FSDP2_CALL fsdp2_shard_set_requires_gradient_sync(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                  int32_t flag, int32_t recurse);
/* Sets whether backward reduces gradients over replicas, too. 0, with replicas: gradients are
 * reduced over the shard group's ranks only, and kept for a later backward. */
FSDP2_CALL fsdp2_shard_set_requires_all_reduce(fsdp2_shard shard, const char* unit /*(opt)*/,
                                               int32_t flag, int32_t recurse);
/* Sets whether the next backward is the last of its step. 0: the end of backward neither waits for
 * the last reduction nor forgets the order of forwards, because more backwards follow. Applies to
 * the whole tree. */
FSDP2_CALL fsdp2_shard_set_is_last_backward(fsdp2_shard shard, int32_t flag);
/* [c] Ends the backwards of a step by hand, for a caller who learns only after a backward that no
 * other will follow (data that end, the schedule of a pipeline). It reduces what backwards have put
 * off for want of gradient sync or all-reduce, of the units that have these switched on by now,
 * waits for every reduction and forgets the order of forwards. Where nothing was put off, it
 * reduces nothing. FSDP2_E_WRONG_STATE from inside of a forward or backward. */
FSDP2_CALL fsdp2_shard_finalize_backward(fsdp2_shard shard);
/* Returns what fsdp2_shard_set_is_last_backward has set, and 1 before that. */
FSDP2_CALL fsdp2_shard_get_is_last_backward(fsdp2_shard shard, int32_t* out);
/* Sets whether the unit is freed after forward. 1 or 0: as FSDP2_RESHARD_ALWAYS or _NEVER, in place
 * of the option of that name, also at the root, which is then no exception. */
FSDP2_CALL fsdp2_shard_set_reshard_after_forward(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                 int32_t flag, int32_t recurse);
/* Sets whether the unit is freed after backward. 0: what a backward has gathered stays after it. */
FSDP2_CALL fsdp2_shard_set_reshard_after_backward(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                  int32_t flag, int32_t recurse);
/* Sets whether backward gathers the unit. 0: it does not, because it can do without its parameters
 * (an embedding's). If it needs one after all, or would run a checkpointed segment of the unit
 * again, that backward is FSDP2_E_WRONG_STATE. Turning it off counts from the next forward on, and
 * is FSDP2_E_UNSUPPORTED if another autograd engine is in the process (Python's torch). */
FSDP2_CALL fsdp2_shard_set_unshard_in_backward(fsdp2_shard shard, const char* unit /*(opt)*/,
                                               int32_t flag);
/* Sets what a parameter without a gradient on any rank gets. 1: zeros instead of none. */
FSDP2_CALL fsdp2_shard_set_reduce_unused_parameters(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                    int32_t flag, int32_t recurse);
/* Divides gradients by this factor instead of the number of data-parallel ranks. Finite, > 0. */
FSDP2_CALL fsdp2_shard_set_gradient_divide_factor(fsdp2_shard shard, const char* unit /*(opt)*/,
                                                  double factor);
/* Sets whether reductions scale. 1: collectives only sum; scaling is a pass of its own. */
FSDP2_CALL fsdp2_shard_set_force_sum_reduction(fsdp2_shard shard, const char* unit /*(opt)*/,
                                               int32_t flag);
/* Sets where the unit's gathers and reductions have what they send and receive. 1: in memory that
 * NCCL gives and registers with the groups' communicators, which may then read and write it in
 * place; it counts from the next gather and reduction on. FSDP2_E_UNSUPPORTED if a group of several
 * ranks gives none: those over Gloo, shared memory and threads. NCCL's groups give it on any GPU,
 * whether or not it gains there. Sharded gradients, which reductions give, are in that memory, too;
 * sums over replicas and gathers of slices are of other groups, and use it as it is. That memory
 * stays with NCCL from step to step, also once the setting is 0 again, until
 * fsdp2_shard_release_buffers; LibTorch's allocator does not count it, plans do, about, and
 * fsdp2_plan_get_memory counts what is in use of it. Each CUDA graph takes memory of its own. Not
 * yet run on a GPU: it is compiled, and its order is proved on recording devices. */
FSDP2_CALL fsdp2_shard_set_allocate_memory_from_process_group(fsdp2_shard shard,
                                                              const char* unit /*(opt)*/,
                                                              int32_t flag);
/* Sets the units whose all-gathers are issued when this unit's forward (backward) begins. No units:
 * back to the schedule's own rule. */
FSDP2_CALL fsdp2_shard_set_forward_prefetch(fsdp2_shard shard, const char* unit /*(opt)*/,
                                            const char* const* units, size_t n_units);
FSDP2_CALL fsdp2_shard_set_backward_prefetch(fsdp2_shard shard, const char* unit /*(opt)*/,
                                             const char* const* units, size_t n_units);
/* Returns those lists as indices of units, in the order given; units without parameters are left
 * out. cap and needed are as in fsdp2_mesh_get_ranks. */
FSDP2_CALL fsdp2_shard_get_forward_prefetch(fsdp2_shard shard, const char* unit /*(opt)*/,
                                            size_t* units, size_t cap, size_t* needed);
FSDP2_CALL fsdp2_shard_get_backward_prefetch(fsdp2_shard shard, const char* unit /*(opt)*/,
                                             size_t* units, size_t cap, size_t* needed);

/* What the functions above set about one unit, apart from its prefetch lists. */
typedef struct fsdp2_unit_settings {
  uint32_t struct_size;
  int32_t requires_gradient_sync, requires_all_reduce;
  int32_t reshard_after_forward; /* FSDP2_RESHARD_ALWAYS or _NEVER once it is set; _AUTO: the option
                                    of that name holds */
  int32_t reshard_after_backward, unshard_in_backward;
  int32_t reduce_unused_parameters, force_sum_reduction;
  double gradient_divide_factor;              /* 0: not set, the number of data-parallel ranks */
  int32_t allocate_memory_from_process_group; /* 1: groups give it, NCCL's registered memory */
  int32_t reserved;
} fsdp2_unit_settings;
/* Returns the settings of one unit. A unit without parameters (see fsdp2_unit_info) has no
 * settings: what units begin with is returned. */
FSDP2_CALL fsdp2_shard_get_unit_settings(fsdp2_shard shard, const char* unit /*(opt)*/,
                                         fsdp2_unit_settings* out);
/* Sets all settings of one unit at once, and so restores what fsdp2_shard_get_unit_settings has
 * returned. Errors, with nothing changed: those of the single functions. */
FSDP2_CALL fsdp2_shard_set_unit_settings(fsdp2_shard shard, const char* unit /*(opt)*/,
                                         const fsdp2_unit_settings* settings);

/* [c] Gathers the unit's own parameters. async_op 1: only starts the gather; the next use, or
 * fsdp2_shard_wait_unshard, waits for it. They stay until a forward or backward frees them, or
 * until the shards have new values; once a state was taken of the shard, whose holder may write to
 * it, no longer than until the next forward begins. */
FSDP2_CALL fsdp2_shard_unshard(fsdp2_shard shard, const char* unit /*(opt)*/, int32_t async_op);
/* [c] Waits until the unit's parameters are gathered. */
FSDP2_CALL fsdp2_shard_wait_unshard(fsdp2_shard shard, const char* unit /*(opt)*/);
/* Frees the unit's gathered parameters. */
FSDP2_CALL fsdp2_shard_reshard(fsdp2_shard shard, const char* unit /*(opt)*/);
/* Leaves the whole tree sharded and idle, and drops unreduced gradients, for an iteration that was
 * given up. Calls of this library that fail have done that themselves. */
FSDP2_CALL fsdp2_shard_reset(fsdp2_shard shard);
/* Gives the memory that keep_buffers has kept, and that is not in use now, back to the allocator;
 * the next step takes it anew. The same for memory of groups, for which the host waits for the
 * device (fsdp2_shard_set_allocate_memory_from_process_group). Without these two there is none.
 * Each rank may call it when it likes. */
FSDP2_CALL fsdp2_shard_release_buffers(fsdp2_shard shard);

enum {
  FSDP2_EVENT_ALL_GATHER = 0,     /* an all-gather was issued */
  FSDP2_EVENT_UNSHARD = 1,        /* the unit's parameters are gathered */
  FSDP2_EVENT_RESHARD = 2,        /* they were freed, or cut into slices */
  FSDP2_EVENT_REDUCE_SCATTER = 3, /* a reduction of gradients was issued */
  FSDP2_EVENT_POST_BACKWARD = 4   /* the unit is done with this backward or, if it goes through
                                     several forwards, with one of them */
};
/* Returns what the units did, oldest first: kinds[i] by the unit with index units[i]. Keeps the
 * last 16,384 events since creation or the last clear. Writes at most cap of them and sets *needed
 * to their number; more than cap is FSDP2_E_BUFFER_TOO_SMALL. (NULL, NULL, 0) only asks for the
 * number. */
FSDP2_CALL fsdp2_shard_get_events(fsdp2_shard shard, int32_t* kinds, size_t* units, size_t cap,
                                  size_t* needed);
/* Forgets all events. */
FSDP2_CALL fsdp2_shard_clear_events(fsdp2_shard shard);

typedef struct fsdp2_shard_stats {
  uint32_t struct_size;
  int32_t n_units;                                                  /* with parameters */
  int64_t all_gathers, reduce_scatters, all_reduces;                /* of units */
  int64_t all_gather_bytes, reduce_scatter_bytes, all_reduce_bytes; /* received by this rank */
  int64_t unsharded_bytes, peak_unsharded_bytes; /* of gathered parameters: now, at most */
  int64_t all_to_alls, all_to_all_bytes; /* calls of attention, where ranks share sequences */
  int64_t kept_bytes;                    /* of keep_buffers: kept now, and not in use */
} fsdp2_shard_stats;
/* Returns what was counted since creation or the last reset. Bytes are those of the groups of the
 * shard's mesh, which other shards on the same mesh share. */
FSDP2_CALL fsdp2_shard_get_stats(fsdp2_shard shard, fsdp2_shard_stats* out);
/* Lets all counts begin anew. */
FSDP2_CALL fsdp2_shard_reset_stats(fsdp2_shard shard);
/* Returns the units as a table: name, parameters, bytes, dtypes, shard dim, path of
 * communication. */
FSDP2_CALL fsdp2_shard_describe(fsdp2_shard shard, char* buf, size_t cap, size_t* needed);

FSDP2_END_DECLS

#endif /* FSDP2_UNIT_H_ */
