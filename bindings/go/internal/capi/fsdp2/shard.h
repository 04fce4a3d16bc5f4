/* fully_shard: cuts a module's parameters over the ranks of a mesh, gathers them around the forward
 * and backward of each unit, and reduces gradients to the shards. unit.h has what a shard tells
 * about itself and what can be changed while it is in use; hook.h has callbacks. bindings/names.md
 * lists PyTorch's names for all of it. */
#ifndef FSDP2_SHARD_H_
#define FSDP2_SHARD_H_

#include "base.h"
#include "mesh.h"

FSDP2_BEGIN_DECLS

enum {
  FSDP2_WRAP_DEFAULT = 0, /* each module of the model's no-split classes is a unit */
  FSDP2_WRAP_NONE = 1,    /* no class makes units */
  FSDP2_WRAP_KINDS = 2    /* each module of the classes in wrap_kinds is a unit */
};
/* What forward leaves of a unit's gathered parameters for backward and for further forwards. A
 * number n >= 2 keeps a 1/n slice, which is then gathered over n neighbours; n divides the number
 * of ranks of a shard group. (PyTorch's True is ALWAYS; its False and its 1 are NEVER.) One field
 * holds these numbers and n, as one argument does in PyTorch; no n is below 2. What is left stays
 * until a backward frees it or this library gives the shards new values. Who writes to them by
 * other means after a forward without gradients calls fsdp2_shard_reshard. */
enum {
  FSDP2_RESHARD_AUTO = 0,   /* nothing, but the root keeps everything */
  FSDP2_RESHARD_ALWAYS = 1, /* nothing */
  FSDP2_RESHARD_NEVER = -1  /* everything */
};
enum {
  FSDP2_COMM_PATH_AUTO = 0,   /* per parameter, by size and layout */
  FSDP2_COMM_PATH_DIRECT = 1, /* each parameter straight into its storage where its layout allows */
  FSDP2_COMM_PATH_PACKED = 2  /* one buffer and one collective per unit */
};
enum {
  FSDP2_COMM_SCHEDULE_AGREED = 0, /* every unit once per forward and once per backward, in one order
                                     on all ranks, whatever each rank uses */
  FSDP2_COMM_SCHEDULE_ON_USE = 1  /* PyTorch's rule: what this rank uses, when it uses it */
};

/* A parameter that is to be sharded. The library fills the struct, as those of hook.h. */
typedef struct fsdp2_shard_dim_info {
  uint32_t struct_size;
  int32_t dtype; /* the module's */
  int32_t n_dims, reserved;
  int64_t shape[FSDP2_MAX_DIMS]; /* of the whole parameter */
  const char* parameter;         /* its dotted path in the module; valid during the call */
} fsdp2_shard_dim_info;

/* Writes to *out the dim to shard a parameter on. A negative dim counts from the end; any dim but 0
 * must divide evenly. All ranks must give the same answer. */
typedef fsdp2_status (*fsdp2_shard_dim_fn)(const fsdp2_shard_dim_info* info, int32_t* out,
                                           void* user_data);

