/* fully_shard: a module's parameters cut over the ranks of a mesh, gathered around the forward and
 * backward of each unit, gradients reduced to the shards. */
#ifndef FSDP2_SHARD_H_
#define FSDP2_SHARD_H_

#include "base.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_WRAP_DEFAULT = 0, /* each module of the model's no-split classes, then the module itself */
  FSDP2_WRAP_NONE = 1     /* the module as one unit */
};
enum {
  FSDP2_COMM_PATH_AUTO = 0,   /* per parameter, by size and layout */
  FSDP2_COMM_PATH_DIRECT = 1, /* each parameter straight into its storage wherever layout allows */
  FSDP2_COMM_PATH_PACKED = 2  /* one buffer and one collective per unit */
};

typedef struct fsdp2_shard_options {
  uint32_t struct_size;
  int32_t reshard_after_forward;  /* 0: all units but the root; -1: always; 1: never; n >= 2: keep a
                                     1/n slice (not provided yet) */
  int32_t param_dtype;            /* gathered and computed in */
  int32_t reduce_dtype;           /* gradients reduced in; FSDP2_DTYPE_KEEP: the gradient's */
  int32_t output_dtype;           /* floating outputs are cast to */
  int32_t no_cast_forward_inputs; /* 1: leave floating inputs in their dtype */
  int32_t cpu_offload;            /* 1: shards in CPU memory (not provided yet) */
  int32_t wrap;
  int32_t comm_path;
  int32_t prefetch; /* units gathered ahead of use; -1: none, 0: one */
} fsdp2_shard_options;
/* clang-format off */
#define FSDP2_SHARD_OPTIONS_INIT \
  { (uint32_t)sizeof(fsdp2_shard_options), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* clang-format on */
FSDP2_CALL fsdp2_shard_options_init(fsdp2_shard_options* options, size_t struct_size);

/* [c] Shards the module over the mesh: 1-D, or 2-D as (replicate, shard). The parameters get their
 * values here if they have none yet. All ranks must pass the same options and the same model: else
 * FSDP2_E_INVALID_ARGUMENT everywhere, naming what differs. If reading the values fails, all that
 * is left to do with the module is to destroy it. */
FSDP2_CALL fsdp2_shard_create(fsdp2_module module, fsdp2_mesh mesh,
                              const fsdp2_shard_options* options /*(opt)*/, fsdp2_shard* out);
FSDP2_API fsdp2_status fsdp2_shard_destroy(fsdp2_shard shard);

/* 0: backward leaves gradients unreduced on every rank, to be added to (accumulation). */
FSDP2_CALL fsdp2_shard_set_requires_gradient_sync(fsdp2_shard shard, int32_t flag);
FSDP2_CALL fsdp2_shard_zero_grad(fsdp2_shard shard);
/* [c] The L2 norm of all gradients before clipping, which scales them by
 * min(1, max_norm / (norm + 1e-6)). max_norm 0 only measures. */
FSDP2_CALL fsdp2_shard_clip_grad_norm(fsdp2_shard shard, double max_norm, double* out_norm);

typedef struct fsdp2_parameter_info {
  uint32_t struct_size;
  int32_t dtype;         /* of the shard */
  int32_t compute_dtype; /* gathered and computed in */
  int32_t requires_grad, n_dims;
  int32_t shard_dim;                   /* -1: whole on this rank */
  int32_t has_grad, n_names;           /* n_names > 1: tied */
  int64_t shape[FSDP2_MAX_DIMS];       /* global */
  int64_t local_shape[FSDP2_MAX_DIMS]; /* this rank's rows; may be empty */
  int64_t local_offset;                /* first row of them */
} fsdp2_parameter_info;
FSDP2_CALL fsdp2_shard_get_parameter_count(fsdp2_shard shard, size_t* out);
FSDP2_CALL fsdp2_shard_get_parameter_info(fsdp2_shard shard, size_t index,
                                          fsdp2_parameter_info* out);
/* name 0 is the parameter's own, the others are its ties. */
FSDP2_CALL fsdp2_shard_get_parameter_name(fsdp2_shard shard, size_t index, int32_t name, char* buf,
                                          size_t cap, size_t* needed);
enum {
  FSDP2_PARAMETER_LOCAL = 0,      /* this rank's rows, sharing their memory */
  FSDP2_PARAMETER_LOCAL_GRAD = 1, /* their gradient; FSDP2_E_NOT_FOUND if there is none */
  FSDP2_PARAMETER_FULL = 2,       /* [c] gathered, a copy */
  FSDP2_PARAMETER_FULL_GRAD = 3   /* [c] */
};
FSDP2_CALL fsdp2_shard_get_parameter(fsdp2_shard shard, size_t index, int32_t which,
                                     fsdp2_tensor* out);

typedef struct fsdp2_shard_stats {
  uint32_t struct_size;
  int32_t n_units;
  int64_t all_gathers, reduce_scatters, all_reduces;                /* of units */
  int64_t all_gather_bytes, reduce_scatter_bytes, all_reduce_bytes; /* received by this rank */
  int64_t unsharded_bytes, peak_unsharded_bytes; /* of gathered parameters alive now, at most */
} fsdp2_shard_stats;
/* Counts since creation or the last reset. */
FSDP2_CALL fsdp2_shard_get_stats(fsdp2_shard shard, fsdp2_shard_stats* out);
FSDP2_CALL fsdp2_shard_reset_stats(fsdp2_shard shard);
/* The units as a table: name, parameters, bytes, dtypes, path of communication. */
FSDP2_CALL fsdp2_shard_describe(fsdp2_shard shard, char* buf, size_t cap, size_t* needed);

FSDP2_END_DECLS

#endif /* FSDP2_SHARD_H_ */
