/* Every field of options with what it cannot be. misuse_table_test.c has the sizes of structs. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/misuse.h"

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
TAKES(from_exported, fsdp2_module_options,
      fsdp2_module_from_exported("x.pt2", s, OUT(fsdp2_module)))
TAKES(score, fsdp2_infer_options,
      fsdp2_module_score(job.module, &tokens, 1, s, OUT(fsdp2_tensor), OUT2(fsdp2_tensor)))
static const int64_t kPrompt[1] = {1};
TAKES(generate, fsdp2_generate_options,
      fsdp2_module_generate(job.module, kPrompt, 1, s, OUT(int64_t), 64, OUT2(size_t)))
TAKES(shard_create, fsdp2_shard_options,
      fsdp2_shard_create(loose_module, job.mesh, s, OUT(fsdp2_shard)))
TAKES(adamw, fsdp2_adamw_options, fsdp2_optimizer_create_adamw(job.shard, s, OUT(fsdp2_optimizer)))
TAKES(sgd, fsdp2_sgd_options, fsdp2_optimizer_create_sgd(job.shard, s, OUT(fsdp2_optimizer)))
TAKES(muon, fsdp2_muon_options, fsdp2_optimizer_create_muon(job.shard, s, OUT(fsdp2_optimizer)))
TAKES(loader_open, fsdp2_loader_options,
      fsdp2_loader_open(job.mesh, TINY_LLAMA_TOKENS, s, OUT(fsdp2_loader)))
TAKES(step_create, fsdp2_step_options,
      fsdp2_step_create(job.shard, job.optimizer, s, OUT(fsdp2_step)))
static const char* const kHead[1] = {"lm_head"};
TAKES(make_unit, fsdp2_shard_options, fsdp2_shard_make_unit(loose_module, job.mesh, kHead, 1, s))
TAKES(make_units, fsdp2_shard_options, fsdp2_shard_make_units(loose_module, job.mesh, s))
TAKES(set_unit_settings, fsdp2_unit_settings, fsdp2_shard_set_unit_settings(job.shard, NULL, s))
#define PARTS job.optimizer, job.step, job.loader
TAKES(save, fsdp2_save_options, fsdp2_checkpoint_save(job.shard, PARTS, "x", s))
TAKES(save_state, fsdp2_state_save_options, fsdp2_state_save(state, "x", s))
TAKES(set_state, fsdp2_load_options, fsdp2_checkpoint_set_state(job.shard, PARTS, state, s))
TAKES(load, fsdp2_load_options, fsdp2_checkpoint_load(job.shard, PARTS, "x", s))
TAKES(convert, fsdp2_convert_options, fsdp2_checkpoint_convert("x", "y", s))

/* One field of otherwise good options set to one value that it cannot have. */
#define FIELD(call, options, field, value)                                                   \
  do {                                                                                       \
    options copy = good_##options;                                                           \
    copy.field = (value);                                                                    \
    expect_refusal(call##_name, #field " = " #value, call(&copy), FSDP2_E_INVALID_ARGUMENT); \
  } while (0)

static const char* const mesh_create_name = "fsdp2_mesh_create";
static const char* const from_pretrained_name = "fsdp2_module_from_pretrained";
static const char* const from_exported_name = "fsdp2_module_from_exported";
static const char* const score_name = "fsdp2_module_score";
static const char* const generate_name = "fsdp2_module_generate";
static const char* const shard_create_name = "fsdp2_shard_create";
static const char* const make_unit_name = "fsdp2_shard_make_unit";
static const char* const make_units_name = "fsdp2_shard_make_units";
static const char* const set_unit_settings_name = "fsdp2_shard_set_unit_settings";
static const char* const adamw_name = "fsdp2_optimizer_create_adamw";
static const char* const sgd_name = "fsdp2_optimizer_create_sgd";
static const char* const muon_name = "fsdp2_optimizer_create_muon";
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
  const fsdp2_infer_options good_fsdp2_infer_options = FSDP2_INFER_OPTIONS_INIT;
  const fsdp2_generate_options good_fsdp2_generate_options = FSDP2_GENERATE_OPTIONS_INIT;
  const fsdp2_shard_options good_fsdp2_shard_options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_unit_settings good_fsdp2_unit_settings = {
      (uint32_t)sizeof(fsdp2_unit_settings), 1, 1, 0, 1, 1, 0, 0, 0.0, 0, 0};
  const fsdp2_adamw_options good_fsdp2_adamw_options = FSDP2_ADAMW_OPTIONS_INIT;
  const fsdp2_sgd_options good_fsdp2_sgd_options = FSDP2_SGD_OPTIONS_INIT;
  const fsdp2_muon_options good_fsdp2_muon_options = FSDP2_MUON_OPTIONS_INIT;
  const fsdp2_loader_options good_fsdp2_loader_options = {
      (uint32_t)sizeof(fsdp2_loader_options), 0, 0, 1, 32, 8, 384, 0, 0, 0, 0, 0, NULL, NULL};
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
  FIELD(mesh_create, fsdp2_mesh_options, ulysses_size, -1);
  FIELD(mesh_create, fsdp2_mesh_options, rendezvous, "\xff");
  FIELD(mesh_create, fsdp2_mesh_options, rendezvous, "cut \xe2\x82");
  FIELD(mesh_create, fsdp2_mesh_options, device_type, "\xff");
  FIELD(convert, fsdp2_convert_options, config_path, "\xff");
  FIELD(from_pretrained, fsdp2_module_options, dtype, 11);
  FIELD(from_pretrained, fsdp2_module_options, dtype, FSDP2_DTYPE_OTHER);
  FIELD(from_pretrained, fsdp2_module_options, dtype, FSDP2_DTYPE_I64);
  FIELD(from_pretrained, fsdp2_module_options, config_overrides, "{");
  FIELD(from_pretrained, fsdp2_module_options, config_overrides, "{\"nothing\": 1}");
  FIELD(from_pretrained, fsdp2_module_options, plain_operators, 1);
  FIELD(from_exported, fsdp2_module_options, plain_operators, 2);
  FIELD(from_exported, fsdp2_module_options, reserved, 1);
  FIELD(score, fsdp2_infer_options, reshard_after_forward, 2);
  FIELD(score, fsdp2_infer_options, batch_size, -1);
  FIELD(score, fsdp2_infer_options, chunk_size, -1);
  FIELD(score, fsdp2_infer_options, temperature, 0.0);
  FIELD(score, fsdp2_infer_options, temperature, NAN);
  FIELD(generate, fsdp2_generate_options, max_new_tokens, -1);
  FIELD(generate, fsdp2_generate_options, top_k, -1);
  FIELD(generate, fsdp2_generate_options, top_k, 385);
  FIELD(generate, fsdp2_generate_options, reshard_after_forward, 2);
  FIELD(generate, fsdp2_generate_options, temperature, -1.0);
  FIELD(generate, fsdp2_generate_options, temperature, NAN);
  FIELD(generate, fsdp2_generate_options, top_p, -0.5);
  FIELD(generate, fsdp2_generate_options, top_p, 1.5);
  FIELD(generate, fsdp2_generate_options, top_p, NAN);
  FIELD(generate, fsdp2_generate_options, first_row, -1);
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
  FIELD(shard_create, fsdp2_shard_options, keep_buffers, 2);
  FIELD(shard_create, fsdp2_shard_options, one_communicator, -1);
  FIELD(set_unit_settings, fsdp2_unit_settings, requires_gradient_sync, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, requires_all_reduce, -1);
  FIELD(set_unit_settings, fsdp2_unit_settings, reshard_after_forward, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, reshard_after_backward, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, unshard_in_backward, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, reduce_unused_parameters, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, force_sum_reduction, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, allocate_memory_from_process_group, 2);
  FIELD(set_unit_settings, fsdp2_unit_settings, reserved, 1);
  FIELD(set_unit_settings, fsdp2_unit_settings, gradient_divide_factor, -1.0);
  FIELD(set_unit_settings, fsdp2_unit_settings, gradient_divide_factor, NAN);
  FIELD(set_unit_settings, fsdp2_unit_settings, gradient_divide_factor, INFINITY);
  FIELD(adamw, fsdp2_adamw_options, coupled_decay, 2);
  FIELD(adamw, fsdp2_adamw_options, lr, NAN);
  FIELD(adamw, fsdp2_adamw_options, lr, INFINITY);
  FIELD(adamw, fsdp2_adamw_options, beta1, 1.5);
  FIELD(adamw, fsdp2_adamw_options, beta2, -0.1);
  FIELD(adamw, fsdp2_adamw_options, eps, -1.0);
  FIELD(adamw, fsdp2_adamw_options, weight_decay, NAN);
  FIELD(adamw, fsdp2_adamw_options, state_dtype, FSDP2_DTYPE_I32);
  FIELD(adamw, fsdp2_adamw_options, reserved, 1);
  FIELD(sgd, fsdp2_sgd_options, lr, -1.0);
  FIELD(sgd, fsdp2_sgd_options, momentum, NAN);
  FIELD(sgd, fsdp2_sgd_options, weight_decay, -1.0);
  FIELD(sgd, fsdp2_sgd_options, nesterov, 2);
  FIELD(sgd, fsdp2_sgd_options, nesterov, 1); /* without momentum */
  FIELD(muon, fsdp2_muon_options, newton_schulz_steps, 0);
  FIELD(muon, fsdp2_muon_options, newton_schulz_steps, 100);
  FIELD(muon, fsdp2_muon_options, no_nesterov, 2);
  FIELD(muon, fsdp2_muon_options, reserved, 1);
  FIELD(muon, fsdp2_muon_options, lr, -1.0);
  FIELD(muon, fsdp2_muon_options, weight_decay, NAN);
  FIELD(muon, fsdp2_muon_options, momentum, 1.5);
  FIELD(muon, fsdp2_muon_options, matched_adamw_rms, INFINITY);
  FIELD(muon, fsdp2_muon_options, beta1, 2.0);
  FIELD(muon, fsdp2_muon_options, beta2, -1.0);
  FIELD(muon, fsdp2_muon_options, eps, -1.0);
  FIELD(loader_open, fsdp2_loader_options, format, 3);
  FIELD(loader_open, fsdp2_loader_options, cut_long_records, 2);
  FIELD(loader_open, fsdp2_loader_options, skip_bad_records, -1);
  FIELD(loader_open, fsdp2_loader_options, order, -1);
  FIELD(loader_open, fsdp2_loader_options, accumulate, 0);
  FIELD(loader_open, fsdp2_loader_options, accumulate, 3);
  FIELD(loader_open, fsdp2_loader_options, sequence_length, 0);
  FIELD(loader_open, fsdp2_loader_options, sequence_length, INT64_MAX);
  FIELD(loader_open, fsdp2_loader_options, global_batch, 0);
  FIELD(loader_open, fsdp2_loader_options, global_batch, INT64_MIN);
  FIELD(loader_open, fsdp2_loader_options, vocab_size, -5);
  FIELD(loader_open, fsdp2_loader_options, drop_last, 2);
  FIELD(loader_open, fsdp2_loader_options, read_ahead, -1);
  FIELD(loader_open, fsdp2_loader_options, read_ahead, 1025);
  FIELD(step_create, fsdp2_step_options, accumulate, 0);
  FIELD(step_create, fsdp2_step_options, accumulate_last, 2);
  FIELD(step_create, fsdp2_step_options, schedule, 3);
  FIELD(step_create, fsdp2_step_options, schedule, FSDP2_SCHEDULE_COSINE); /* without steps */
  FIELD(step_create, fsdp2_step_options, warmup_steps, -1);
  FIELD(step_create, fsdp2_step_options, total_steps, -1);
  FIELD(step_create, fsdp2_step_options, min_lr_ratio, 1.5);
  FIELD(step_create, fsdp2_step_options, max_grad_norm, NAN);
  FIELD(step_create, fsdp2_step_options, loss_mean, 2);
  FIELD(step_create, fsdp2_step_options, loss_chunk, -1);
  FIELD(step_create, fsdp2_step_options, start_lr_ratio, 1.5);
  FIELD(step_create, fsdp2_step_options, decay_steps, -1);
  FIELD(step_create, fsdp2_step_options, vocabulary_last, 2);
  FIELD(step_create, fsdp2_step_options, update_in_backward, 2);
  FIELD(step_create, fsdp2_step_options, cuda_graph, 2);
  FIELD(step_create, fsdp2_step_options, loss_scale, -1.0);
  FIELD(step_create, fsdp2_step_options, loss_scale, NAN);
  FIELD(step_create, fsdp2_step_options, loss_scale_interval, 0);
  FIELD(step_create, fsdp2_step_options, not_finite, 3);
  FIELD(step_create, fsdp2_step_options, max_skips_in_row, -1);
}

static void misuse(fsdp2_mesh mesh, int rank) {
  (void)rank;
  start_misuse(mesh);
  fields_that_cannot_be_are_refused();
  end_misuse();
}

int main(void) { return run_misuse(misuse); }
