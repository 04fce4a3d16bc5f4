/* Plans: what a sharded model holds and moves in one training step, worked out without running it.
 * The subject is the shard, so there is no plan to make and to destroy.
 * With a mesh of FSDP2_BACKEND_FAKE and a shard with defer_values, a plan takes one process and no
 * memory for parameters, whatever the model and the number of ranks. On a mesh whose device_type is
 * "meta" besides, a plan also tells what activations take (fsdp2_plan_get_memory). */
#ifndef FSDP2_PLAN_H_
#define FSDP2_PLAN_H_

#include "base.h"

FSDP2_BEGIN_DECLS

typedef struct fsdp2_plan_options {
  uint32_t struct_size;
  int32_t reserved;        /* 0 */
  double optimizer_states; /* elements kept for each trainable element: 2 for AdamW, 1 for SGD with
                              momentum, 0 without */
  /* The micro batch's, at most 2^32 tokens, for what ranks that share sequences exchange; 0:
   * nothing is counted. */
  int64_t rows, sequence_length;
  int64_t optimizer_bytes; /* of this rank's optimizer, in place of optimizer_states: its
                              n_full_bytes (fsdp2_optimizer_get_info), which knows algorithm, dtypes
                              and groups; 0: optimizer_states counts */
} fsdp2_plan_options;
#define FSDP2_PLAN_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_plan_options), 0, 2.0, 0, 0, 0}
FSDP2_CALL fsdp2_plan_options_init(fsdp2_plan_options* options, size_t struct_size);

typedef struct fsdp2_plan_info {
  uint32_t struct_size;
  int32_t n_units;
  int64_t numel; /* of the sharded parameters, ties counted once */
  /* Bytes on this rank, without activations and communication buffers. */
  int64_t shard_bytes, gradient_bytes, optimizer_bytes;
  int64_t peak_unsharded_bytes;          /* of gathered parameters, at most */
  int64_t peak_unreduced_gradient_bytes; /* of gradients before they are reduced, at most */
  /* In one step of one micro batch: collectives of units, and bytes that this rank receives. */
  int64_t all_gathers, reduce_scatters, all_reduces;
  int64_t all_gather_bytes, reduce_scatter_bytes, all_reduce_bytes;
  /* Calls of attention, where ranks share sequences. */
  int64_t all_to_alls, all_to_all_bytes;
} fsdp2_plan_info;

/* Plans a step that begins with everything sharded, by the present settings of unit.h. The
 * parameters need not have values. Not collective. FSDP2_E_UNSUPPORTED for
 * FSDP2_COMM_SCHEDULE_ON_USE and for units with an all-gather extension. */
FSDP2_CALL fsdp2_plan_get_info(fsdp2_shard shard, const fsdp2_plan_options* options /*(opt)*/,
                               fsdp2_plan_info* out);
/* Returns the plan of such a step as text: units, memory, traffic, and the order of gathers and
 * reductions. */
FSDP2_CALL fsdp2_plan_describe(fsdp2_shard shard, const fsdp2_plan_options* options /*(opt)*/,
                               char* buf, size_t cap, size_t* needed);

/* Bytes on this rank at the moment of a step when they are most. */
typedef struct fsdp2_plan_memory {
  uint32_t struct_size;
  int32_t reserved;
  int64_t peak_bytes;       /* the following three together */
  int64_t model_bytes;      /* shards, gathered parameters, gradients and buffers */
  int64_t activation_bytes; /* what forward keeps for backward, what is being computed, and
                               communication buffers */
  int64_t optimizer_bytes;
} fsdp2_plan_memory;

/* Finds the memory of a step by taking it without values: the forward and the backward of a module
 * whose output is its loss, for each of micro_batches (1 to 2^20) with these inputs. Only the
 * shapes and dtypes of the inputs count, and the boundaries of packed sequences; nothing is
 * computed, so that large steps take little time and memory. It is the memory of the CPU's step:
 * within 5 % of what tensors take there. Experts are assumed to get as many tokens as each other,
 * and all labels to count. A step that was made for the shard (fsdp2_step_create), the last one,
 * says by its loss_chunk, accumulate_last, vocabulary_last and update_in_backward how losses are
 * computed and when gradients are reduced and freed. The mesh's device_type is "meta"; its shards,
 * which are made with defer_values, never have values. Errors: FSDP2_E_UNSUPPORTED (another device
 * type; positions without boundaries, or else a forward that looks at values),
 * FSDP2_E_INVALID_ARGUMENT (inputs, or no loss), and what the forward of a custom module returns.
 */
FSDP2_CALL fsdp2_plan_get_memory(fsdp2_shard shard, const fsdp2_tensor* inputs, size_t n_inputs,
                                 size_t micro_batches, const fsdp2_plan_options* options /*(opt)*/,
                                 fsdp2_plan_memory* out);

/* What fsdp2_plan_choose_reshard has chosen. */
typedef struct fsdp2_plan_reshard {
  uint32_t struct_size;
  int32_t reserved;
  int32_t n_candidates; /* units, without the root, whose parameters come from other ranks */
  int32_t n_kept;       /* of these, units that stay gathered after forward */
  int64_t peak_bytes;   /* of a step then, as in fsdp2_plan_memory */
  int64_t resharded_peak_bytes; /* of a step in which none stays gathered */
} fsdp2_plan_reshard;

/* Sets reshard_after_forward of all units but the root: off for as many as a step of
 * fsdp2_plan_get_memory stays within budget_bytes with, which then need no gather in backward, and
 * on for the rest. Units that save most traffic for each byte that they keep come first; of equal
 * ones the last. fsdp2_shard_get_unit_settings tells them, and
 * fsdp2_shard_set_reshard_after_forward does the same to the shard that is to take the step, which
 * has the same units. The mesh is that of rank 0, which holds no less than any other, so that all
 * ranks that pass the same arguments choose alike; no rank waits for another. Errors, with nothing
 * set: those of fsdp2_plan_get_memory, FSDP2_E_INVALID_ARGUMENT (the mesh of another rank, a budget
 * below 1), FSDP2_E_OUT_OF_MEMORY (a step is beyond the budget whichever units stay gathered; the
 * message has the bytes that it takes at least). */
FSDP2_CALL fsdp2_plan_choose_reshard(fsdp2_shard shard, const fsdp2_tensor* inputs, size_t n_inputs,
                                     size_t micro_batches,
                                     const fsdp2_plan_options* options /*(opt)*/,
                                     int64_t budget_bytes, fsdp2_plan_reshard* out);

FSDP2_END_DECLS

#endif /* FSDP2_PLAN_H_ */
