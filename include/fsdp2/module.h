/* Models. A module has structure at once and memory later: its parameters get values when it is
 * sharded (each rank reads only its rows) or, unsharded, at its first forward. */
#ifndef FSDP2_MODULE_H_
#define FSDP2_MODULE_H_

#include "base.h"

FSDP2_BEGIN_DECLS

typedef struct fsdp2_module_options {
  uint32_t struct_size;
  int32_t dtype; /* of the parameters; FSDP2_DTYPE_KEEP: fp32 */
  uint64_t seed; /* of the initial values, where there are no weights to read */
} fsdp2_module_options;
#define FSDP2_MODULE_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_module_options), FSDP2_DTYPE_KEEP, 0}
FSDP2_CALL fsdp2_module_options_init(fsdp2_module_options* options, size_t struct_size);

/* The model of a Hugging Face directory: config.json and safetensors, single or indexed. Model
 * types: llama, qwen2 (also Qwen2.5), qwen3, qwen3_moe. Errors: FSDP2_E_NOT_FOUND,
 * FSDP2_E_UNSUPPORTED (model_type), FSDP2_E_CORRUPT_DATA, each naming file and key or tensor. */
FSDP2_CALL fsdp2_module_from_pretrained(const char* directory,
                                        const fsdp2_module_options* options /*(opt)*/,
                                        fsdp2_module* out);
/* The model that a config.json (its text) describes, with initial values by seed: the same at any
 * world size. */
FSDP2_CALL fsdp2_module_from_config(const char* json, const fsdp2_module_options* options /*(opt)*/,
                                    fsdp2_module* out);
FSDP2_API fsdp2_status fsdp2_module_destroy(fsdp2_module module);

typedef struct fsdp2_module_info {
  uint32_t struct_size;
  int32_t n_parameters; /* tied ones once */
  int64_t numel;        /* elements of all parameters, tied ones once */
  int64_t vocab_size, max_positions;
} fsdp2_module_info;
FSDP2_CALL fsdp2_module_get_info(fsdp2_module module, fsdp2_module_info* out);

/* The parameters one by one, tied ones once, in an order that sharding does not change. What
 * sharding has taken over is read and changed through the shard (shard.h); what it has left alone
 * (ignored_names) is here: whole on every rank, not reduced, not updated by the shard's optimizers.
 */
typedef struct fsdp2_module_parameter_info {
  uint32_t struct_size;
  int32_t dtype; /* that the module was made with */
  int32_t requires_grad, is_sharded;
  int32_t has_grad; /* 0 where is_sharded is 1 */
  int32_t n_names;  /* > 1: tied */
  int32_t n_dims, reserved;
  int64_t shape[FSDP2_MAX_DIMS]; /* global, row-major */
} fsdp2_module_parameter_info;
FSDP2_CALL fsdp2_module_get_parameter_count(fsdp2_module module, size_t* out);
FSDP2_CALL fsdp2_module_get_parameter_info(fsdp2_module module, size_t index,
                                           fsdp2_module_parameter_info* out);
/* name 0 is the parameter's own, the others are its ties. */
FSDP2_CALL fsdp2_module_get_parameter_name(fsdp2_module module, size_t index, int32_t name,
                                           char* buf, size_t cap, size_t* needed);
/* By any of its names. FSDP2_E_NOT_FOUND if there is none. */
FSDP2_CALL fsdp2_module_get_parameter_index(fsdp2_module module, const char* name, size_t* out);
/* which: FSDP2_PARAMETER_LOCAL or _LOCAL_GRAD (shard.h), sharing their memory: so a program can
 * reduce the gradient of an ignored parameter (fsdp2_mesh_all_reduce_tensor) and update it. Errors:
 * FSDP2_E_WRONG_STATE (it is sharded, or has no values yet), FSDP2_E_NOT_FOUND (no gradient). */
FSDP2_CALL fsdp2_module_get_parameter(fsdp2_module module, size_t index, int32_t which,
                                      fsdp2_tensor* out);
/* Forgets all gradients: those of the shard (fsdp2_shard_zero_grad), and those it has left alone.
 */