/* All names are dotted paths below the module, such as "model.layers.0.mlp". */
typedef struct fsdp2_shard_options {
  uint32_t struct_size;
  int32_t reshard_after_forward; /* FSDP2_RESHARD_AUTO, _ALWAYS, _NEVER, or the n of 1/n */
  int32_t param_dtype;  /* dtype for gathering and computing; FSDP2_DTYPE_KEEP: the shard's */
  int32_t reduce_dtype; /* dtype for reducing gradients; FSDP2_DTYPE_KEEP: the gradient's */
  int32_t output_dtype; /* dtype for floating-point outputs of the root, or of the units that
                           fsdp2_shard_make_unit and _make_units make */
  int32_t no_cast_forward_inputs; /* 1: leave floating-point inputs in their dtype; the blocks of
                                     vision encoders do so anyway, for angles in fp32 */
  int32_t cpu_offload; /* 1: keep shards, their gradients and optimizer states in host memory,
                          pinned; no effect where parameters are there anyway */
  int32_t wrap;
  int32_t comm_path;
  int32_t prefetch;      /* units that the agreed schedule gathers ahead of use; -1: none, 0: one */
  int32_t no_pin_memory; /* 1: cpu_offload uses ordinary memory; pinned needs an accelerator */
  int32_t comm_schedule; /* this, prefetch, keep_buffers and one_communicator apply to all units,
                            and only in fsdp2_shard_create */
  int32_t load_from_rank0;  /* 1: rank 0 alone reads the weights, and broadcasts them */
  int32_t modules_per_unit; /* how many consecutive siblings of the wrapped classes make one unit;
                               0: one */
  int32_t wrap_embeddings;  /* 1: each embedding table is a unit */
  int32_t wrap_head;        /* 1: the language-model head ("lm_head") is a unit */
  int32_t defer_values;     /* 1: fsdp2_shard_load_values or a checkpoint gives the parameters their
                               values later; until then shards take no memory */
  int32_t keep_buffers;     /* 1: the memory of gathered parameters, and of what gathers and
                               reductions pass through, is kept from step to step: of each size as
                               many buffers as were in use at once, which fsdp2_plan_describe counts.
                               So units of equal sizes take turns with two, and after the first step
                               the allocator is not asked for any. See fsdp2_shard_release_buffers */
  int64_t wrap_min_numel;   /* > 0: a module is also a unit if it has this many elements that no
                               module inside it has taken */
  const char* const* wrap_kinds; /* with FSDP2_WRAP_KINDS: class names */
  size_t n_wrap_kinds;
  const char* const* wrap_names; /* (opt) more modules, each of which is a unit */
  size_t n_wrap_names;
  const char* const* ignored_names; /* (opt) parameters to leave alone: not sharded, not reduced,
                                       whole on every rank (fsdp2_module_get_parameter). They and
                                       their gradients are moved to the mesh's device. */
  size_t n_ignored_names;
  fsdp2_shard_dim_fn shard_dim; /* (opt) called once for each parameter; NULL: dim 0. It runs only
                                   inside the call that takes the options, so nothing needs to be
                                   released. */
  void* shard_dim_user_data;
  int32_t one_communicator; /* 1: reductions share the connections of the gathers, and do not
                               overlap with them. The agreed schedule then begins both in one order
                               on all ranks, whichever units each uses. A backward that meets units
                               in another order than the model's, or twice, is
                               FSDP2_E_WRONG_STATE */
  int32_t reserved;
} fsdp2_shard_options;
/* clang-format off */
#define FSDP2_SHARD_OPTIONS_INIT \
  { (uint32_t)sizeof(fsdp2_shard_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, \
    NULL, 0, NULL, 0, NULL, NULL, 0, 0 }
/* clang-format on */
FSDP2_CALL fsdp2_shard_options_init(fsdp2_shard_options* options, size_t struct_size);

/* Applies a strategy of PyTorch's older FullyShardedDataParallel by its name, in either case:
 * FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2. Sets fsdp_size of the
 * mesh, which must have no shape, and reshard_after_forward of the options; the rest of both stays.
 * fsdp_size: the number of ranks of a shard group, which the hybrid strategies need; 0: all ranks.
 */
FSDP2_CALL fsdp2_shard_apply_strategy(const char* name, int64_t fsdp_size, fsdp2_mesh_options* mesh,
                                      fsdp2_shard_options* options);

/* [c] Makes one unit by hand, of one module below `module` or of several as a group. Units are made
 * bottom-up, before fsdp2_shard_create makes the rest the root. A module inside another module of
 * the list is left out. Each call takes the parameters that no earlier call has taken, and has
 * options and a mesh of its own: that of the whole, a sub-mesh of it, or another mesh of its ranks.
 * Gradients are averaged over the ranks of the unit's mesh, and copies on ranks outside of it are
 * taken for equal by norms and checkpoints. The wrap fields, load_from_rank0 and defer_values must
 * keep their defaults. Errors, with nothing changed: FSDP2_E_NOT_FOUND (a name),
 * FSDP2_E_WRONG_STATE (sharded already, or below a module that is), FSDP2_E_INVALID_ARGUMENT (a
 * shard dim that does not exist, a mesh of another job, a container without a forward),
 * FSDP2_E_UNSUPPORTED (a dim that does not divide). */
FSDP2_CALL fsdp2_shard_make_unit(fsdp2_module module, fsdp2_mesh mesh, const char* const* names,
                                 size_t n_names, const fsdp2_shard_options* options /*(opt)*/);

/* [c] Like fsdp2_shard_make_unit, but makes units by rule: one of each module that the wrap fields
 * select. So the modules of some classes can have a mesh and options of their own (experts, say),
 * before fsdp2_shard_create wraps those around them. FSDP2_E_WRONG_STATE if this makes no unit. */
FSDP2_CALL fsdp2_shard_make_units(fsdp2_module module, fsdp2_mesh mesh,
                                  const fsdp2_shard_options* options /*(opt)*/);

/* [c] Shards the module over the mesh, which is 1-D, or 2-D as (replicate, shard). If its last dim
 * is named "cp", ranks along it share sequences (Ulysses): each is given the same whole batch,
 * keeps one part of every row, and exchanges it in attention for the whole rows of some of the
 * heads. Losses and outputs are those of the whole batch, on all ranks alike. Parameters are cut
 * over "cp" and the dim before it as one: (dp, cp) is never (replicate, shard). The module is a
 * language model of a config.json, otherwise FSDP2_E_UNSUPPORTED, whose heads the ranks can share,
 * otherwise FSDP2_E_INVALID_ARGUMENT. Forwards that find other batches on ranks of a block fail
 * with FSDP2_E_INVALID_ARGUMENT; an input that some of them leave out is taken from the others.
 *
 * The modules that
 * `wrap` and the other wrap fields select become units, inner ones first; then the module itself
 * becomes the root. A parameter that is tied across units goes to the unit of their common parent.
 * Parameters without values get them here. All ranks must pass the same options and the same model;
 * otherwise FSDP2_E_INVALID_ARGUMENT, on every rank, names what differs. If reading the values
 * fails, the module can only be destroyed. */
FSDP2_CALL fsdp2_shard_create(fsdp2_module module, fsdp2_mesh mesh,
                              const fsdp2_shard_options* options /*(opt)*/, fsdp2_shard* out);
FSDP2_API fsdp2_status fsdp2_shard_destroy(fsdp2_shard shard);
/* Returns another handle to the same shard; see convention 2 of fsdp2.h. The shard ends when
 * the last handle to it, to its optimizers and to its steps is destroyed. */
FSDP2_CALL fsdp2_shard_duplicate(fsdp2_shard shard, fsdp2_shard* out);
/* [c] Gives the parameters their values, after defer_values. FSDP2_E_WRONG_STATE if they have
 * values. */
FSDP2_CALL fsdp2_shard_load_values(fsdp2_shard shard);
/* Returns a new handle to the mesh that the module is sharded over. */
FSDP2_CALL fsdp2_shard_get_mesh(fsdp2_shard shard, fsdp2_mesh* out);

/* Forgets all gradients of what is sharded, unreduced ones included. For ignored parameters there
 * is fsdp2_module_zero_grad. */
FSDP2_CALL fsdp2_shard_zero_grad(fsdp2_shard shard);
/* [c] Returns the norm of all gradients, with replicas and ties counted once: the p-th root of the
 * sum of |g|^p or, for infinity, the largest |g|. norm_type: p > 0, or infinity. */
FSDP2_CALL fsdp2_shard_get_grad_norm(fsdp2_shard shard, double norm_type, double* out);
/* [c] Like fsdp2_shard_get_grad_norm; then multiplies the gradients by min(1, max_norm / (norm +
 * 1e-6)), or by NaN where the norm is. max_norm 0 only measures. */
FSDP2_CALL fsdp2_shard_clip_grad_norm(fsdp2_shard shard, double max_norm, double norm_type,
                                      double* out_norm);
/* [c] Sets *out to 1 if the gradients of any rank contain an infinity or a NaN. */
FSDP2_CALL fsdp2_shard_get_grad_overflow(fsdp2_shard shard, int32_t* out);
/* Multiplies this rank's gradients by a finite factor. */
FSDP2_CALL fsdp2_shard_scale_grad(fsdp2_shard shard, double factor);

/* The parameters that are sharded, one by one, by indices of their own: those of module.h, which
 * count ignored parameters too, are others. */
typedef struct fsdp2_parameter_info {
  uint32_t struct_size;
  int32_t dtype;         /* of the shard */
  int32_t compute_dtype; /* for gathering and computing */
  int32_t requires_grad, n_dims;
  int32_t shard_dim;                   /* -1: whole on this rank */
  int32_t has_grad, n_names;           /* n_names > 1: tied */
  int64_t shape[FSDP2_MAX_DIMS];       /* global, row-major */
  int64_t local_shape[FSDP2_MAX_DIMS]; /* this rank's rows; may be empty */
  int64_t local_offset;                /* global index of the first of these rows */
  int32_t shard_ranks;                 /* ranks over which the parameter is cut */
  int32_t replica_ranks;               /* ranks that hold the same rows: 1 unless the mesh is 2-D */
  int32_t unit;                        /* index of its unit; see unit.h */
  int32_t reserved;
} fsdp2_parameter_info;
/* Returns the number of parameters, and tells one by its index, which is below it. */
FSDP2_CALL fsdp2_shard_get_parameter_count(fsdp2_shard shard, size_t* out);
FSDP2_CALL fsdp2_shard_get_parameter_info(fsdp2_shard shard, size_t index,
                                          fsdp2_parameter_info* out);
/* Returns a name of a parameter. name_index: 0 is the parameter's own name, the others are its
 * ties. */
FSDP2_CALL fsdp2_shard_get_parameter_name(fsdp2_shard shard, size_t index, size_t name_index,
                                          char* buf, size_t cap, size_t* needed);
/* Finds a parameter by any of its names. FSDP2_E_NOT_FOUND if there is none, or if it is
 * ignored. */
FSDP2_CALL fsdp2_shard_get_parameter_index(fsdp2_shard shard, const char* name, size_t* out);
enum {
  /* This rank's rows, sharing their memory. What a forward without a backward has kept gathered is
   * not gathered anew because these rows are written: call fsdp2_shard_reset on all ranks first. */
  FSDP2_PARAMETER_LOCAL = 0,
  FSDP2_PARAMETER_LOCAL_GRAD = 1, /* their gradient; FSDP2_E_NOT_FOUND if there is none */
  FSDP2_PARAMETER_FULL = 2,       /* [c] a copy of the gathered parameter */
  FSDP2_PARAMETER_FULL_GRAD = 3   /* [c] */
};
/* Returns a parameter, this rank's rows of it, or its gradient. which: FSDP2_PARAMETER_... */
FSDP2_CALL fsdp2_shard_get_parameter(fsdp2_shard shard, size_t index, int32_t which,
                                     fsdp2_tensor* out);
/* Casts every shard to a floating-point dtype and forgets gradients. Where param_dtype
 * (reduce_dtype) was kept, computing (reducing) follows. An optimizer with state in the old dtype
 * refuses its next update with FSDP2_E_WRONG_STATE: make a new one. Parameters of integers stay as
 * they are. FSDP2_E_UNSUPPORTED on a single rank with a param_dtype, where the shard is the
 * module's own parameter. */
FSDP2_CALL fsdp2_shard_cast_parameters(fsdp2_shard shard, int32_t dtype);

FSDP2_END_DECLS

#endif /* FSDP2_SHARD_H_ */
