/* Optimizers on shards: their state lies beside the rank's own rows. At first every parameter is in
 * one group, weight decay included, as PyTorch's optimizers have it by default; more groups can be
 * added. */
#ifndef FSDP2_OPTIMIZER_H_
#define FSDP2_OPTIMIZER_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* AdamW (Loshchilov and Hutter, 2019): decoupled decay, bias-corrected; or Adam. */
typedef struct fsdp2_adamw_options {
  uint32_t struct_size;
  int32_t coupled_decay; /* 1: Adam, whose weight decay is added to the gradient */
  double lr, beta1, beta2, eps, weight_decay;
  int32_t state_dtype; /* of both moments; FSDP2_DTYPE_KEEP: each parameter's own, or, of a group,
                          the optimizer's. FSDP2_DTYPE_BF16, of parameters in fp32, halves them:
                          updates are computed in fp32, exp_avg is rounded to nearest, and
                          exp_avg_sq, which would else stand still, up or down by chance, in the
                          mean exactly. The chance follows from the parameter's name, the element's
                          place in it and the step, so that any number of ranks gets the same bits.
                          FSDP2_DTYPE_F32: parameters are in fp32 too. Else FSDP2_E_UNSUPPORTED */
  int32_t reserved;    /* 0 */
} fsdp2_adamw_options;
#define FSDP2_ADAMW_OPTIONS_INIT \
  {(uint32_t)sizeof(fsdp2_adamw_options), 0, 1e-3, 0.9, 0.999, 1e-8, 1e-2, FSDP2_DTYPE_KEEP, 0}
FSDP2_CALL fsdp2_adamw_options_init(fsdp2_adamw_options* options, size_t struct_size);
/* Creates an AdamW over all parameters of the shard that are not frozen, in one group. */
FSDP2_CALL fsdp2_optimizer_create_adamw(fsdp2_shard shard,
                                        const fsdp2_adamw_options* options /*(opt)*/,
                                        fsdp2_optimizer* out);

/* SGD with momentum, without dampening; weight decay is added to the gradient. */
typedef struct fsdp2_sgd_options {
  uint32_t struct_size;
  int32_t nesterov;
  double lr, momentum, weight_decay;
} fsdp2_sgd_options;
#define FSDP2_SGD_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_sgd_options), 0, 1e-3, 0.0, 0.0}
FSDP2_CALL fsdp2_sgd_options_init(fsdp2_sgd_options* options, size_t struct_size);
/* Creates an SGD over all parameters of the shard that are not frozen, in one group. */
FSDP2_CALL fsdp2_optimizer_create_sgd(fsdp2_shard shard, const fsdp2_sgd_options* options /*(opt)*/,
                                      fsdp2_optimizer* out);

/* Muon (Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024), as
 * torch.optim.Muon. A matrix of a hidden layer moves along its momentum made orthogonal, by
 * Newton's and Schulz's iteration in bf16. Those are all parameters of two dims but embeddings,
 * heads (lm_head, output_layer) and what is tied to these; the others are AdamW's, in a second
 * group of the same learning rate and decay, and fsdp2_optimizer_add_adamw_group gives it more. The
 * iteration needs whole matrices, so an update is [c]: with N elements of matrices over n ranks, a
 * rank receives about 2 * N * (n - 1) / n * (1 + 1 / n) bytes, and works on 1 / n of the matrices.
 * From the same gradients any n gives the same matrices, to the bit. */
typedef struct fsdp2_muon_options {
  uint32_t struct_size;
  int32_t newton_schulz_steps; /* 1 to 99 */
  int32_t no_nesterov;         /* 1: plain momentum */
  int32_t reserved;
  double lr, weight_decay;  /* of all groups; the decay is decoupled */
  double momentum;          /* of matrices */
  double matched_adamw_rms; /* the learning rate of a matrix [m,n] is lr * this * sqrt(max(m, n)),
                               which gives updates the size of AdamW's; 0: lr * sqrt(max(1, m / n)),
                               which is torch.optim.Muon's default */
  double beta1, beta2, eps; /* of AdamW */
} fsdp2_muon_options;
#define FSDP2_MUON_OPTIONS_INIT \
  {(uint32_t)sizeof(fsdp2_muon_options), 5, 0, 0, 1e-3, 0.1, 0.95, 0.2, 0.9, 0.999, 1e-8}