FSDP2_CALL fsdp2_module_zero_grad(fsdp2_module module);

/* Freezes parameters (flag 0) or lets them train again (1), before anything is sharded; all ranks
 * alike. names: of parameters, ties included, or paths of modules, for all parameters at and below
 * them; none: all of the module. A frozen one is sharded and gathered with its unit, but has no
 * gradient, takes no part in reductions and no optimizer updates it. Errors, with nothing changed:
 * FSDP2_E_NOT_FOUND (a name), FSDP2_E_WRONG_STATE (sharded already). */
FSDP2_CALL fsdp2_module_set_requires_grad(fsdp2_module module, const char* const* names /*(opt)*/,
                                          size_t n_names, int32_t flag);

/* Activation checkpointing: the last of each `every` modules of these classes ("LlamaDecoderLayer";
 * n_kinds 0: the model's own layers), counted in order, keeps only its inputs in forward and runs
 * again in backward. Before or after the module is sharded, with the same losses and gradients.
 * Errors, with nothing changed: FSDP2_E_NOT_FOUND (a class that is not there, naming those that
 * are), FSDP2_E_WRONG_STATE (a module of them is checkpointed already), FSDP2_E_INVALID_ARGUMENT
 * (every < 1), FSDP2_E_UNSUPPORTED (Python's torch is loaded in this process). */
FSDP2_CALL fsdp2_module_checkpoint_activations(fsdp2_module module,
                                               const char* const* kinds /*(opt)*/, size_t n_kinds,
                                               int64_t every);

/* Training mode (1, as modules begin) or evaluation mode (0) of the module and all below it. The
 * language models of this library have no layer that behaves differently (no dropout); gradients
 * are recorded in either mode (see FSDP2_FORWARD_NO_GRAD). */
FSDP2_CALL fsdp2_module_train(fsdp2_module module, int32_t mode);
FSDP2_CALL fsdp2_module_is_training(fsdp2_module module, int32_t* out);

enum { FSDP2_FORWARD_NO_GRAD = 1 };
/* [c] if the module is sharded. Causal language models: (tokens [B,S] i64) gives logits [B,S,V];
 * (tokens, labels [B,S] i64) gives the mean cross-entropy, where label -100 is left out: one output
 * each. */
FSDP2_CALL fsdp2_module_forward(fsdp2_module module, const fsdp2_tensor* inputs, size_t n_inputs,
                                uint32_t flags, fsdp2_tensor* outputs, size_t cap,
                                size_t* n_outputs);
/* As fsdp2_module_forward, of a module inside by its dotted path, with the inputs that it takes (an
 * "lm_head": hidden states [B,S,D]). Tensors in nested outputs come one after the other; more than
 * cap is FSDP2_E_BUFFER_TOO_SMALL with their number in n_outputs. Of a sharded module all ranks
 * enter at the same one. */
FSDP2_CALL fsdp2_module_forward_submodule(fsdp2_module module, const char* path,
                                          const fsdp2_tensor* inputs, size_t n_inputs,
                                          uint32_t flags, fsdp2_tensor* outputs, size_t cap,
                                          size_t* n_outputs);

typedef struct fsdp2_generate_options {
  uint32_t struct_size;
  int32_t max_new_tokens;
  int32_t top_k; /* 0: all */
  int32_t reserved;
  double temperature; /* 0: the most likely token */
  uint64_t seed;
} fsdp2_generate_options;
#define FSDP2_GENERATE_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_generate_options), 64, 0, 0, 1.0, 0}
FSDP2_CALL fsdp2_generate_options_init(fsdp2_generate_options* options, size_t struct_size);
/* [c] if the module is sharded; every rank passes the same prompt and gets the same tokens. Writes
 * up to max_new_tokens tokens to `tokens` (room for that many) and their number to n_tokens. */
FSDP2_CALL fsdp2_module_generate(fsdp2_module module, const int64_t* prompt, size_t n_prompt,
                                 const fsdp2_generate_options* options /*(opt)*/, int64_t* tokens,
                                 size_t* n_tokens);

FSDP2_END_DECLS

#endif /* FSDP2_MODULE_H_ */
