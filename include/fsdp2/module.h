/* Models. A module has its structure at once and its memory later: the parameters get values
 * when the module is sharded (each rank reads only its rows) or, without sharding, at its first
 * forward. */
#ifndef FSDP2_MODULE_H_
#define FSDP2_MODULE_H_

#include "base.h"

FSDP2_BEGIN_DECLS

typedef struct fsdp2_module_options {
  uint32_t struct_size;
  int32_t dtype; /* of the parameters; FSDP2_DTYPE_KEEP: fp32, or that of an exported program */
  uint64_t seed; /* for dropout, and for the initial values, if there are no weights to read */
  /* (opt) The text of a JSON object: fields that are changed in config.json, as in
   * {"rope_theta": 1e6}. Objects in it are merged. Weights that are read must still fit. A field
   * that config.json lacks and the model does not read, or a value of another type, is
   * FSDP2_E_INVALID_ARGUMENT, as is any for a module that has no config.json. */
  const char* config_overrides;
  /* 1: a program of torch.export runs as the operators that are in its file. 0: where some of them
   * together are RMSNorm, a rotary embedding, the gate of a SwiGLU MLP or a linear layer, one of
   * the library's runs in their stead, which is faster, differs by rounding alone, and, but for
   * linear layers, has no second derivatives (docs/precision.md). TorchScript runs as its own
   * operators with either. The same on all ranks. 1 is FSDP2_E_INVALID_ARGUMENT for a module that
   * is not of fsdp2_module_from_exported. */
  int32_t plain_operators;
  int32_t reserved; /* 0 */
} fsdp2_module_options;
#define FSDP2_MODULE_OPTIONS_INIT \
  {(uint32_t)sizeof(fsdp2_module_options), FSDP2_DTYPE_KEEP, 0, NULL, 0, 0}
FSDP2_CALL fsdp2_module_options_init(fsdp2_module_options* options, size_t struct_size);

/* Makes the model of a Hugging Face directory: config.json and safetensors, in one file or indexed.
 * Model types: encoder, gemma, gemma2, gemma3_text, gpt2, llama, mistral, mixtral, phi3 (also
 * Phi-4 mini), qwen2 (also Qwen2.5), qwen2_5_vl, qwen3, qwen3_moe, qwen3_vl. Errors:
 * FSDP2_E_NOT_FOUND, FSDP2_E_UNSUPPORTED (model_type), FSDP2_E_CORRUPT_DATA; each names the file
 * and the key or tensor. */
FSDP2_CALL fsdp2_module_from_pretrained(const char* directory,
                                        const fsdp2_module_options* options /*(opt)*/,
                                        fsdp2_module* out);
/* Makes the model that the text of a config.json describes. The seed determines the initial values,
 * which are the same at any world size. */
FSDP2_CALL fsdp2_module_from_config(const char* json, const fsdp2_module_options* options /*(opt)*/,
                                    fsdp2_module* out);
/* Makes the model of any architecture that torch.export or TorchScript has written to a file.
 *
 * A .pt2 file of torch.export (torch 2.11): examples/python/export_model.py writes one. The modules
 * have the classes and paths, and the parameters the names, that they have in Python; the modules
 * in lists are the model's layers. What the export fixed stays: train or eval mode, the types and
 * ranges of sizes of the inputs, all of which are tensors, and the dtype that it computes in, which
 * is to be that of the parameters, or of fsdp2_shard_options.param_dtype. The first output is the
 * loss. Modules inside run only as parts of the whole. A program with random nodes (dropout) draws
 * from the default generators of the process, as in Python, and this call seeds them with `seed`.
 * Values are read from the file; a file without them waits for a checkpoint (defer_values).
 * Persistent buffers are in checkpoints, and may change in forward, as those of a batch norm do.
 *
 * A file of torch.jit.save, whatever its name: a module that was scripted or traced. Modules have
 * their classes, paths and parameter names here, too, and run by themselves where forward calls
 * them each time, one after the other, as in a Sequential or a list; they can then be units and
 * checkpointed. Those that it calls under an `if`, in a loop or in a `with` are part of the module
 * that calls them, and their parameters go to its unit or one around it. Forward takes tensors, in
 * any dtype that its code can; the module begins in the mode in which it was saved; its buffers are
 * in checkpoints; dropout draws as above. A constant that a trace has recorded, such as a device,
 * stays. LibTorch parses and compiles the code in the file: load none whose author you do not
 * trust. Its operators are checked, and the rest of the file is read as data.
 *
 * Errors: FSDP2_E_NOT_FOUND, FSDP2_E_UNSUPPORTED (control flow in a .pt2, a decomposed program, an
 * operator that LibTorch lacks or that does more than compute, parameters that forward changes,
 * attributes that a script assigns, quantized modules, a file of values alone),
 * FSDP2_E_CORRUPT_DATA; each names the file and the key, node or module. */
