/* For every parameter of every function a value that is in order, so that a test can make one
 * argument wrong at a time. A parameter that is not listed here fails the test: list it by name, or
 * for one function where the name means something else there. */
#ifndef TESTS_CAPI_GOOD_ARGUMENTS_H_
#define TESTS_CAPI_GOOD_ARGUMENTS_H_

#include "tests/capi/dlpack.h"
#include "tests/capi/functions.h"
#include "tests/capi/misuse.h"

enum { kMaxParameters = 12, kMaxStruct = FSDP2_MAX_STRUCT_SIZE, kRoom = 64, kMaxGood = 256 };

/* The arguments of one call; outputs are in `outputs` of misuse.h. */
struct call {
  const struct abi_function* function;
  union abi_argument arguments[kMaxParameters];
};

static _Thread_local DLManagedTensorVersioned* lent; /* by fsdp2_tensor_to_dlpack */
static _Thread_local fsdp2_mesh submesh;             /* has a root */
static _Thread_local fsdp2_tensor logits;            /* has a graph */
static _Thread_local fsdp2_scope scope;
static _Thread_local fsdp2_generator generator;
static _Thread_local fsdp2_tensor generator_state;
static _Thread_local fsdp2_tokenizer tokenizer;
static _Thread_local fsdp2_module custom_module, custom_child; /* not run yet */
static _Thread_local fsdp2_value op_input;

/* Room for a struct that the caller fills, of any size that the library may look at. */
static _Thread_local union {
  double aligned;
  unsigned char bytes[kMaxStruct + 64];
} options_memory[kMaxParameters];

/* `type` is that of a number, "handle" or "pointer". */
static _Thread_local struct {
  const char* function; /* NULL: of any */
  const char* type;
  const char* name;
  union abi_argument value;
} good[kMaxGood];
static _Thread_local int n_good;

