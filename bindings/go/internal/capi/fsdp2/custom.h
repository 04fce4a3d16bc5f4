/* Models that a program writes: modules whose forward is a function of the program, made of
 * operators (op.h) and of the forwards of other modules, and layers that the library has. They are
 * sharded, checkpointed, saved and trained as the library's own.
 *
 * A module is put together before its first forward, and before anything in it is sharded. A child
 * is then a part of its parent: its handle serves only to call it (fsdp2_module_forward), inside
 * its parent's forward, and every other call takes the handle of the whole. It does not keep the
 * parent alive, so that the parent's user_data may own it. */
#ifndef FSDP2_CUSTOM_H_
#define FSDP2_CUSTOM_H_

#include "base.h"
#include "module.h"

FSDP2_BEGIN_DECLS

typedef struct fsdp2_forward_info {
  uint32_t struct_size;
  int32_t is_training;
  const char* kind;               /* the module's */
  const fsdp2_tensor* parameters; /* its own, in the order in which they were added */
  size_t n_parameters;
  const fsdp2_tensor* buffers; /* likewise */
  size_t n_buffers;
} fsdp2_forward_info;

enum { FSDP2_MAX_OUTPUTS = 64 };
/* A forward: from `inputs` ({0} for one that is left out), the module's parameters and buffers to
 * outputs[0] to [*n_outputs - 1], of at most `cap`, which is FSDP2_MAX_OUTPUTS. The rules are those
 * of hook.h, but for these: it may call the module's children by fsdp2_module_forward; a call of
 * the module itself, or of one whose forward is under way, is FSDP2_E_WRONG_STATE. The handles in
 * `outputs` belong to the library once it has returned FSDP2_OK; an input, a parameter or a
 * buffer may be among them. Under activation checkpointing it runs a second time, in backward. */
typedef fsdp2_status (*fsdp2_forward_fn)(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                                         size_t n_inputs, fsdp2_tensor* outputs, size_t cap,
                                         size_t* n_outputs, void* user_data);
/* Makes a module of the class `kind`, by which fsdp2_shard_options.wrap_kinds and
 * fsdp2_module_checkpoint_activations choose it. The seed is that of the whole. */
FSDP2_CALL fsdp2_module_create_custom(const char* kind,
                                      const fsdp2_module_options* options /*(opt)*/,
                                      fsdp2_forward_fn fn, void* user_data,
                                      fsdp2_release_fn release /*(opt)*/, fsdp2_module* out);

/* Makes a layer that the library has: a module of the class `kind`, as above, whose forward is the
 * library's. `json` is an object with its options: {"in_features": 8, "out_features": 4}. Options
 * and parameters have PyTorch's names, meanings and defaults, and parameters begin as PyTorch's do,
 * by the seed of the whole. A layer makes one tensor of one, unless the table says more.
 *
 *   Linear              in_features, out_features, bias
 *   Embedding           num_embeddings, embedding_dim, padding_idx; takes indices (i64)
 *   LayerNorm, RMSNorm  normalized_shape, eps, elementwise_affine; LayerNorm: bias
 *   Conv1d, Conv2d      in_channels, out_channels, kernel_size, stride, padding, dilation,
 *                       groups, bias; a number for all dims, or an array
 *   Dropout             p; see fsdp2_module_train. Rows of the batch are told apart by their
 *                       values in the first input of the whole.
 *   ReLU, SiLU, Tanh, GELU, Flatten   GELU: approximate; Flatten: start_dim, end_dim
 *   MultiheadAttention  embed_dim, num_heads, bias, dropout (of attention weights, by the rules
 *                       of Dropout), and what PyTorch's has not: num_kv_heads
 *                       (with fewer of them, in_proj_weight has fewer rows), is_causal, and
 *                       rope_theta, the base of a rotary embedding. Takes x [B,S,D], which
 *                       attends to itself; where it is not causal, a second input may be a
 *                       mask, as aten::scaled_dot_product_attention takes it.
 *   TransformerEncoderLayer   d_model, nhead, dim_feedforward, dropout, activation ("relu",
 *                       "gelu"), layer_norm_eps, norm_first, bias, and is_causal and a mask as
 *                       MultiheadAttention; x is [B,S,D], as PyTorch's batch_first has it
 *   TransformerEncoder  the same options, and num_layers: so many of these layers, one after the
 *                       other, in "layers"
 *   MLP                 down_proj(act(up_proj(x))): hidden_size, intermediate_size, bias,
 *                       hidden_act ("gelu", "gelu_new", "relu", "silu")
 *   GatedMLP            down_proj(act(gate_proj(x)) * up_proj(x)): the same, but "silu"
 *   Sequential          runs the children that it is given (fsdp2_module_add_child) in order
 *   ModuleList          holds the children that it is given; does not run
 *
 * What is added to any other layer, its forward does not use. Errors: FSDP2_E_INVALID_ARGUMENT (a
 * kind or an option that does not exist, with the nearest that does; an option that is missing or
 * out of range). */