FSDP2_CALL fsdp2_module_from_exported(const char* path,
                                      const fsdp2_module_options* options /*(opt)*/,
                                      fsdp2_module* out);
FSDP2_API fsdp2_status fsdp2_module_destroy(fsdp2_module module);
/* Returns another handle to the same module; see convention 2 of fsdp2.h. */
FSDP2_CALL fsdp2_module_duplicate(fsdp2_module module, fsdp2_module* out);

typedef struct fsdp2_module_info {
  uint32_t struct_size;
  int32_t n_parameters;              /* a tied parameter counts once */
  int64_t numel;                     /* elements of all parameters, ties counted once */
  int64_t vocab_size, max_positions; /* 0 for a module that is no language model */
  /* What it takes on this rank now: parameters (shards with their padding, gathered and ignored
   * ones), their gradients, reduced or not, and buffers. Activations, optimizers and communication
   * are not in it. */
  int64_t n_bytes;
} fsdp2_module_info;
/* Tells the module's size. */
FSDP2_CALL fsdp2_module_get_info(fsdp2_module module, fsdp2_module_info* out);

/* All parameters one by one, a tied parameter once, in an order that sharding does not change.
 * Parameters that sharding has taken over are read and changed through the shard (shard.h). Those
 * that it leaves alone (ignored_names) are available here: whole on every rank, not reduced, and
 * not updated by the shard's optimizers. */
typedef struct fsdp2_module_parameter_info {
  uint32_t struct_size;
  int32_t dtype; /* with which the module was made */
  int32_t requires_grad, is_sharded;
  int32_t has_grad; /* 0 where is_sharded is 1 */
  int32_t n_names;  /* > 1: tied */
  int32_t n_dims, reserved;
  int64_t shape[FSDP2_MAX_DIMS]; /* global, row-major */
} fsdp2_module_parameter_info;
/* Returns the number of parameters, and tells one by its index, which is below it. */
FSDP2_CALL fsdp2_module_get_parameter_count(fsdp2_module module, size_t* out);
FSDP2_CALL fsdp2_module_get_parameter_info(fsdp2_module module, size_t index,
                                           fsdp2_module_parameter_info* out);
/* Returns a name of a parameter. name_index: 0 is the parameter's own name, the others are its
 * ties. */
FSDP2_CALL fsdp2_module_get_parameter_name(fsdp2_module module, size_t index, size_t name_index,
                                           char* buf, size_t cap, size_t* needed);
/* Finds a parameter by any of its names. FSDP2_E_NOT_FOUND if there is none. */
FSDP2_CALL fsdp2_module_get_parameter_index(fsdp2_module module, const char* name, size_t* out);
/* Returns a parameter or its gradient (which: FSDP2_PARAMETER_LOCAL or _LOCAL_GRAD, see shard.h),
 * sharing its memory, so that a program can reduce the gradient of an ignored parameter
 * (fsdp2_mesh_all_reduce_tensor) and update the parameter. Errors: FSDP2_E_WRONG_STATE (it is
 * sharded, or has no values yet), FSDP2_E_NOT_FOUND (no gradient). */
FSDP2_CALL fsdp2_module_get_parameter(fsdp2_module module, size_t index, int32_t which,
                                      fsdp2_tensor* out);
/* Forgets all gradients: those of the shard (fsdp2_shard_zero_grad) and those of ignored
 * parameters. */
FSDP2_CALL fsdp2_module_zero_grad(fsdp2_module module);

/* Freezes parameters (flag 0) or lets them train again (flag 1). Call it before anything is
 * sharded, with the same arguments on all ranks. A name is that of a parameter, ties included, or
 * the path of a module, which stands for all parameters at and below it; without names, the call is
 * for the whole module. A frozen parameter is sharded and gathered with its unit, but it has no
 * gradient, takes no part in reductions, and no optimizer updates it. Errors, with nothing changed:
 * FSDP2_E_NOT_FOUND (a name), FSDP2_E_WRONG_STATE (sharded already). */
FSDP2_CALL fsdp2_module_set_requires_grad(fsdp2_module module, const char* const* names /*(opt)*/,
                                          size_t n_names, int32_t flag);

