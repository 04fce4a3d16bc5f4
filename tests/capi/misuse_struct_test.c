/* Every sized struct with each wrong size, and every field with what it cannot be. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/misuse.h"

enum { kMaxStruct = FSDP2_MAX_STRUCT_SIZE };

/* A call that takes a struct, given as bytes. */
typedef fsdp2_status (*struct_call)(void* bytes);

#define TAKES(name, type, ...)            \
  static fsdp2_status name(void* bytes) { \
    type* s = (type*)bytes;               \
    return (__VA_ARGS__);                 \
  }
TAKES(mesh_create, fsdp2_mesh_options, fsdp2_mesh_create(s, OUT(fsdp2_mesh)))
TAKES(from_pretrained, fsdp2_module_options,
      fsdp2_module_from_pretrained(TINY_LLAMA, s, OUT(fsdp2_module)))
TAKES(from_config, fsdp2_module_options, fsdp2_module_from_config("{}", s, OUT(fsdp2_module)))
static const int64_t kPrompt[1] = {1};
TAKES(generate, fsdp2_generate_options,
      fsdp2_module_generate(job.module, kPrompt, 1, s, OUT(int64_t), 64, OUT2(size_t)))
TAKES(shard_create, fsdp2_shard_options,
      fsdp2_shard_create(loose_module, job.mesh, s, OUT(fsdp2_shard)))
TAKES(plan_options, fsdp2_plan_options,
      fsdp2_plan_get_info(job.shard, s, OUT_STRUCT(fsdp2_plan_info)))
TAKES(plan_info, fsdp2_plan_info, fsdp2_plan_get_info(job.shard, NULL, s))
TAKES(adamw, fsdp2_adamw_options, fsdp2_optimizer_create_adamw(job.shard, s, OUT(fsdp2_optimizer)))
TAKES(sgd, fsdp2_sgd_options, fsdp2_optimizer_create_sgd(job.shard, s, OUT(fsdp2_optimizer)))
TAKES(optimizer_info, fsdp2_optimizer_info, fsdp2_optimizer_get_info(job.optimizer, s))
TAKES(optimizer_group_info, fsdp2_optimizer_group_info,
      fsdp2_optimizer_get_group_info(job.optimizer, 0, s))
TAKES(loader_open, fsdp2_loader_options,
      fsdp2_loader_open(job.mesh, TINY_LLAMA_TOKENS, s, OUT(fsdp2_loader)))
TAKES(step_create, fsdp2_step_options,
      fsdp2_step_create(job.shard, job.optimizer, s, OUT(fsdp2_step)))
TAKES(mesh_create_in, fsdp2_mesh_options, fsdp2_mesh_create_in(job.mesh, s, OUT(fsdp2_mesh)))
TAKES(mesh_get_group, fsdp2_group_info, fsdp2_mesh_get_group(job.mesh, 0, s))
TAKES(mesh_get_info, fsdp2_mesh_info, fsdp2_mesh_get_info(job.mesh, s))
TAKES(tensor_get_info, fsdp2_tensor_info, fsdp2_tensor_get_info(tokens, s))
TAKES(module_get_info, fsdp2_module_info, fsdp2_module_get_info(job.module, s))
TAKES(module_parameter_info, fsdp2_module_parameter_info,
      fsdp2_module_get_parameter_info(job.module, 0, s))
TAKES(parameter_info, fsdp2_parameter_info, fsdp2_shard_get_parameter_info(job.shard, 0, s))
TAKES(shard_stats, fsdp2_shard_stats, fsdp2_shard_get_stats(job.shard, s))
TAKES(unit_info, fsdp2_unit_info, fsdp2_shard_get_unit_info(job.shard, 0, s))
TAKES(unit_settings, fsdp2_unit_settings, fsdp2_shard_get_unit_settings(job.shard, NULL, s))
TAKES(set_unit_settings, fsdp2_unit_settings, fsdp2_shard_set_unit_settings(job.shard, NULL, s))
static const char* const kHead[1] = {"lm_head"};
TAKES(make_unit, fsdp2_shard_options, fsdp2_shard_make_unit(loose_module, job.mesh, kHead, 1, s))
TAKES(make_units, fsdp2_shard_options, fsdp2_shard_make_units(loose_module, job.mesh, s))
static _Thread_local fsdp2_mesh_options strategy_mesh = FSDP2_MESH_OPTIONS_INIT;
TAKES(apply_strategy, fsdp2_shard_options,
      fsdp2_shard_apply_strategy("FULL_SHARD", 0, &strategy_mesh, s))