FSDP2_CALL fsdp2_module_create_layer(const char* kind, const char* json /*(opt)*/,
                                     const fsdp2_module_options* options /*(opt)*/,
                                     fsdp2_module* out);

/* What a parameter begins with, the same at any world size. */
enum { FSDP2_INIT_NORMAL = 0, FSDP2_INIT_ZEROS = 1, FSDP2_INIT_ONES = 2 };
typedef struct fsdp2_parameter_options {
  uint32_t struct_size;
  int32_t dtype; /* FSDP2_DTYPE_KEEP: fsdp2_module_options.dtype of its module */
  int32_t init;
  int32_t reserved;
  double std; /* of FSDP2_INIT_NORMAL, whose mean is 0 */
} fsdp2_parameter_options;
#define FSDP2_PARAMETER_OPTIONS_INIT \
  {(uint32_t)sizeof(fsdp2_parameter_options), FSDP2_DTYPE_KEEP, FSDP2_INIT_NORMAL, 0, 0.02}
FSDP2_CALL fsdp2_parameter_options_init(fsdp2_parameter_options* options, size_t struct_size);
/* Adds a parameter. Errors: FSDP2_E_INVALID_ARGUMENT (a name that is empty, has a dot or is taken;
 * a shape that is negative or too large), FSDP2_E_UNSUPPORTED (a module that
 * neither call above has made), FSDP2_E_WRONG_STATE (a part of another module; one that
 * has run, or in which something is sharded). */
FSDP2_CALL fsdp2_module_add_parameter(fsdp2_module module, const char* name, const int64_t* shape,
                                      size_t n_dims,
                                      const fsdp2_parameter_options* options /*(opt)*/);
/* Makes `child` a part of the module. Errors: as above, of either. */
FSDP2_CALL fsdp2_module_add_child(fsdp2_module module, const char* name, fsdp2_module child);
/* Makes the parameter `name` the same as `other`, as PyTorch's `head.weight = embed.weight`: one
 * parameter, sharded and saved once, with the gradients of both places, and what `other` begins
 * with. Both names are dotted paths in the module, which is that of the whole. If a unit holds only
 * one of the places, the parameter goes to the unit above both. Errors: as above;
 * FSDP2_E_NOT_FOUND (a name), FSDP2_E_INVALID_ARGUMENT (their shapes or dtypes differ). */
FSDP2_CALL fsdp2_module_tie_parameter(fsdp2_module module, const char* name, const char* other);

enum { FSDP2_BUFFER_NOT_PERSISTENT = 1 };
/* Adds a buffer: a tensor that no optimizer updates, such as a table or a running mean. It begins
 * as a copy of `value`, which must have the same shape and dtype on all ranks. Every rank has all
 * of it, nothing casts or reduces it, and each rank's changes are its own; if the ranks differ, a
 * checkpoint has one rank's. FSDP2_BUFFER_NOT_PERSISTENT: checkpoints do not hold it. A forward may
 * change its values in place; under activation checkpointing it does so twice. Errors: those of
 * fsdp2_module_add_parameter. */
FSDP2_CALL fsdp2_module_add_buffer(fsdp2_module module, const char* name, fsdp2_tensor value,
                                   uint32_t flags);
/* Returns the buffer at a dotted path in the module, sharing its memory. FSDP2_E_NOT_FOUND if there
 * is none. */
FSDP2_CALL fsdp2_module_get_buffer(fsdp2_module module, const char* name, fsdp2_tensor* out);

FSDP2_END_DECLS

#endif /* FSDP2_CUSTOM_H_ */