enum { FSDP2_ACTIVATIONS_NO_EARLY_STOP = 1, FSDP2_ACTIVATIONS_BY_PATH = 2 };
/* Turns on activation checkpointing for the modules of these classes: counted in order, the last of
 * each `every` modules keeps only its inputs in forward and runs again in backward. kinds: class
 * names, such as "LlamaDecoderLayer"; n_kinds 0: the model's own layers. With
 * FSDP2_ACTIVATIONS_BY_PATH they are the paths of modules instead, at least one, such as
 * "model.layers.3"; their order does not matter. The second run stops once backward has what it
 * needs; with FSDP2_ACTIVATIONS_NO_EARLY_STOP it runs to its end, so that collective calls inside
 * are made as often on all ranks. The call may come before or after sharding, and changes no loss
 * and no gradient. Errors, with nothing changed: FSDP2_E_NOT_FOUND (a class or path that does not
 * exist, or no classes for a module without layers of its own, such as a custom one; lists those
 * that do), FSDP2_E_WRONG_STATE (one of the modules is checkpointed already),
 * FSDP2_E_INVALID_ARGUMENT (every < 1, flags, no paths, the path of a container),
 * FSDP2_E_UNSUPPORTED (Python's torch is loaded in this process). */
FSDP2_CALL fsdp2_module_checkpoint_activations(fsdp2_module module,
                                               const char* const* kinds /*(opt)*/, size_t n_kinds,
                                               size_t every, uint32_t flags);

/* Makes the gated MLPs of a model run in tiles of tokens, each computed again in backward: what
 * lies between their projections then exists for one tile at a time, and each MLP keeps only its
 * input. That is for the MLPs of models from config.json, experts among them; *out is their number.
 * tiles: how many the tokens of a call are cut into, or fewer where there are fewer tokens; 4 is
 * usual. The call may come before or after sharding; a later one sets another number. It changes no
 * loss and no gradient beyond rounding, which is less in bf16 and fp16: the gradients of weights
 * are summed over the tiles in fp32. Errors, with nothing changed: FSDP2_E_NOT_FOUND (no such MLP),
 * FSDP2_E_INVALID_ARGUMENT (tiles < 1). Where a projection in such an MLP is a unit or checkpointed
 * by itself, forward is FSDP2_E_WRONG_STATE. */
FSDP2_CALL fsdp2_module_tile_mlps(fsdp2_module module, size_t tiles, size_t* out /*(opt)*/);

/* Puts the module and everything below it into training mode (1, in which modules begin) or
 * evaluation mode (0). Models with dropout (of config.json, or in layers) differ in the two; both
 * record gradients (see FSDP2_FORWARD_NO_GRAD). Dropout follows from the seed of
 * fsdp2_module_options, which must be the same on all ranks: a row of the batch then meets the same
 * masks whichever rank has it. Checkpoints keep the state of its generator beside the random
 * generator ("fsdp2.rng"). */
FSDP2_CALL fsdp2_module_train(fsdp2_module module, int32_t mode);
/* Sets *out to 1 if the module is in training mode. */
FSDP2_CALL fsdp2_module_is_training(fsdp2_module module, int32_t* out);

enum { FSDP2_FORWARD_NO_GRAD = 1 };
/* [c] if the module is sharded. Runs forward. Causal language models have one output: (tokens [B,S]
 * i64) gives logits [B,S,V]; (tokens, labels [B,S] i64) gives the mean cross-entropy, which leaves
 * out labels of -100. Two more inputs may follow, and {0} stands for one that is left out, labels
 * included:
 *   positions [B,S] i64: those of the rotary embedding, or the rows of the table of a model that
 *     has learned its positions; 0 to S - 1 without it. [3,B,S] for models with mrope_section in
 *     their config.json.
 *   mask: what attention sees besides the causal order. [B,S], 0 for padding; [B,1 or heads,S,S],
 *     all that is seen; or [n + 1] i64, the boundaries of n sequences packed into the B * S tokens
 *     (0 first, B * S last). Without a mask, positions that do not go on by one begin a sequence.
 * The rope types dynamic and longrope rotate all rows of a forward alike, by the largest position
 * in it, padding included, once that is beyond the trained context, as in transformers. Where
 * positions make rows of several lengths (packed records), a row's loss then depends on the rows
 * beside it: on the micro batches, the ranks and the batch_size that the batch is shared out by.
 * Unlike transformers' dynamic, no forward depends on those before it.
 * Up to five more may follow for models that see images and videos (qwen2_5_vl, qwen3_vl), in the
 * form in which transformers' processors make them:
 *   pixel_values [patches, pixels of one] in a floating-point dtype, and image_grid_thw [images,3]
 *     i64 on the host: the frames, rows and columns of the patches of each image, in the order of
 *     the images in the batch. pixel_values_videos and video_grid_thw [videos,3] likewise.
 *   second_per_grid_ts [videos], on the host: the seconds from one frame of a video to the next; 1
 *     without it. Only for qwen2_5_vl.
 * They stand in for the tokens image_token_id and video_token_id of config.json: merge_size^2
 * patches for each. Without positions, those of the tokens are what transformers' get_rope_index
 * makes. A batch may be without images; where other ranks have some, this asks for the schedule
 * FSDP2_COMM_SCHEDULE_AGREED (shard.h), which is the default, and is an error under the other.
 * Tokens and labels on the host are checked. Those on a device already are not, since the host
 * would have to wait for it: one that is outside the vocabulary makes a loss of NaN.
 * Errors: FSDP2_E_INVALID_ARGUMENT (inputs that do not fit each other or the model),
 * FSDP2_E_INVALID_HANDLE ({0} for an input that the module needs). */