static _Thread_local fsdp2_shard_options strategy_shard = FSDP2_SHARD_OPTIONS_INIT;
TAKES(apply_strategy_to_mesh, fsdp2_mesh_options,
      fsdp2_shard_apply_strategy("FULL_SHARD", 0, s, &strategy_shard))
#define PARTS job.optimizer, job.step, job.loader
TAKES(save, fsdp2_save_options, fsdp2_checkpoint_save(job.shard, PARTS, "x", s))
TAKES(save_state, fsdp2_state_save_options, fsdp2_state_save(state, "x", s))
TAKES(state_info, fsdp2_state_info, fsdp2_state_get_info(state, s))
TAKES(set_state, fsdp2_load_options, fsdp2_checkpoint_set_state(job.shard, PARTS, state, s))
TAKES(load, fsdp2_load_options, fsdp2_checkpoint_load(job.shard, PARTS, "x", s))
TAKES(convert, fsdp2_convert_options, fsdp2_checkpoint_convert("x", "y", s))
TAKES(step_run, fsdp2_step_result, fsdp2_step_run(job.step, &tokens, 1, s))

/* Before the first field that was added later. */
enum {
  kFirstStepOptions = offsetof(fsdp2_step_options, not_finite),
  kFirstStepResult = offsetof(fsdp2_step_result, finite)
};

static const struct {
  const char* function;
  struct_call call;
  uint32_t size;
  int is_input;
  uint32_t first; /* the size that it had when it appeared, if that was another */
} kCalls[] = {
    {"fsdp2_mesh_create", mesh_create, sizeof(fsdp2_mesh_options), 1, 0},
    {"fsdp2_mesh_create_in", mesh_create_in, sizeof(fsdp2_mesh_options), 1, 0},
    {"fsdp2_module_from_pretrained", from_pretrained, sizeof(fsdp2_module_options), 1, 0},
    {"fsdp2_module_from_config", from_config, sizeof(fsdp2_module_options), 1, 0},
    {"fsdp2_module_generate", generate, sizeof(fsdp2_generate_options), 1, 0},
    {"fsdp2_shard_create", shard_create, sizeof(fsdp2_shard_options), 1, 0},
    {"fsdp2_plan_get_info", plan_options, sizeof(fsdp2_plan_options), 1, 0},
    {"fsdp2_plan_get_info", plan_info, sizeof(fsdp2_plan_info), 0, 0},
    {"fsdp2_optimizer_create_adamw", adamw, sizeof(fsdp2_adamw_options), 1, 0},
    {"fsdp2_optimizer_create_sgd", sgd, sizeof(fsdp2_sgd_options), 1, 0},
    {"fsdp2_optimizer_get_info", optimizer_info, sizeof(fsdp2_optimizer_info), 0, 0},
    {"fsdp2_optimizer_get_group_info", optimizer_group_info, sizeof(fsdp2_optimizer_group_info), 0,
     0},
    {"fsdp2_loader_open", loader_open, sizeof(fsdp2_loader_options), 1, 0},
    {"fsdp2_step_create", step_create, sizeof(fsdp2_step_options), 1, kFirstStepOptions},
    {"fsdp2_mesh_get_group", mesh_get_group, sizeof(fsdp2_group_info), 0, 0},
    {"fsdp2_mesh_get_info", mesh_get_info, sizeof(fsdp2_mesh_info), 0, 0},
    {"fsdp2_tensor_get_info", tensor_get_info, sizeof(fsdp2_tensor_info), 0, 0},
    {"fsdp2_module_get_info", module_get_info, sizeof(fsdp2_module_info), 0, 0},
    {"fsdp2_module_get_parameter_info", module_parameter_info, sizeof(fsdp2_module_parameter_info),
     0, 0},
    {"fsdp2_shard_get_parameter_info", parameter_info, sizeof(fsdp2_parameter_info), 0, 0},
    {"fsdp2_shard_get_stats", shard_stats, sizeof(fsdp2_shard_stats), 0, 0},
    {"fsdp2_shard_get_unit_info", unit_info, sizeof(fsdp2_unit_info), 0, 0},
    {"fsdp2_shard_get_unit_settings", unit_settings, sizeof(fsdp2_unit_settings), 0, 0},
    {"fsdp2_shard_set_unit_settings", set_unit_settings, sizeof(fsdp2_unit_settings), 1, 0},
    {"fsdp2_shard_make_unit", make_unit, sizeof(fsdp2_shard_options), 1, 0},
    {"fsdp2_shard_make_units", make_units, sizeof(fsdp2_shard_options), 1, 0},
    {"fsdp2_shard_apply_strategy", apply_strategy, sizeof(fsdp2_shard_options), 1, 0},
    {"fsdp2_shard_apply_strategy", apply_strategy_to_mesh, sizeof(fsdp2_mesh_options), 1, 0},
    {"fsdp2_checkpoint_save", save, sizeof(fsdp2_save_options), 1, 0},
    {"fsdp2_checkpoint_load", load, sizeof(fsdp2_load_options), 1, 0},
    {"fsdp2_checkpoint_set_state", set_state, sizeof(fsdp2_load_options), 1, 0},
    {"fsdp2_state_get_info", state_info, sizeof(fsdp2_state_info), 0, 0},
    {"fsdp2_state_save", save_state, sizeof(fsdp2_state_save_options), 1, 0},
    {"fsdp2_checkpoint_convert", convert, sizeof(fsdp2_convert_options), 1, 0},
    {"fsdp2_step_run", step_run, sizeof(fsdp2_step_result), 0, kFirstStepResult},
};

