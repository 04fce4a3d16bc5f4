/* Optimizers on shards: state lives beside the rank's own rows. Every parameter is in one group,
 * weight decay included, as PyTorch's optimizers do by default, until others are added. */
#ifndef FSDP2_OPTIMIZER_H_
#define FSDP2_OPTIMIZER_H_

#include "base.h"

FSDP2_BEGIN_DECLS

/* AdamW (Loshchilov and Hutter, 2019): decoupled decay, bias-corrected. */
typedef struct fsdp2_adamw_options {
  uint32_t struct_size;
  int32_t reserved;
  double lr, beta1, beta2, eps, weight_decay;
} fsdp2_adamw_options;
#define FSDP2_ADAMW_OPTIONS_INIT \
  {(uint32_t)sizeof(fsdp2_adamw_options), 0, 1e-3, 0.9, 0.999, 1e-8, 1e-2}
FSDP2_CALL fsdp2_adamw_options_init(fsdp2_adamw_options* options, size_t struct_size);
FSDP2_CALL fsdp2_optimizer_adamw(fsdp2_shard shard, const fsdp2_adamw_options* options /*(opt)*/,
                                 fsdp2_optimizer* out);

/* SGD with momentum, no dampening; weight decay is added to the gradient. */
typedef struct fsdp2_sgd_options {
  uint32_t struct_size;
  int32_t nesterov;
  double lr, momentum, weight_decay;
} fsdp2_sgd_options;
#define FSDP2_SGD_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_sgd_options), 0, 1e-3, 0.0, 0.0}
FSDP2_CALL fsdp2_sgd_options_init(fsdp2_sgd_options* options, size_t struct_size);
FSDP2_CALL fsdp2_optimizer_sgd(fsdp2_shard shard, const fsdp2_sgd_options* options /*(opt)*/,
                               fsdp2_optimizer* out);

/* Moves parameters (any of their names) out of the first group into a new one with options of its
 * own, as PyTorch's parameter groups: no decay for norms and biases, say. All ranks alike. The
 * group's rate follows the optimizer's in the ratio that options.lr has to it now. Errors, with
 * nothing changed: FSDP2_E_NOT_FOUND (a name), FSDP2_E_INVALID_ARGUMENT (one that is frozen or in
 * another group; the other algorithm's optimizer; nothing would be left in the first group),
 * FSDP2_E_WRONG_STATE (the optimizer's rate is 0). */
FSDP2_CALL fsdp2_optimizer_add_adamw_group(fsdp2_optimizer optimizer, const char* const* names,
                                           size_t n_names,
                                           const fsdp2_adamw_options* options /*(opt)*/);
FSDP2_CALL fsdp2_optimizer_add_sgd_group(fsdp2_optimizer optimizer, const char* const* names,
                                         size_t n_names,
                                         const fsdp2_sgd_options* options /*(opt)*/);

/* The state of a parameter (its index, see fsdp2_shard_get_parameter_index) by torch.optim's name
 * for it: AdamW's "exp_avg", "exp_avg_sq" and "step" (a float), SGD's "momentum_buffer"; zeros
 * before the first update. which: FSDP2_PARAMETER_LOCAL, sharing memory with the optimizer, or [c]
 * _FULL, a copy. FSDP2_E_NOT_FOUND if the parameter is frozen or has no such state. */
FSDP2_CALL fsdp2_optimizer_get_state(fsdp2_optimizer optimizer, size_t parameter, const char* name,
                                     int32_t which, fsdp2_tensor* out);

/* Of the first group; the others follow. */
FSDP2_CALL fsdp2_optimizer_set_lr(fsdp2_optimizer optimizer, double lr);
FSDP2_CALL fsdp2_optimizer_get_lr(fsdp2_optimizer optimizer, double* out);
/* One update of every shard that has a gradient. Communicates nothing. */
FSDP2_CALL fsdp2_optimizer_run(fsdp2_optimizer optimizer);
FSDP2_API fsdp2_status fsdp2_optimizer_destroy(fsdp2_optimizer optimizer);

FSDP2_END_DECLS

#endif /* FSDP2_OPTIMIZER_H_ */