FSDP2_CALL fsdp2_module_forward(fsdp2_module module, const fsdp2_tensor* inputs, size_t n_inputs,
                                uint32_t flags, fsdp2_tensor* outputs, size_t cap, size_t* needed);
/* Says what fsdp2_module_forward would say of these inputs, with nothing computed and on this rank
 * alone: FSDP2_OK, or its errors. Before the module is sharded, the parameters are in the dtype
 * that it was made with; values are not needed yet. */
FSDP2_CALL fsdp2_module_check_inputs(fsdp2_module module, const fsdp2_tensor* inputs,
                                     size_t n_inputs);
/* Like fsdp2_module_forward, for a module inside this one, given by its dotted path, with the
 * inputs that it takes (hidden states [B,S,D] for an "lm_head"). The tensors of nested outputs come
 * one after the other; more than cap is FSDP2_E_BUFFER_TOO_SMALL with their number in *needed. If
 * the module is sharded, all ranks must pass the same path, and what is no unit of its own runs
 * only while its unit is gathered (fsdp2_shard_unshard); else it is FSDP2_E_WRONG_STATE. */
FSDP2_CALL fsdp2_module_forward_submodule(fsdp2_module module, const char* path,
                                          const fsdp2_tensor* inputs, size_t n_inputs,
                                          uint32_t flags, fsdp2_tensor* outputs, size_t cap,
                                          size_t* needed);

/* How forward-only work goes through the rows of a batch. */
typedef struct fsdp2_infer_options {
  uint32_t struct_size;
  int32_t reshard_after_forward; /* FSDP2_RESHARD_AUTO: as the units have it; _ALWAYS; or _NEVER:
                                    what is gathered serves all forwards of the call, which frees it
                                    at its end */
  int64_t batch_size;            /* rows of one forward, of which the last may have fewer; 0: all */
  int64_t chunk_size;            /* tokens whose logits exist at a time; 0: by the vocabulary */
  double temperature;            /* > 0; logits are divided by it */
} fsdp2_infer_options;
#define FSDP2_INFER_OPTIONS_INIT {(uint32_t)sizeof(fsdp2_infer_options), 0, 0, 0, 1.0}
FSDP2_CALL fsdp2_infer_options_init(fsdp2_infer_options* options, size_t struct_size);

/* [c] if the module is sharded. Says of each label, without gradients and without ever holding all
 * logits, its log-probability, and the entropy of the distribution in its place (both in nats, f32,
 * 0 for labels of -100). The inputs are those of fsdp2_module_forward. Both outputs are new
 * tensors, [B,S]; without labels, each token's label is the next token, and they are [B,S-1].
 * Rows are computed batch_size at a time and returned in order. Ranks may have batches of different
 * sizes, or of no rows ([0,S]), if they pass the same options apart from batch_size: all make as
 * many forwards as the rank with the most, and one that has none left runs them over a single
 * token. Dropout is on in training mode (fsdp2_module_train). Errors: those of
 * fsdp2_module_forward; FSDP2_E_UNSUPPORTED (a module that is no language model, or an encoder). */
FSDP2_CALL fsdp2_module_score(fsdp2_module module, const fsdp2_tensor* inputs, size_t n_inputs,
                              const fsdp2_infer_options* options /*(opt)*/, fsdp2_tensor* log_probs,
                              fsdp2_tensor* entropies);

typedef struct fsdp2_evaluation {
  uint32_t struct_size;
  int32_t reserved;
  int64_t n_labels; /* that count, over all ranks */
  double loss;      /* their mean cross-entropy; NaN if there are none */
} fsdp2_evaluation;
/* [c] if the module is sharded. Returns the loss of a batch without gradients, over the labels of
 * all ranks; otherwise as fsdp2_module_score. The mean of several batches is that of their losses
 * weighted by n_labels. */