static void structs_of_a_wrong_size_are_refused(void) {
  static _Thread_local union {
    double aligned;
    unsigned char bytes[kMaxStruct];
  } memory, before;
  size_t i, k;
  for (i = 0; i < sizeof(kCalls) / sizeof(kCalls[0]); ++i) {
    const uint32_t first = kCalls[i].first == 0 ? kCalls[i].size : kCalls[i].first;
    const uint32_t sizes[5] = {0, 1, first - 1, kMaxStruct + 1, UINT32_MAX};
    for (k = 0; k < 5; ++k) {
      memset(memory.bytes, 0, sizeof(memory.bytes));
      memcpy(memory.bytes, &sizes[k], sizeof(sizes[k]));
      before = memory;
      expect_refusal(kCalls[i].function, "a wrong struct_size", kCalls[i].call(memory.bytes),
                     FSDP2_E_STRUCT_SIZE);
      EXPECT(memcmp(memory.bytes, before.bytes, sizeof(before.bytes)) == 0);
    }
    if (kCalls[i].is_input) {
      const uint32_t longer = kCalls[i].size + 8;
      memset(memory.bytes, 0, sizeof(memory.bytes));
      memcpy(memory.bytes, &longer, sizeof(longer));
      memory.bytes[kCalls[i].size + 3] = 1;
      expect_refusal(kCalls[i].function, "a field of later", kCalls[i].call(memory.bytes),
                     FSDP2_E_UNSUPPORTED);
    }
  }
}

#define INIT_FROM(first, function, type)                                                      \
  do {                                                                                        \
    EXPECT_REFUSAL(function, "NULL", function(NULL, sizeof(type)), FSDP2_E_NULL_ARGUMENT);    \
    EXPECT_REFUSAL(function, "size 0", function(OUT(type), 0), FSDP2_E_STRUCT_SIZE);          \
    EXPECT_REFUSAL(function, "short", function(OUT(type), (first) - 1), FSDP2_E_STRUCT_SIZE); \
    EXPECT_REFUSAL(function, "huge", function(OUT(type), SIZE_MAX), FSDP2_E_STRUCT_SIZE);     \
  } while (0)
#define INIT(function, type) INIT_FROM(sizeof(type), function, type)

