/* Optimizers on shards: state lives beside the rank's own rows. Every parameter is in one group,
 * weight decay included, as PyTorch's optimizers do by default. */
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

FSDP2_CALL fsdp2_optimizer_set_lr(fsdp2_optimizer optimizer, double lr);
FSDP2_CALL fsdp2_optimizer_get_lr(fsdp2_optimizer optimizer, double* out);
/* One update of every shard that has a gradient. Communicates nothing. */
FSDP2_CALL fsdp2_optimizer_run(fsdp2_optimizer optimizer);
FSDP2_API fsdp2_status fsdp2_optimizer_destroy(fsdp2_optimizer optimizer);

FSDP2_END_DECLS

#endif /* FSDP2_OPTIMIZER_H_ */
