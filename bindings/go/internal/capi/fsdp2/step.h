/* One training step in one call: forward and backward of each micro batch, gradient norm, clipping,
 * optimizer, schedule, zero-grad. The same pieces exist as calls of their own (tensor.h, shard.h,
 * optimizer.h). */
#ifndef FSDP2_STEP_H_
#define FSDP2_STEP_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* How the learning rate goes on after the warm-up. */
enum {
  FSDP2_SCHEDULE_CONSTANT = 0, /* it stays at the optimizer's */
  FSDP2_SCHEDULE_LINEAR = 1,   /* falls to min_lr_ratio of that in a straight line */
  FSDP2_SCHEDULE_COSINE = 2    /* falls to the same in half a cosine */
};

/* What becomes of a step whose loss or gradient norm is infinite or NaN, in any dtype. All ranks
 * come to the same decision. It costs nothing while all is well: both numbers travel in the one
 * all-reduce that every step makes. Gradients that overflow under a loss scale are the scale's
 * affair: such a step is skipped, whatever is chosen here. */
enum {
  /* FSDP2_E_NOT_FINITE on all ranks. The message names the step, the first rank and micro batch
   * with such a loss, and the first parameter with such a gradient and the rank that holds it.
   * Nothing is updated, the gradients are dropped, the position stays, and the mesh goes on
   * working. With update_in_backward that holds for the loss alone (see there). */
  FSDP2_NOT_FINITE_ERROR = 0,
  /* Nothing is updated and the gradients are dropped. The step counts: its number, its batch and
   * its place in the schedule are used up. */
  FSDP2_NOT_FINITE_SKIP = 1,
  /* As if nothing were wrong, as PyTorch has it: parameters and optimizer state are not finite from
   * then on, and fsdp2_checkpoint_save refuses them unless its allow_not_finite is 1. */
  FSDP2_NOT_FINITE_APPLY = 2
};

/* What the loss of a step is the mean of. */
enum {
  FSDP2_LOSS_MEAN_MICRO_BATCHES = 0, /* their losses on all ranks, however many labels they have */
  FSDP2_LOSS_MEAN_LABELS = 1         /* the labels that count, in all micro batches and ranks */
};

typedef struct fsdp2_step_options {
  uint32_t struct_size;
  int32_t accumulate;      /* micro batches per step */
  int32_t accumulate_last; /* 1: reduce gradients at the last micro batch only */
  int32_t schedule;        /* FSDP2_SCHEDULE_..., after the warm-up */
  int64_t warmup_steps;    /* lr * (s+1)/warmup; see start_lr_ratio */
  int64_t total_steps;     /* length of the schedule, warm-up included */
  double min_lr_ratio;     /* final learning rate, as a fraction of the optimizer's */
  double max_grad_norm;    /* 0: no clipping */
  /* Dynamic loss scaling, for gradients in fp16: the loss is multiplied by a scale. The scale
   * begins at loss_scale (65536 is usual; 0 turns scaling off). A step whose gradients overflow is
   * not applied and halves the scale, down to 2^-24; loss_scale_interval steps in a row without
   * overflow double it. */
  double loss_scale;
  int64_t loss_scale_interval;
  int32_t not_finite;       /* FSDP2_NOT_FINITE_... */
  int32_t max_skips_in_row; /* one more skipped step is FSDP2_E_NOT_FINITE; 0: no limit */
  int32_t loss_mean;        /* FSDP2_LOSS_MEAN_...; _LABELS needs a language model */
  /* The loss of a language model takes its gradient in forward, some labels at a time, so that all
   * logits never exist together. How many: 1024 is usual; fewer need less memory and more time. 0:
   * by the vocabulary, about 16 MB of logits, but at least 512 bytes for each of its words. */
  int32_t loss_chunk;
  /* The learning rate from which the warm-up rises, as a fraction of the optimizer's:
   * start + (lr - start) * (s+1)/warmup. */
  double start_lr_ratio;
  /* Steps, the warm-up included, after which a linear or cosine schedule is at its final learning
   * rate; 0: total_steps. */
  int64_t decay_steps;
  /* 1: units that hold an embedding table or the head ("lm_head") reduce gradients at the last
   * micro batch only, and the others at each: those tables have much traffic and little to compute.
   * Without effect beside accumulate_last. */
  int32_t vocabulary_last;
  /* 1: the last backward of a step updates each unit as soon as its gradients are reduced, and
   * frees them at once, so that a rank never holds the gradients of all its rows: one copy of them
   * less, with one micro batch or accumulate_last. The results are the same, to the bit. What needs
   * all gradients before the first update is FSDP2_E_INVALID_ARGUMENT: max_grad_norm, loss_scale
   * and FSDP2_NOT_FINITE_SKIP, and so is cuda_graph; an optimizer whose ranks work together (Muon)
   * is FSDP2_E_UNSUPPORTED. FSDP2_NOT_FINITE_ERROR looks at the loss before that backward, so that
   * nothing is updated if it is not finite; gradients that are not finite are found after they have
   * been applied. After that, and after any other error that comes amid the updates, parameters are
   * half updated: steps, updates by hand, saves and states are FSDP2_E_WRONG_STATE until parameters
   * and optimizer have been loaded from a checkpoint (not partially). Parameters that a forward
   * reads without gradients too, detached, have their new values for the rest of backward. */
  int32_t update_in_backward;
  /* 1, on GPUs: forward and backward of a step become a CUDA graph. The first 3 steps of a shape
   * run as without it, the next one is recorded, and later ones are replays of it, for which the
   * host does next to nothing. They differ in nothing else. Each of up to 4 graphs keeps the memory
   * of a step's results; steps of further shapes run as without it. So do, with a warning, those of
   * a shape that cannot be recorded, for instance because its forward or backward waits for the
   * GPU. With several ranks, forward and backward are called once more before they are recorded, to
   * find that out. A step whose inputs the host reads (boundaries of packed sequences) or whose
   * units have hooks is not replayed. Not yet run on a GPU: it is compiled, and its order is proved
   * on recording devices. */
  int32_t cuda_graph;
  int32_t reserved;
} fsdp2_step_options;
/* clang-format off */
#define FSDP2_STEP_OPTIONS_INIT \
  { (uint32_t)sizeof(fsdp2_step_options), 1, 0, FSDP2_SCHEDULE_CONSTANT, 0, 0, 0.0, 0.0, 0.0, 2000, \
    FSDP2_NOT_FINITE_ERROR, 100, FSDP2_LOSS_MEAN_MICRO_BATCHES, 0, 0.0, 0, 0, 0, 0, 0 }