FSDP2_CALL fsdp2_muon_options_init(fsdp2_muon_options* options, size_t struct_size);
/* Creates a Muon over all parameters of the shard that are not frozen: matrices of hidden layers in
 * the first group, the others in the second. */
FSDP2_CALL fsdp2_optimizer_create_muon(fsdp2_shard shard,
                                       const fsdp2_muon_options* options /*(opt)*/,
                                       fsdp2_optimizer* out);

/* Moves parameters (by any of their names) out of the first group into a new group with its own
 * options, like PyTorch's parameter groups: no weight decay for norms and biases, say. All ranks
 * make the same call. The new group's learning rate keeps the ratio that options.lr has now to the
 * optimizer's. Errors, with nothing changed: FSDP2_E_NOT_FOUND (a name), FSDP2_E_INVALID_ARGUMENT
 * (a parameter that is frozen or in another group; an optimizer of another algorithm, but Muon has
 * groups of AdamW; another state_dtype; an empty first group), FSDP2_E_WRONG_STATE (the optimizer's
 * learning rate is 0). */
FSDP2_CALL fsdp2_optimizer_add_adamw_group(fsdp2_optimizer optimizer, const char* const* names,
                                           size_t n_names,
                                           const fsdp2_adamw_options* options /*(opt)*/);
FSDP2_CALL fsdp2_optimizer_add_sgd_group(fsdp2_optimizer optimizer, const char* const* names,
                                         size_t n_names,
                                         const fsdp2_sgd_options* options /*(opt)*/);

/* Groups by rule. The parameters that a rule is for move out of their group into a new one, which
 * differs from it in nothing else; a group that would lose all of its parameters is changed itself.
 * Rules may follow each other and groups made by name. All ranks make the same calls. */

enum {
  FSDP2_NO_DECAY_NORMS = 1, /* those of modules whose class has "Norm" in its name */
  FSDP2_NO_DECAY_BIASES = 2 /* those whose name ends in "bias" */
};
/* Sets the weight decay of the parameters that the flags name to 0. FSDP2_E_INVALID_ARGUMENT
 * (flags). */
FSDP2_CALL fsdp2_optimizer_exempt_from_decay(fsdp2_optimizer optimizer, uint32_t flags);
enum { FSDP2_NO_DECAY_BY_CLASS = 1 };
/* Sets the weight decay of these parameters to 0: of those whose name (any of their names) one of
 * the names matches as a whole, which may be patterns as below; or, with FSDP2_NO_DECAY_BY_CLASS,
 * of all at and below modules of these classes, such as "LlamaRMSNorm". Errors, with nothing
 * changed: FSDP2_E_NOT_FOUND (a name without a parameter that is not frozen),
 * FSDP2_E_INVALID_ARGUMENT (no names, flags). */
FSDP2_CALL fsdp2_optimizer_exempt_named_from_decay(fsdp2_optimizer optimizer,
                                                   const char* const* names, size_t n_names,
                                                   uint32_t flags);
/* Multiplies the learning rate of the parameters whose name (any of its names) the pattern matches
 * as a whole, now and through schedules. Patterns are those of the shell: * is any text, ? any
 * character, [0-3] one of these. Errors, with nothing changed: FSDP2_E_NOT_FOUND (no parameter that
 * is not frozen matches), FSDP2_E_INVALID_ARGUMENT (a factor that is not finite and at least 0; a
 * pattern for all of the first group, whose rate is the optimizer's). */
FSDP2_CALL fsdp2_optimizer_scale_lr(fsdp2_optimizer optimizer, const char* pattern, double factor);

/* Multiplies likewise the rate of the parameters that at least one of the patterns matches: each
 * once, and as one rule, so that those of one group stay together. Each pattern must match
 * something. */
FSDP2_CALL fsdp2_optimizer_scale_named_lr(fsdp2_optimizer optimizer, const char* const* patterns,
                                          size_t n_patterns, double factor);