FSDP2_CALL fsdp2_module_evaluate(fsdp2_module module, const fsdp2_tensor* inputs, size_t n_inputs,
                                 const fsdp2_infer_options* options /*(opt)*/,
                                 fsdp2_evaluation* out);

typedef struct fsdp2_generate_options {
  uint32_t struct_size;
  int32_t max_new_tokens;
  int32_t top_k;                 /* only the k most likely tokens; 0: all */
  int32_t reshard_after_forward; /* as in fsdp2_infer_options; each token takes a forward */
  double temperature;            /* 0: always the most likely token */
  uint64_t seed;
  double top_p; /* of what top_k leaves, the fewest tokens that are as likely together; 0: all */
  int64_t first_row;          /* the number of this rank's first prompt among those of all ranks */
  const int64_t* stop_tokens; /* (opt) each ends the row that it is generated in */
  size_t n_stop_tokens;
  const fsdp2_tensor* vision_inputs; /* (opt) images and videos of this rank's prompts, row by row:
                                        the inputs of fsdp2_module_forward from pixel_values on, {0}
                                        for one that is left out; borrowed for the call */
  size_t n_vision_inputs;
} fsdp2_generate_options;
/* clang-format off */
#define FSDP2_GENERATE_OPTIONS_INIT \
  { (uint32_t)sizeof(fsdp2_generate_options), 64, 0, 0, 1.0, 0, 0.0, 0, NULL, 0, NULL, 0 }
/* clang-format on */
FSDP2_CALL fsdp2_generate_options_init(fsdp2_generate_options* options, size_t struct_size);
/* [c] if the module is sharded. Goes on with one prompt. Writes at most max_new_tokens tokens to
 * `tokens`, a stop token included, and sets *n_tokens to their number. Ranks that pass the same
 * prompt get the same tokens; otherwise as fsdp2_module_generate_batch. If cap is less than
 * max_new_tokens, which is 0 to 2^24, the call is refused before anything is computed:
 * FSDP2_E_BUFFER_TOO_SMALL, with max_new_tokens in *n_tokens. */
FSDP2_CALL fsdp2_module_generate(fsdp2_module module, const int64_t* prompt, size_t n_prompt,
                                 const fsdp2_generate_options* options /*(opt)*/, int64_t* tokens,
                                 size_t cap, size_t* n_tokens);
/* [c] if the module is sharded. Goes on with several prompts at once: the rows of `prompts` [B,S]
 * i64, of each of which the first lengths[b] tokens count (1 to S); without lengths, all do. Only
 * the last tokens of a row that is longer than the model's positions are seen. The outputs are new
 * tensors: tokens [B,max_new_tokens] i64, with 0 behind the last token of a row, and counts [B]
 * i64, the number of tokens of each, a stop token included. Sampling draws by the seed and the
 * number of the row, so that a row goes on alike whatever rows are beside it and whichever rank has
 * it, as far as rounding does not decide. The rope types dynamic and longrope alone rotate all rows
 * of a forward as the longest of them needs it (see fsdp2_module_forward): pass such prompts one by
 * one where that matters. Ranks pass prompts of their own,
 * or none ([0,S]), and the same options apart from first_row and vision_inputs; all make forwards
 * until the last row of any rank has ended.
 *
 * Models that see images and videos answer to prompts with them in vision_inputs; a prompt has the
 * token of an image once for each of its merged patches, as for fsdp2_module_forward. Some prompts,
 * or all of a rank's, may have none. Ranks need FSDP2_COMM_SCHEDULE_AGREED (shard.h) for images. A
 * row with images may not outgrow the model's positions, max_new_tokens included. The tokens
 * that images and videos stand in for are never drawn. The encoder runs in each forward.
 *
 * Errors: FSDP2_E_INVALID_ARGUMENT (lengths, tokens outside the vocabulary, images that do not fit
 * the tokens), FSDP2_E_UNSUPPORTED (a module that is no language model, or an encoder). */
FSDP2_CALL fsdp2_module_generate_batch(fsdp2_module module, fsdp2_tensor prompts,
                                       const int64_t* lengths /*(opt)*/, size_t n_lengths,
                                       const fsdp2_generate_options* options /*(opt)*/,
                                       fsdp2_tensor* tokens, fsdp2_tensor* counts);

FSDP2_END_DECLS

#endif /* FSDP2_MODULE_H_ */