static inline void list_good(const char* function, const char* type, const char* name,
                             union abi_argument value) {
  if (EXPECT(n_good < kMaxGood)) {
    good[n_good].function = function;
    good[n_good].type = type;
    good[n_good].name = name;
    good[n_good++].value = value;
  }
}
#define NUMBER(function, name, type, number) \
  list_good(function, #type, name, (union abi_argument){.as_##type = (number)})
#define POINTER(function, name, to) \
  list_good(function, "pointer", name, (union abi_argument){.pointer = (void*)(to)})
#define OBJECT(function, name, handle) \
  list_good(function, "handle", name, (union abi_argument){.id = (handle).id})

static inline void list_good_handles(void) {
  OBJECT("fsdp2_mesh_get_root", "mesh", submesh);
  OBJECT(NULL, "mesh", job.mesh);
  OBJECT(NULL, "job", job.mesh);
  OBJECT(NULL, "a", job.mesh);
  OBJECT(NULL, "b", job.mesh);
  OBJECT("fsdp2_module_add_parameter", "module", custom_module);
  OBJECT("fsdp2_module_add_child", "module", custom_module);
  OBJECT("fsdp2_module_tie_parameter", "module", custom_module);
  OBJECT("fsdp2_module_add_buffer", "module", custom_module);
  OBJECT("fsdp2_module_get_buffer", "module", custom_module);
  OBJECT(NULL, "child", custom_child);
  OBJECT("fsdp2_module_set_requires_grad", "module", loose_module);
  OBJECT("fsdp2_shard_create", "module", loose_module);
  OBJECT("fsdp2_config_make_shard", "module", loose_module);
  OBJECT("fsdp2_shard_make_unit", "module", loose_module);
  OBJECT("fsdp2_shard_make_units", "module", loose_module);
  OBJECT(NULL, "module", job.module);
  OBJECT(NULL, "shard", job.shard);
  OBJECT(NULL, "optimizer", job.optimizer);
  OBJECT(NULL, "loader", job.loader);
  OBJECT(NULL, "step", job.step);
  OBJECT("fsdp2_generator_set_state", "state", generator_state);
  OBJECT(NULL, "state", state);
  OBJECT(NULL, "scope", scope);
  OBJECT(NULL, "generator", generator);
  OBJECT(NULL, "tokenizer", tokenizer);
  OBJECT(NULL, "tensor", tokens);
  OBJECT(NULL, "value", tokens);
  OBJECT(NULL, "whole", tokens);
  OBJECT(NULL, "piece", tokens);
  OBJECT(NULL, "loss", logits);
  OBJECT(NULL, "chunk", tokens);
  OBJECT(NULL, "prompts", tokens);
  op_input = (fsdp2_value)FSDP2_TENSOR(tokens);
  POINTER("fsdp2_op_call", "inputs", &op_input);
  POINTER(NULL, "tensors", &tokens);
  POINTER(NULL, "inputs", &tokens);
  POINTER(NULL, "outputs", &logits);
  POINTER(NULL, "gradients", &logits);
  POINTER(NULL, "batch", &tokens);
  POINTER(NULL, "source", lent);
}

static inline void list_good_texts(const char* saved, const char* new_path) {
  static const char* const kDim[] = {"fsdp"};
  static const char* const kHead[] = {"lm_head"};
  static const char* const kNorm[] = {"model.norm.weight"};
  static const char* const kLayer[] = {"LlamaDecoderLayer"};
  static const char* const kUnit[] = {"model.layers.0"};
  static const char* const kSets[] = {"steps=2"};
  static const char* const kFiles[] = {TINY_LLAMA_TOKENS};
  POINTER("fsdp2_mesh_get_dim_index", "name", "fsdp");
  POINTER("fsdp2_mesh_from_group", "name", "flat");
  POINTER("fsdp2_mesh_flatten", "name", "flat");
  POINTER("fsdp2_module_get_parameter_index", "name", kNorm[0]);
  POINTER("fsdp2_shard_get_parameter_index", "name", kNorm[0]);
  POINTER("fsdp2_shard_apply_strategy", "name", "FULL_SHARD");
  POINTER("fsdp2_module_tie_parameter", "name", "own");
  POINTER("fsdp2_module_get_buffer", "name", "table");
  POINTER("fsdp2_optimizer_get_state", "name", "exp_avg");
  POINTER("fsdp2_op_call", "name", "aten::abs");
  POINTER("fsdp2_op_get_schema", "name", "aten::abs");
  POINTER("fsdp2_state_get_value", "name", "value");
  POINTER("fsdp2_state_get_tensor", "name", "tensor");
  POINTER(NULL, "name", "new");
  POINTER(NULL, "other", "own");
  POINTER("fsdp2_module_create_layer", "kind", "ReLU");
  POINTER(NULL, "kind", "Custom");
  POINTER("fsdp2_mesh_get_submesh", "names", kDim);
  POINTER("fsdp2_mesh_flatten", "names", kDim);
  POINTER("fsdp2_shard_make_unit", "names", kHead);
  POINTER(NULL, "names", kNorm);
  POINTER(NULL, "patterns", kNorm);
  POINTER(NULL, "kinds", kLayer);
  POINTER(NULL, "units", kUnit);
  POINTER(NULL, "unit", "");
  POINTER("fsdp2_module_forward_submodule", "path", "lm_head");
  POINTER("fsdp2_loader_open", "path", TINY_LLAMA_TOKENS);
  POINTER("fsdp2_loader_open_mixture", "paths", kFiles);
  POINTER("fsdp2_checkpoint_find", "path", saved);
  POINTER("fsdp2_checkpoint_inspect", "path", saved);
  POINTER("fsdp2_module_from_pretrained", "directory", TINY_LLAMA);
  POINTER("fsdp2_module_from_exported", "path", "tests/parity/exported/llama.pt2");
  POINTER(NULL, "directory", new_path);
  POINTER(NULL, "vision_model", TINY_LLAMA);
  POINTER(NULL, "path", new_path);
  POINTER(NULL, "from", saved);
  POINTER(NULL, "to", new_path);
  POINTER(NULL, "trace_file", new_path);
  POINTER(NULL, "json", "{}");
  POINTER(NULL, "what", "a");
  POINTER("fsdp2_tokenizer_encode_record", "text", "{\"text\": \"a\"}");
  POINTER("fsdp2_tokenizer_encode_prompt", "text", "{\"text\": \"a\"}");
  POINTER(NULL, "text", "b");
  POINTER(NULL, "message", "c");
  POINTER(NULL, "pattern", "model.norm.*");
  POINTER(NULL, "config", "lr: 1.0e-3");
  POINTER(NULL, "config_name", "run.yaml");
  POINTER("fsdp2_config_lower", "role", "");
  POINTER("fsdp2_config_lower", "sets", kSets);
  POINTER("fsdp2_config_make_module", "plan", "model: " TINY_LLAMA);
  POINTER("fsdp2_config_make_loader", "plan", "tokens: " TINY_LLAMA_TOKENS);
  POINTER(NULL, "plan", "lr: 1.0e-3");
  POINTER(NULL, "key", "lr");
}

static inline void list_good_numbers(void) {
  static const double kWeights[1] = {1.0};
  static const int64_t kShape[2] = {1, 4}, kOffsets[2] = {0, 0}, kValues[4] = {1, 2, 3, 4};
  static const char* const kCounts[] = {
      "n_batch", "n_kinds",   "n_inputs", "n_names",  "n_prompt", "n_lengths",  "n_outputs",
      "n_units", "n_tensors", "n_sets",   "n_tokens", "n_paths",  "n_patterns", "n"};
  static const char* const kFlags[] = {"flag",
                                       "recurse",
                                       "mode",
                                       "keep_graph",
                                       "async_op",
                                       "rank0_only",
                                       "flat_optimizer_keys",
                                       "surround",
                                       "keep_special"};
  size_t i;
  NUMBER("fsdp2_runtime_set_threads", "n", size_t, 1);
  NUMBER("fsdp2_plan_get_memory", "micro_batches", size_t, 1);
  NUMBER("fsdp2_plan_choose_reshard", "micro_batches", size_t, 1);
  for (i = 0; i < sizeof(kCounts) / sizeof(kCounts[0]); ++i) {
    NUMBER(NULL, kCounts[i], size_t, 1);
  }
  for (i = 0; i < sizeof(kFlags) / sizeof(kFlags[0]); ++i) {
    NUMBER(NULL, kFlags[i], int32_t, 1);
  }
  NUMBER(NULL, "min_level", int32_t, FSDP2_LOG_OFF);
  NUMBER(NULL, "n_dims", size_t, 2);
  NUMBER(NULL, "n_bytes", size_t, sizeof(kValues));
  NUMBER(NULL, "cap", size_t, 8);
  NUMBER(NULL, "struct_size", size_t, 0);
  NUMBER(NULL, "index", size_t, 0);
  NUMBER(NULL, "parameter", size_t, 0);
  NUMBER(NULL, "dim", int32_t, 0);
  NUMBER(NULL, "tensor_dim", int32_t, 0);
  NUMBER(NULL, "name_index", size_t, 0);
  NUMBER(NULL, "group", size_t, 0);
  NUMBER(NULL, "weight_decay", double, 0.1);
  NUMBER(NULL, "which", int32_t, FSDP2_PARAMETER_LOCAL);
  NUMBER(NULL, "op", int32_t, FSDP2_REDUCE_SUM);
  NUMBER("fsdp2_shard_cast_parameters", "dtype", int32_t, FSDP2_DTYPE_F32);
  NUMBER(NULL, "dtype", int32_t, FSDP2_DTYPE_I64);
  NUMBER(NULL, "engine", int32_t, FSDP2_PRODUCT_ENGINE_AUTO);
  NUMBER(NULL, "precision", int32_t, FSDP2_MATMUL_HIGHEST);
  NUMBER(NULL, "flags", uint32_t, 0);
  NUMBER(NULL, "header_version", uint32_t, FSDP2_HEADER_VERSION);
  NUMBER(NULL, "status", fsdp2_status, FSDP2_E_IO);
  NUMBER(NULL, "seed", uint64_t, 1);
  NUMBER(NULL, "step", int64_t, 0);
  NUMBER(NULL, "next_step", int64_t, 0);
  NUMBER(NULL, "every", size_t, 1);
  NUMBER(NULL, "tiles", size_t, 1);
  NUMBER(NULL, "fsdp_size", int64_t, 0);
  NUMBER(NULL, "budget_bytes", int64_t, 1 << 30);
  NUMBER(NULL, "steps_per_epoch", int64_t, 4);
  NUMBER(NULL, "world_size", int32_t, 1);
  NUMBER(NULL, "consumer_stream", uintptr_t, 0);
  NUMBER(NULL, "factor", double, 1.0);
  NUMBER(NULL, "lr", double, 1e-3);
  NUMBER(NULL, "max_norm", double, 1.0);
  NUMBER(NULL, "norm_type", double, 2.0);
  POINTER(NULL, "shape", kShape);
  POINTER(NULL, "offsets", kOffsets);
  POINTER(NULL, "prompt", kValues);
  POINTER("fsdp2_tokenizer_decode", "tokens", kValues);
  POINTER(NULL, "weights", kWeights);
  POINTER(NULL, "lengths", kValues);
  POINTER(NULL, "data", kValues);
  POINTER(NULL, "from", kValues);
}

static inline void find_good(const struct abi_function* function,
                             const struct abi_variable* parameter, const char* type,
                             union abi_argument* argument) {
  int i;
  for (i = 0; i < n_good; ++i) {
    const int is_of_function =
        good[i].function == NULL || strcmp(good[i].function, function->name) == 0;
    if (is_of_function && strcmp(good[i].type, type) == 0 &&
        strcmp(good[i].name, parameter->name) == 0) {
      *argument = good[i].value;
      return;
    }
  }
  ++harness_failures;
  fprintf(stderr, "%s: good_arguments.h lists no %s for its parameter %s\n", function->name, type,
          parameter->name);
}

static inline const struct abi_struct* struct_of(const struct abi_variable* variable) {
  size_t i;
  for (i = 0; i < abi_n_structs; ++i) {
    if (strcmp(abi_structs[i].name, variable->type) == 0) {
      return &abi_structs[i];
    }
  }
  return NULL;
}

static inline void* good_options(const struct abi_variable* parameter, int index) {
  const struct abi_struct* type = struct_of(parameter);
  unsigned char* bytes = options_memory[index].bytes;
  memset(bytes, 0, sizeof(options_memory[index].bytes));
  if (strcmp(parameter->type, "fsdp2_unit_settings") == 0) {
    ((fsdp2_unit_settings*)options_memory[index].bytes)->struct_size = sizeof(fsdp2_unit_settings);
    EXPECT_OK(fsdp2_shard_get_unit_settings(job.shard, NULL,
                                            (fsdp2_unit_settings*)options_memory[index].bytes));
    return bytes;
  }
  if (EXPECT(type != NULL && type->defaults != NULL)) {
    memcpy(bytes, type->defaults, type->size);
  }
  if (strcmp(parameter->type, "fsdp2_loader_options") == 0) {
    fsdp2_loader_options* loading = (fsdp2_loader_options*)options_memory[index].bytes;
    loading->sequence_length = 32, loading->global_batch = 2, loading->vocab_size = 384;
  }
  return bytes;
}

static inline void (*callback_of(const struct abi_variable* parameter))(void) {
  size_t i;
  for (i = 0; i < abi_n_callbacks; ++i) {
    if (strcmp(abi_callbacks[i].name, parameter->type) == 0) {
      return abi_callbacks[i].function;
    }
  }
  return NULL;
}

/* A call with nothing wrong; outputs hold the pattern again. */
static inline void make_good_call(const struct abi_function* function, struct call* call) {
  int i, n_outputs = 0;
  call->function = function;
  EXPECT(function->n_parameters <= kMaxParameters);
  for (i = 0; i < function->n_parameters; ++i) {
    const struct abi_variable* parameter = &function->parameters[i];
    union abi_argument* argument = &call->arguments[i];
    switch (parameter->role) {
      case ABI_NUMBER:
        find_good(function, parameter, parameter->type, argument);
        break;
      case ABI_HANDLE:
        find_good(function, parameter, "handle", argument);
        break;
      case ABI_OPTIONS:
        argument->pointer = good_options(parameter, i);
        break;
      case ABI_RESULT:
        argument->pointer = output(n_outputs++, (uint32_t)parameter->size);
        break;
      case ABI_OUTPUT:
        argument->pointer = output(n_outputs++, 0);
        break;
      case ABI_CALLBACK:
        argument->function = callback_of(parameter);
        break;
      case ABI_USER_DATA:
        argument->pointer = &job;
        break;
      default:
        find_good(function, parameter, "pointer", argument);
    }
  }
  EXPECT(n_outputs <= kOutputs);
}

#endif /* TESTS_CAPI_GOOD_ARGUMENTS_H_ */