static void options_are_initialised_in_memory_that_fits_only(void) {
  INIT(fsdp2_mesh_options_init, fsdp2_mesh_options);
  INIT(fsdp2_module_options_init, fsdp2_module_options);
  INIT(fsdp2_generate_options_init, fsdp2_generate_options);
  INIT(fsdp2_shard_options_init, fsdp2_shard_options);
  INIT(fsdp2_plan_options_init, fsdp2_plan_options);
  INIT(fsdp2_adamw_options_init, fsdp2_adamw_options);
  INIT(fsdp2_sgd_options_init, fsdp2_sgd_options);
  INIT(fsdp2_loader_options_init, fsdp2_loader_options);
  INIT_FROM(kFirstStepOptions, fsdp2_step_options_init, fsdp2_step_options);
  INIT(fsdp2_save_options_init, fsdp2_save_options);
  INIT(fsdp2_load_options_init, fsdp2_load_options);
  INIT(fsdp2_state_save_options_init, fsdp2_state_save_options);
  INIT(fsdp2_convert_options_init, fsdp2_convert_options);
}

/* One field of otherwise good options set to one value that it cannot have. */
#define FIELD(call, options, field, value)                                                   \
  do {                                                                                       \
    options copy = good_##options;                                                           \
    copy.field = (value);                                                                    \
    expect_refusal(call##_name, #field " = " #value, call(&copy), FSDP2_E_INVALID_ARGUMENT); \
  } while (0)

static const char* const mesh_create_name = "fsdp2_mesh_create";
static const char* const from_pretrained_name = "fsdp2_module_from_pretrained";
static const char* const generate_name = "fsdp2_module_generate";
static const char* const shard_create_name = "fsdp2_shard_create";
static const char* const make_unit_name = "fsdp2_shard_make_unit";
static const char* const make_units_name = "fsdp2_shard_make_units";
static const char* const set_unit_settings_name = "fsdp2_shard_set_unit_settings";
static const char* const adamw_name = "fsdp2_optimizer_create_adamw";
static const char* const sgd_name = "fsdp2_optimizer_create_sgd";
static const char* const save_state_name = "fsdp2_state_save";
static const char* const set_state_name = "fsdp2_checkpoint_set_state";
static const char* const loader_open_name = "fsdp2_loader_open";
static const char* const step_create_name = "fsdp2_step_create";
static const char* const save_name = "fsdp2_checkpoint_save";
static const char* const load_name = "fsdp2_checkpoint_load";
static const char* const convert_name = "fsdp2_checkpoint_convert";

static void fields_that_cannot_be_are_refused(void) {
  const fsdp2_mesh_options good_fsdp2_mesh_options = FSDP2_MESH_OPTIONS_INIT;
  const fsdp2_module_options good_fsdp2_module_options = FSDP2_MODULE_OPTIONS_INIT;
  const fsdp2_generate_options good_fsdp2_generate_options = FSDP2_GENERATE_OPTIONS_INIT;
  const fsdp2_shard_options good_fsdp2_shard_options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_unit_settings good_fsdp2_unit_settings = {
      (uint32_t)sizeof(fsdp2_unit_settings), 1, 1, 0, 1, 1, 0, 0, 0.0};
  const fsdp2_adamw_options good_fsdp2_adamw_options = FSDP2_ADAMW_OPTIONS_INIT;
  const fsdp2_sgd_options good_fsdp2_sgd_options = FSDP2_SGD_OPTIONS_INIT;
  const fsdp2_loader_options good_fsdp2_loader_options = {
      (uint32_t)sizeof(fsdp2_loader_options), 0, 0, 1, 32, 8, 384, 0};
  const fsdp2_step_options good_fsdp2_step_options = FSDP2_STEP_OPTIONS_INIT;
  const fsdp2_save_options good_fsdp2_save_options = FSDP2_SAVE_OPTIONS_INIT;
  const fsdp2_load_options good_fsdp2_load_options = FSDP2_LOAD_OPTIONS_INIT;
  const fsdp2_state_save_options good_fsdp2_state_save_options = FSDP2_STATE_SAVE_OPTIONS_INIT;
  const fsdp2_convert_options good_fsdp2_convert_options = FSDP2_CONVERT_OPTIONS_INIT;
  FIELD(save, fsdp2_save_options, format, 5);
  FIELD(save, fsdp2_save_options, background, 2);
  FIELD(save, fsdp2_save_options, keep_last, -1);
  FIELD(save, fsdp2_save_options, no_rng, -1);
  FIELD(save, fsdp2_save_options, dtype, FSDP2_DTYPE_I64);
  FIELD(save, fsdp2_save_options, max_file_bytes, -1);
  FIELD(save, fsdp2_save_options, no_overwrite, 2);
  FIELD(save, fsdp2_save_options, allow_not_finite, 2);
  FIELD(save_state, fsdp2_state_save_options, safetensors, 2);
  FIELD(save_state, fsdp2_state_save_options, threads, 0);
  FIELD(save_state, fsdp2_state_save_options, file_per_tensor, -1);
  FIELD(save_state, fsdp2_state_save_options, no_overwrite, 2);
  FIELD(save_state, fsdp2_state_save_options, reserved, 1);
  FIELD(set_state, fsdp2_load_options, no_rng, 2);
  FIELD(load, fsdp2_load_options, partial, 2);
  FIELD(load, fsdp2_load_options, no_rng, 2);
  FIELD(load, fsdp2_load_options, from_rank0, 2);
  FIELD(convert, fsdp2_convert_options, format, -1);
  FIELD(convert, fsdp2_convert_options, model_only, 2);
  FIELD(convert, fsdp2_convert_options, ranks, -1);
  FIELD(convert, fsdp2_convert_options, step, -1);
  FIELD(convert, fsdp2_convert_options, max_file_bytes, -1);
  FIELD(convert, fsdp2_convert_options, config_path, "");
  FIELD(mesh_create, fsdp2_mesh_options, backend, 5);
  FIELD(mesh_create, fsdp2_mesh_options, rank, -2);
  FIELD(mesh_create, fsdp2_mesh_options, world_size, 0);
  FIELD(mesh_create, fsdp2_mesh_options, local_rank, -2);
  FIELD(mesh_create, fsdp2_mesh_options, n_dims, 17);
  FIELD(mesh_create, fsdp2_mesh_options, n_dims, -1);
  FIELD(mesh_create, fsdp2_mesh_options, shape, kPrompt);
  FIELD(mesh_create, fsdp2_mesh_options, timeout_ms, 0);
  FIELD(mesh_create, fsdp2_mesh_options, timeout_ms, INT64_MAX);
  FIELD(mesh_create, fsdp2_mesh_options, fsdp_size, -2);
  FIELD(from_pretrained, fsdp2_module_options, dtype, 11);
  FIELD(from_pretrained, fsdp2_module_options, dtype, FSDP2_DTYPE_OTHER);
  FIELD(from_pretrained, fsdp2_module_options, dtype, FSDP2_DTYPE_I64);
  FIELD(generate, fsdp2_generate_options, max_new_tokens, -1);
  FIELD(generate, fsdp2_generate_options, top_k, -1);
  FIELD(generate, fsdp2_generate_options, top_k, 385);
  FIELD(generate, fsdp2_generate_options, reserved, 1);
  FIELD(generate, fsdp2_generate_options, temperature, -1.0);
  FIELD(generate, fsdp2_generate_options, temperature, NAN);
  FIELD(shard_create, fsdp2_shard_options, reshard_after_forward, -2);
  FIELD(shard_create, fsdp2_shard_options, param_dtype, FSDP2_DTYPE_BOOL);
  FIELD(shard_create, fsdp2_shard_options, reduce_dtype, 99);
  FIELD(shard_create, fsdp2_shard_options, output_dtype, -1);
  FIELD(shard_create, fsdp2_shard_options, no_cast_forward_inputs, 2);
  FIELD(shard_create, fsdp2_shard_options, cpu_offload, -1);
  FIELD(shard_create, fsdp2_shard_options, reshard_after_forward, 3); /* over one rank, or two */
  FIELD(shard_create, fsdp2_shard_options, wrap, 3);
  FIELD(shard_create, fsdp2_shard_options, wrap, FSDP2_WRAP_KINDS); /* without kinds */
  FIELD(shard_create, fsdp2_shard_options, no_pin_memory, 2);
  FIELD(shard_create, fsdp2_shard_options, comm_schedule, 2);
  FIELD(shard_create, fsdp2_shard_options, load_from_rank0, 2);
  FIELD(shard_create, fsdp2_shard_options, modules_per_unit, -1);
  FIELD(shard_create, fsdp2_shard_options, wrap_embeddings, 2);
  FIELD(shard_create, fsdp2_shard_options, wrap_head, 2);
  FIELD(shard_create, fsdp2_shard_options, defer_values, 2);
  FIELD(shard_create, fsdp2_shard_options, reserved, 1);
  FIELD(shard_create, fsdp2_shard_options, wrap_min_numel, -1);
  FIELD(make_unit, fsdp2_shard_options, wrap, FSDP2_WRAP_NONE);
  FIELD(make_unit, fsdp2_shard_options, load_from_rank0, 1);
  FIELD(make_units, fsdp2_shard_options, load_from_rank0, 1);
  FIELD(make_units, fsdp2_shard_options, defer_values, 1);
  FIELD(shard_create, fsdp2_shard_options, comm_path, 3);
  FIELD(shard_create, fsdp2_shard_options, prefetch, -2);
  FIELD(set_unit_settings, fsdp2_unit_settings, requires_gradient_sync, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, requires_all_reduce, -1);
  FIELD(set_unit_settings, fsdp2_unit_settings, reshard_after_forward, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, reshard_after_backward, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, unshard_in_backward, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, reduce_unused_parameters, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, force_sum_reduction, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, gradient_divide_factor, -1.0);
  FIELD(set_unit_settings, fsdp2_unit_settings, gradient_divide_factor, NAN);
  FIELD(set_unit_settings, fsdp2_unit_settings, gradient_divide_factor, INFINITY);
  FIELD(adamw, fsdp2_adamw_options, reserved, 1);
  FIELD(adamw, fsdp2_adamw_options, lr, NAN);
  FIELD(adamw, fsdp2_adamw_options, lr, INFINITY);
  FIELD(adamw, fsdp2_adamw_options, beta1, 1.5);
  FIELD(adamw, fsdp2_adamw_options, beta2, -0.1);
  FIELD(adamw, fsdp2_adamw_options, eps, -1.0);
  FIELD(adamw, fsdp2_adamw_options, weight_decay, NAN);
  FIELD(sgd, fsdp2_sgd_options, lr, -1.0);
  FIELD(sgd, fsdp2_sgd_options, momentum, NAN);
  FIELD(sgd, fsdp2_sgd_options, weight_decay, -1.0);
  FIELD(sgd, fsdp2_sgd_options, nesterov, 2);
  FIELD(sgd, fsdp2_sgd_options, nesterov, 1); /* without momentum */
  FIELD(loader_open, fsdp2_loader_options, format, 2);
  FIELD(loader_open, fsdp2_loader_options, order, -1);
  FIELD(loader_open, fsdp2_loader_options, accumulate, 0);
  FIELD(loader_open, fsdp2_loader_options, accumulate, 3);
  FIELD(loader_open, fsdp2_loader_options, sequence_length, 0);
  FIELD(loader_open, fsdp2_loader_options, sequence_length, INT64_MAX);
  FIELD(loader_open, fsdp2_loader_options, global_batch, 0);
  FIELD(loader_open, fsdp2_loader_options, global_batch, INT64_MIN);
  FIELD(loader_open, fsdp2_loader_options, vocab_size, -5);
  FIELD(step_create, fsdp2_step_options, accumulate, 0);
  FIELD(step_create, fsdp2_step_options, accumulate_last, 2);
  FIELD(step_create, fsdp2_step_options, schedule, 3);
  FIELD(step_create, fsdp2_step_options, schedule, FSDP2_SCHEDULE_COSINE); /* without steps */
  FIELD(step_create, fsdp2_step_options, warmup_steps, -1);
  FIELD(step_create, fsdp2_step_options, total_steps, -1);
  FIELD(step_create, fsdp2_step_options, min_lr_ratio, 1.5);
  FIELD(step_create, fsdp2_step_options, max_grad_norm, NAN);
  FIELD(step_create, fsdp2_step_options, loss_mean, 2);
  FIELD(step_create, fsdp2_step_options, reserved, 1);
  FIELD(step_create, fsdp2_step_options, loss_scale, -1.0);
  FIELD(step_create, fsdp2_step_options, loss_scale, NAN);
  FIELD(step_create, fsdp2_step_options, loss_scale_interval, 0);
  FIELD(step_create, fsdp2_step_options, not_finite, 3);
  FIELD(step_create, fsdp2_step_options, max_skips_in_row, -1);
}

static void misuse(fsdp2_mesh mesh, int rank) {
  (void)rank;
  start_misuse(mesh);
  structs_of_a_wrong_size_are_refused();
  options_are_initialised_in_memory_that_fits_only();
  fields_that_cannot_be_are_refused();
  end_misuse();
}

int main(void) { return run_misuse(misuse); }