/* clang-format on */
FSDP2_CALL fsdp2_step_options_init(fsdp2_step_options* options, size_t struct_size);

typedef struct fsdp2_step_result {
  uint32_t struct_size;
  int32_t applied; /* 0: skipped, because of the loss scale or by not_finite; nothing was updated */
  int64_t step;    /* counts from 0 */
  int64_t n_tokens; /* over all ranks */
  double loss;      /* see FSDP2_LOSS_MEAN_...; before the update */
  double grad_norm; /* L2, before clipping, without the loss scale, accumulated in double */
  double lr, seconds, tokens_per_second;
  int64_t peak_unsharded_bytes; /* of gathered parameters on this rank, so far */
  double loss_scale;            /* in this step; 1: none */
  int32_t finite;               /* 0: the loss or the gradient norm is infinite or NaN */
  int32_t skips_in_row;         /* steps not applied up to this one; 0: this one was */
  int64_t n_labels; /* that count, over all ranks; 0 for a module that does not count labels */
  /* Both means, whichever `loss` is: they differ where micro batches have different numbers of
   * labels that count. NaN where a micro batch, or for the second all of them, have none. */
  double mean_over_micro_batches, mean_over_labels;
} fsdp2_step_result;

/* [c] Creates a step. The optimizer must belong to the shard; its learning rate at this call is the
 * schedule's peak. FSDP2_E_UNSUPPORTED for FSDP2_LOSS_MEAN_LABELS or a loss_chunk on a module that
 * does not count labels, for vocabulary_last on one without such tables, and for update_in_backward
 * with an optimizer whose ranks work together. So is cuda_graph without GPUs or NCCL, with
 * FSDP2_DEBUG=detail, offload or ranks that share sequences, on a module that is or contains a
 * custom one, since a replay would not call its function (stock layers can be recorded), and on one
 * with parameters that are trained and not sharded. */
FSDP2_CALL fsdp2_step_create(fsdp2_shard shard, fsdp2_optimizer optimizer,
                             const fsdp2_step_options* options /*(opt)*/, fsdp2_step* out);
/* [c] Takes one step. `batch` holds the inputs of each micro batch in turn: n_batch is accumulate
 * times the number of inputs of one, as fsdp2_module_forward takes them (tokens and labels for a
 * language model; {0} for one that is left out). The model's output must be its loss. After
 * FSDP2_E_NOT_FINITE (see not_finite and max_skips_in_row) the step can be run again, with another
 * batch, unless update_in_backward has left parameters half updated. The first run warns, in the
 * log of rank 0, of parameters that are not frozen and got no gradient. */
FSDP2_CALL fsdp2_step_run(fsdp2_step step, const fsdp2_tensor* batch, size_t n_batch,
                          fsdp2_step_result* out);
/* Sets the number of the next step, where to continue after a resume. */
FSDP2_CALL fsdp2_step_set_position(fsdp2_step step, int64_t next_step);
/* Returns the number of the next step. */
FSDP2_CALL fsdp2_step_get_position(fsdp2_step step, int64_t* next_step);
FSDP2_API fsdp2_status fsdp2_step_destroy(fsdp2_step step);
/* Returns another handle to the same step; see convention 2 of fsdp2.h. */
FSDP2_CALL fsdp2_step_duplicate(fsdp2_step step, fsdp2_step* out);

FSDP2_END_DECLS

#endif /* FSDP2_STEP_H_ */