enum { FSDP2_OPTIMIZER_ADAMW = 1, FSDP2_OPTIMIZER_SGD = 2, FSDP2_OPTIMIZER_MUON = 3 };
typedef struct fsdp2_optimizer_info {
  uint32_t struct_size;
  int32_t algorithm;        /* FSDP2_OPTIMIZER_... */
  int32_t n_groups;         /* 1 until groups are added */
  int32_t n_parameters;     /* those of the shard that are not frozen, a tied parameter once */
  int64_t n_bytes;          /* of this rank's state tensors, which a parameter gets when it is first
                               updated, or its state is first asked for or saved */
  int64_t n_received_bytes; /* from other ranks in all updates so far; 0 but for Muon */
  int64_t n_full_bytes; /* what n_bytes is once every parameter has been updated, by the groups of
                           now; also without values */
} fsdp2_optimizer_info;
/* Tells the optimizer's algorithm, groups and memory. */
FSDP2_CALL fsdp2_optimizer_get_info(fsdp2_optimizer optimizer, fsdp2_optimizer_info* out);

/* Groups count from 0, the first one, in the order in which they were added. A number without a
 * group is FSDP2_E_INVALID_ARGUMENT. */
typedef struct fsdp2_optimizer_group_info {
  uint32_t struct_size;
  int32_t n_parameters;
  double lr;                                        /* now */
  double beta1, beta2, eps, weight_decay, momentum; /* 0 where the algorithm has no such thing */
  int32_t nesterov, reserved;
  int64_t newton_schulz_steps; /* of a group of matrices of Muon; 0 for all other groups */
  double matched_adamw_rms;
} fsdp2_optimizer_group_info;
/* Tells the options of one group. */
FSDP2_CALL fsdp2_optimizer_get_group_info(fsdp2_optimizer optimizer, size_t group,
                                          fsdp2_optimizer_group_info* out);
/* Lists the group's parameters by their indices (see fsdp2_shard_get_parameter_index), ascending.
 * cap and needed are as in fsdp2_mesh_get_ranks. */
FSDP2_CALL fsdp2_optimizer_get_group_parameters(fsdp2_optimizer optimizer, size_t group,
                                                size_t* parameters, size_t cap, size_t* needed);

/* Returns the state of a parameter by torch.optim's name for it: "exp_avg", "exp_avg_sq" and "step"
 * (a float) of AdamW, "momentum_buffer" of SGD and of Muon's matrices; zeros before the first
 * update. parameter: its index (see fsdp2_shard_get_parameter_index). which: FSDP2_PARAMETER_LOCAL,
 * which shares memory with the optimizer, or [c] _FULL, a copy. FSDP2_E_NOT_FOUND if the parameter
 * is frozen or has no such state. */
FSDP2_CALL fsdp2_optimizer_get_state(fsdp2_optimizer optimizer, size_t parameter, const char* name,
                                     int32_t which, fsdp2_tensor* out);

/* Sets the learning rate of the first group; those of the other groups follow it, each in a ratio
 * of its own. fsdp2_step_run sets it in every step, to its schedule's. */
FSDP2_CALL fsdp2_optimizer_set_lr(fsdp2_optimizer optimizer, double lr);
/* Returns the learning rate of the first group. */
FSDP2_CALL fsdp2_optimizer_get_lr(fsdp2_optimizer optimizer, double* out);
/* Sets the learning rate of one group, which from now on follows the first group's in the new
 * ratio, through schedules too. Group 0: as fsdp2_optimizer_set_lr. All ranks make the same call.
 * FSDP2_E_WRONG_STATE if the first group's rate is 0, which leaves no ratio. */
FSDP2_CALL fsdp2_optimizer_set_group_lr(fsdp2_optimizer optimizer, size_t group, double lr);
/* Sets the weight decay of one group alone. All ranks make the same call. */
FSDP2_CALL fsdp2_optimizer_set_group_weight_decay(fsdp2_optimizer optimizer, size_t group,
                                                  double weight_decay);
/* Updates every shard that has a gradient, once. Communicates nothing, but for Muon's, which is
 * [c]. FSDP2_E_WRONG_STATE once a step with update_in_backward has left parameters half updated. */
FSDP2_CALL fsdp2_optimizer_run(fsdp2_optimizer optimizer);
FSDP2_API fsdp2_status fsdp2_optimizer_destroy(fsdp2_optimizer optimizer);
/* Returns another handle to the same optimizer; see convention 2 of fsdp2.h. */
FSDP2_CALL fsdp2_optimizer_duplicate(fsdp2_optimizer optimizer, fsdp2_optimizer* out);

FSDP2_END_DECLS

#endif /* FSDP2_OPTIMIZER_H_ */
