/* Every function with each of its plain arguments wrong: NULL, sizes, counts, texts, numbers. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/misuse.h"

#define NULL_ARGUMENT(function, ...) \
  EXPECT_REFUSAL(function, "NULL", function(__VA_ARGS__), FSDP2_E_NULL_ARGUMENT)
#define INVALID(function, ...) \
  EXPECT_REFUSAL(function, #__VA_ARGS__, function(__VA_ARGS__), FSDP2_E_INVALID_ARGUMENT)

static const int64_t kSizes[2] = {1, 4};
static const size_t kHuge = ((size_t)1 << 31) + 1;

static fsdp2_status pre_only(const fsdp2_gather_info* gather, fsdp2_tensor chunk, fsdp2_tensor* out,
                             void* user_data) {
  (void)gather, (void)chunk, (void)out, (void)user_data;
  return FSDP2_OK;
}

static void null_pointers_are_refused(void) {
  const int64_t one = 1;
  fsdp2_loader_options loading = FSDP2_LOADER_OPTIONS_INIT;
  const fsdp2_mesh_options in_job = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_log_fn no_fn = NULL;
  const char* no_text = NULL;
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options sharding = FSDP2_SHARD_OPTIONS_INIT;
  loading.sequence_length = 32, loading.global_batch = 2, loading.vocab_size = 384;
  NULL_ARGUMENT(fsdp2_runtime_describe, OUT(char), 64, NULL);
  NULL_ARGUMENT(fsdp2_runtime_describe, NULL, 64, OUT(size_t));
  NULL_ARGUMENT(fsdp2_log_set, FSDP2_LOG_INFO, no_fn, &job, NULL);
  NULL_ARGUMENT(fsdp2_mesh_create, NULL, NULL);
  NULL_ARGUMENT(fsdp2_mesh_get_info, job.mesh, NULL);
  NULL_ARGUMENT(fsdp2_mesh_get_dim_name, job.mesh, 0, OUT(char), 64, NULL);
  NULL_ARGUMENT(fsdp2_mesh_describe, job.mesh, OUT(char), 64, NULL);
  NULL_ARGUMENT(fsdp2_mesh_get_submesh, job.mesh, NULL, 1, OUT(fsdp2_mesh));
  NULL_ARGUMENT(fsdp2_mesh_create_in, job.mesh, NULL, OUT(fsdp2_mesh));
  NULL_ARGUMENT(fsdp2_mesh_create_in, job.mesh, &in_job, NULL);
  NULL_ARGUMENT(fsdp2_mesh_from_group, job.mesh, 0, NULL, NULL);
  NULL_ARGUMENT(fsdp2_mesh_get_dim_index, job.mesh, NULL, OUT(int32_t));
  NULL_ARGUMENT(fsdp2_mesh_get_dim_index, job.mesh, "fsdp", NULL);
  NULL_ARGUMENT(fsdp2_mesh_get_ranks, job.mesh, OUT(int32_t), 8, NULL);
  NULL_ARGUMENT(fsdp2_mesh_get_ranks, job.mesh, NULL, 8, OUT2(size_t));
  NULL_ARGUMENT(fsdp2_mesh_get_group, job.mesh, 0, NULL);
  NULL_ARGUMENT(fsdp2_mesh_get_group_ranks, job.mesh, 0, OUT(int32_t), 8, NULL);
  NULL_ARGUMENT(fsdp2_mesh_is_equal, job.mesh, job.mesh, NULL);
  NULL_ARGUMENT(fsdp2_mesh_get_hash, job.mesh, NULL);
  NULL_ARGUMENT(fsdp2_mesh_flatten, job.mesh, NULL, 1, NULL, OUT(fsdp2_mesh));
  NULL_ARGUMENT(fsdp2_mesh_flatten, job.mesh, NULL, 0, NULL, NULL);
  NULL_ARGUMENT(fsdp2_mesh_get_root, job.mesh, OUT(int32_t), 8, OUT2(size_t), NULL);
  NULL_ARGUMENT(fsdp2_mesh_scatter, job.mesh, 0, tokens, 0, NULL);
  NULL_ARGUMENT(fsdp2_mesh_all_gather, job.mesh, 0, tokens, 0, NULL);
  NULL_ARGUMENT(fsdp2_mesh_reduce_scatter, job.mesh, 0, tokens, 0, FSDP2_REDUCE_SUM, NULL);
  NULL_ARGUMENT(fsdp2_mesh_all_reduce, job.mesh, NULL, 1, FSDP2_REDUCE_SUM);
  NULL_ARGUMENT(fsdp2_mesh_agree, job.mesh, NULL, "a");
  NULL_ARGUMENT(fsdp2_mesh_agree, job.mesh, "a", NULL);
  NULL_ARGUMENT(fsdp2_mesh_fail, job.mesh, NULL);
  NULL_ARGUMENT(fsdp2_tensor_from_buffer, NULL, 8, FSDP2_DTYPE_I64, &one, 1, OUT(fsdp2_tensor));
  NULL_ARGUMENT(fsdp2_tensor_from_buffer, &one, 8, FSDP2_DTYPE_I64, NULL, 1, OUT(fsdp2_tensor));
  NULL_ARGUMENT(fsdp2_tensor_from_buffer, &one, 8, FSDP2_DTYPE_I64, &one, 1, NULL);
  NULL_ARGUMENT(fsdp2_tensor_read, tokens, NULL, 32);
  NULL_ARGUMENT(fsdp2_tensor_get_value, tokens, NULL);
  NULL_ARGUMENT(fsdp2_tensor_from_dlpack, NULL, OUT(fsdp2_tensor));
  NULL_ARGUMENT(fsdp2_tensor_to_dlpack, tokens, 0, NULL);
  NULL_ARGUMENT(fsdp2_tensor_get_info, tokens, NULL);
  NULL_ARGUMENT(fsdp2_module_from_pretrained, NULL, NULL, OUT(fsdp2_module));
  NULL_ARGUMENT(fsdp2_module_from_pretrained, TINY_LLAMA, NULL, NULL);
  NULL_ARGUMENT(fsdp2_module_from_config, NULL, NULL, OUT(fsdp2_module));
  NULL_ARGUMENT(fsdp2_module_from_config, "{}", NULL, NULL);
  NULL_ARGUMENT(fsdp2_module_get_info, job.module, NULL);
  NULL_ARGUMENT(fsdp2_module_is_training, job.module, NULL);
  NULL_ARGUMENT(fsdp2_module_checkpoint_activations, job.module, NULL, 1, 1, 0);
  NULL_ARGUMENT(fsdp2_module_get_parameter_count, job.module, NULL);
  NULL_ARGUMENT(fsdp2_module_get_parameter_info, job.module, 0, NULL);
  NULL_ARGUMENT(fsdp2_module_get_parameter_name, job.module, 0, 0, OUT(char), 64, NULL);
  NULL_ARGUMENT(fsdp2_module_get_parameter_index, job.module, NULL, OUT(size_t));
  NULL_ARGUMENT(fsdp2_module_get_parameter_index, job.module, "model.norm.weight", NULL);
  NULL_ARGUMENT(fsdp2_module_get_parameter, job.module, 0, FSDP2_PARAMETER_LOCAL, NULL);
  NULL_ARGUMENT(fsdp2_module_set_requires_grad, loose_module, NULL, 1, 0);
  NULL_ARGUMENT(fsdp2_module_set_requires_grad, loose_module, &no_text, 1, 0);
  NULL_ARGUMENT(fsdp2_module_forward, job.module, NULL, 1, 0, OUT(fsdp2_tensor), 1, OUT2(size_t));
  NULL_ARGUMENT(fsdp2_module_forward, job.module, &tokens, 1, 0, NULL, 1, OUT2(size_t));
  NULL_ARGUMENT(fsdp2_module_forward, job.module, &tokens, 1, 0, OUT(fsdp2_tensor), 1, NULL);
  NULL_ARGUMENT(fsdp2_module_generate, job.module, NULL, 1, NULL, OUT(int64_t), 64, OUT2(size_t));
  NULL_ARGUMENT(fsdp2_module_generate, job.module, &one, 1, NULL, NULL, 64, OUT2(size_t));
  NULL_ARGUMENT(fsdp2_module_generate, job.module, &one, 1, NULL, OUT(int64_t), 64, NULL);
  NULL_ARGUMENT(fsdp2_shard_create, loose_module, job.mesh, NULL, NULL);
  NULL_ARGUMENT(fsdp2_module_forward_submodule, job.module, NULL, &tokens, 1, 0, OUT(fsdp2_tensor),
                1, OUT2(size_t));
  NULL_ARGUMENT(fsdp2_module_forward_submodule, job.module, "lm_head", &tokens, 1, 0, NULL, 1,
                OUT2(size_t));
  NULL_ARGUMENT(fsdp2_tensor_write, tokens, NULL, 32);
  NULL_ARGUMENT(fsdp2_tensor_get_grad, tokens, NULL);
  NULL_ARGUMENT(fsdp2_tensor_run_backward, NULL, 1, NULL, 0);
  NULL_ARGUMENT(fsdp2_callback_fail, FSDP2_E_IO, NULL);
  NULL_ARGUMENT(fsdp2_shard_apply_strategy, NULL, 0, &place, &sharding);
  NULL_ARGUMENT(fsdp2_shard_apply_strategy, "FULL_SHARD", 0, NULL, &sharding);
  NULL_ARGUMENT(fsdp2_shard_apply_strategy, "FULL_SHARD", 0, &place, NULL);
  NULL_ARGUMENT(fsdp2_shard_make_unit, loose_module, job.mesh, NULL, 1, NULL);
  NULL_ARGUMENT(fsdp2_shard_make_unit, loose_module, job.mesh, &no_text, 1, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_mesh, job.shard, NULL);
  NULL_ARGUMENT(fsdp2_shard_clip_grad_norm, job.shard, 1.0, 2.0, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_grad_norm, job.shard, 2.0, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_grad_overflow, job.shard, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_parameter_index, job.shard, NULL, OUT(size_t));
  NULL_ARGUMENT(fsdp2_shard_get_parameter_index, job.shard, "model.norm.weight", NULL);
  NULL_ARGUMENT(fsdp2_shard_get_unit_count, job.shard, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_unit_info, job.shard, 0, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_unit_name, job.shard, 0, OUT(char), 64, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_unit_index, job.shard, NULL, NULL);
  NULL_ARGUMENT(fsdp2_shard_set_forward_prefetch, job.shard, NULL, NULL, 1);
  NULL_ARGUMENT(fsdp2_shard_set_backward_prefetch, job.shard, NULL, &no_text, 1);
  NULL_ARGUMENT(fsdp2_shard_get_is_last_backward, job.shard, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_forward_prefetch, job.shard, NULL, OUT(size_t), 8, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_backward_prefetch, job.shard, NULL, NULL, 8, OUT2(size_t));
  NULL_ARGUMENT(fsdp2_shard_get_unit_settings, job.shard, NULL, NULL);
  NULL_ARGUMENT(fsdp2_shard_set_unit_settings, job.shard, NULL, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_events, job.shard, OUT(int32_t), OUT2(size_t), 8, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_events, job.shard, NULL, OUT2(size_t), 8, OUT3(size_t));
  NULL_ARGUMENT(fsdp2_shard_get_events, job.shard, OUT(int32_t), NULL, 8, OUT3(size_t));
  NULL_ARGUMENT(fsdp2_shard_set_all_reduce_hook, job.shard, NULL, NULL, &job, NULL);
  NULL_ARGUMENT(fsdp2_shard_set_gradient_ready, job.shard, NULL, 0, NULL, &job, NULL);
  NULL_ARGUMENT(fsdp2_shard_set_all_gather_extension, job.shard, NULL, NULL, NULL, &job, NULL);
  NULL_ARGUMENT(fsdp2_shard_set_all_gather_extension, job.shard, NULL, pre_only, NULL, NULL, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_parameter_count, job.shard, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_parameter_info, job.shard, 0, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_parameter_name, job.shard, 0, 0, OUT(char), 64, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_parameter, job.shard, 0, FSDP2_PARAMETER_LOCAL, NULL);
  NULL_ARGUMENT(fsdp2_shard_get_stats, job.shard, NULL);
  NULL_ARGUMENT(fsdp2_shard_describe, job.shard, OUT(char), 64, NULL);
  NULL_ARGUMENT(fsdp2_optimizer_create_adamw, job.shard, NULL, NULL);
  NULL_ARGUMENT(fsdp2_optimizer_create_sgd, job.shard, NULL, NULL);
  NULL_ARGUMENT(fsdp2_optimizer_get_lr, job.optimizer, NULL);
  NULL_ARGUMENT(fsdp2_optimizer_add_adamw_group, job.optimizer, NULL, 1, NULL);
  NULL_ARGUMENT(fsdp2_optimizer_add_sgd_group, job.optimizer, NULL, 1, NULL);
  NULL_ARGUMENT(fsdp2_optimizer_get_info, job.optimizer, NULL);
  NULL_ARGUMENT(fsdp2_optimizer_get_group_info, job.optimizer, 0, NULL);
  NULL_ARGUMENT(fsdp2_optimizer_get_group_parameters, job.optimizer, 0, OUT(size_t), 32, NULL);
  NULL_ARGUMENT(fsdp2_optimizer_get_group_parameters, job.optimizer, 0, NULL, 32, OUT2(size_t));
  NULL_ARGUMENT(fsdp2_optimizer_get_state, job.optimizer, 0, NULL, 0, OUT(fsdp2_tensor));
  NULL_ARGUMENT(fsdp2_optimizer_get_state, job.optimizer, 0, "step", 0, NULL);
  NULL_ARGUMENT(fsdp2_plan_get_info, job.shard, NULL, NULL);
  NULL_ARGUMENT(fsdp2_plan_describe, job.shard, NULL, OUT(char), 64, NULL);
  NULL_ARGUMENT(fsdp2_loader_open, job.mesh, NULL, &loading, OUT(fsdp2_loader));
  NULL_ARGUMENT(fsdp2_loader_open, job.mesh, TINY_LLAMA_TOKENS, NULL, OUT(fsdp2_loader));
  NULL_ARGUMENT(fsdp2_loader_open, job.mesh, TINY_LLAMA_TOKENS, &loading, NULL);
  NULL_ARGUMENT(fsdp2_loader_next, job.loader, NULL, OUT(fsdp2_tensor));
  NULL_ARGUMENT(fsdp2_loader_next, job.loader, OUT(fsdp2_tensor), NULL);
  NULL_ARGUMENT(fsdp2_loader_get_position, job.loader, NULL);
  NULL_ARGUMENT(fsdp2_step_create, job.shard, job.optimizer, NULL, NULL);
  NULL_ARGUMENT(fsdp2_step_get_position, job.step, NULL);
  NULL_ARGUMENT(fsdp2_step_run, job.step, NULL, 2, OUT_STRUCT(fsdp2_step_result));
  NULL_ARGUMENT(fsdp2_step_run, job.step, &tokens, 1, NULL);
  NULL_ARGUMENT(fsdp2_checkpoint_save_full, job.shard, NULL);
  NULL_ARGUMENT(fsdp2_checkpoint_load_full, job.shard, NULL);
  NULL_ARGUMENT(fsdp2_checkpoint_save_pretrained, job.shard, NULL);
  NULL_ARGUMENT(fsdp2_checkpoint_save, job.shard, job.optimizer, job.step, job.loader, NULL, NULL);
  NULL_ARGUMENT(fsdp2_checkpoint_load, job.shard, job.optimizer, job.step, job.loader, NULL, NULL);
  NULL_ARGUMENT(fsdp2_checkpoint_get_state, job.shard, job.optimizer, job.step, job.loader, 0,
                NULL);
  NULL_ARGUMENT(fsdp2_state_create, job.mesh, NULL);
  NULL_ARGUMENT(fsdp2_state_add_tensor, state, NULL, NULL, NULL, 0, tokens);
  NULL_ARGUMENT(fsdp2_state_add_tensor, state, "a", kSizes, NULL, 2, tokens);
  NULL_ARGUMENT(fsdp2_state_add_tensor, state, "a", NULL, kSizes, 2, tokens);
  NULL_ARGUMENT(fsdp2_state_add_value, state, NULL, "1");
  NULL_ARGUMENT(fsdp2_state_add_value, state, "a", NULL);
  NULL_ARGUMENT(fsdp2_state_get_info, state, NULL);
  NULL_ARGUMENT(fsdp2_state_get_count, state, NULL);
  NULL_ARGUMENT(fsdp2_state_get_tensor, state, NULL, OUT(fsdp2_tensor));
  NULL_ARGUMENT(fsdp2_state_get_tensor, state, "a", NULL);
  NULL_ARGUMENT(fsdp2_state_get_value, state, NULL, OUT(char), 64, OUT2(size_t));
  NULL_ARGUMENT(fsdp2_state_save, state, NULL, NULL);
  NULL_ARGUMENT(fsdp2_state_load, state, NULL);
  NULL_ARGUMENT(fsdp2_state_gather, state, 0, NULL);
  NULL_ARGUMENT(fsdp2_checkpoint_poll, job.shard, NULL);
  NULL_ARGUMENT(fsdp2_checkpoint_check_path, NULL, NULL);
  NULL_ARGUMENT(fsdp2_checkpoint_find, NULL, OUT(char), 64, OUT2(size_t));
  NULL_ARGUMENT(fsdp2_checkpoint_inspect, NULL, OUT(char), 64, OUT2(size_t));
  NULL_ARGUMENT(fsdp2_checkpoint_verify, NULL);
  NULL_ARGUMENT(fsdp2_checkpoint_rebuild_manifest, NULL);
  NULL_ARGUMENT(fsdp2_checkpoint_convert, "x", "y", NULL);
  NULL_ARGUMENT(fsdp2_mesh_duplicate, job.mesh, NULL);
  NULL_ARGUMENT(fsdp2_tensor_duplicate, tokens, NULL);
  NULL_ARGUMENT(fsdp2_module_duplicate, job.module, NULL);
  NULL_ARGUMENT(fsdp2_shard_duplicate, job.shard, NULL);
  NULL_ARGUMENT(fsdp2_optimizer_duplicate, job.optimizer, NULL);
  NULL_ARGUMENT(fsdp2_loader_duplicate, job.loader, NULL);
  NULL_ARGUMENT(fsdp2_step_duplicate, job.step, NULL);
  NULL_ARGUMENT(fsdp2_state_duplicate, state, NULL);
}

static const char* const kBadTexts[] = {
    "\xff", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "cut \xe2\x82", "\x80",
};

static void texts_that_are_not_utf8_or_too_long_are_refused(void) {
  fsdp2_loader_options loading = FSDP2_LOADER_OPTIONS_INIT;
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options sharding = FSDP2_SHARD_OPTIONS_INIT;
  char* long_text = (char*)malloc((20 << 20) + 1);
  size_t i;
  EXPECT(long_text != NULL);
  memset(long_text, 'x', 20 << 20);
  long_text[20 << 20] = '\0';
  loading.sequence_length = 32, loading.global_batch = 2, loading.vocab_size = 384;
  for (i = 0; i <= sizeof(kBadTexts) / sizeof(kBadTexts[0]); ++i) {
    const int is_long = i == sizeof(kBadTexts) / sizeof(kBadTexts[0]);
    const char* bad = is_long ? long_text : kBadTexts[i];
    place.rendezvous = bad;
    INVALID(fsdp2_mesh_create, &place, OUT(fsdp2_mesh));
    INVALID(fsdp2_mesh_get_submesh, job.mesh, &bad, 1, OUT(fsdp2_mesh));
    INVALID(fsdp2_mesh_agree, job.mesh, bad, "a");
    INVALID(fsdp2_mesh_agree, job.mesh, "a", bad);
    INVALID(fsdp2_mesh_fail, job.mesh, bad);
    INVALID(fsdp2_module_from_pretrained, bad, NULL, OUT(fsdp2_module));
    INVALID(fsdp2_module_from_config, bad, NULL, OUT(fsdp2_module));
    INVALID(fsdp2_module_forward_submodule, job.module, bad, &tokens, 1, 0, OUT(fsdp2_tensor), 1,
            OUT2(size_t));
    INVALID(fsdp2_module_get_parameter_index, job.module, bad, OUT(size_t));
    INVALID(fsdp2_module_set_requires_grad, loose_module, &bad, 1, 0);
    INVALID(fsdp2_callback_fail, FSDP2_E_IO, bad);
    INVALID(fsdp2_shard_apply_strategy, bad, 0, &place, &sharding);
    INVALID(fsdp2_shard_make_unit, loose_module, job.mesh, &bad, 1, NULL);
    INVALID(fsdp2_shard_get_parameter_index, job.shard, bad, OUT(size_t));
    INVALID(fsdp2_shard_get_unit_index, job.shard, bad, OUT(size_t));
    INVALID(fsdp2_shard_set_forward_prefetch, job.shard, NULL, &bad, 1);
    INVALID(fsdp2_shard_get_forward_prefetch, job.shard, bad, OUT(size_t), 8, OUT2(size_t));
    INVALID(fsdp2_shard_get_unit_settings, job.shard, bad, OUT_STRUCT(fsdp2_unit_settings));
    INVALID(fsdp2_loader_open, job.mesh, bad, &loading, OUT(fsdp2_loader));
    INVALID(fsdp2_checkpoint_save_full, job.shard, bad);
    INVALID(fsdp2_checkpoint_load_full, job.shard, bad);
    INVALID(fsdp2_checkpoint_save_pretrained, job.shard, bad);
    INVALID(fsdp2_checkpoint_save, job.shard, job.optimizer, job.step, job.loader, bad, NULL);
    INVALID(fsdp2_checkpoint_load, job.shard, job.optimizer, job.step, job.loader, bad, NULL);
    INVALID(fsdp2_state_add_tensor, state, bad, NULL, NULL, 0, tokens);
    INVALID(fsdp2_state_add_value, state, bad, "1");
    INVALID(fsdp2_state_add_value, state, "a", bad);
    INVALID(fsdp2_state_save, state, bad, NULL);
    INVALID(fsdp2_state_load, state, bad);
    INVALID(fsdp2_checkpoint_find, bad, OUT(char), 64, OUT2(size_t));
    INVALID(fsdp2_checkpoint_inspect, bad, OUT(char), 64, OUT2(size_t));
    INVALID(fsdp2_checkpoint_verify, bad);
  }
  free(long_text);
}

/* n letters. */
static char* letters(size_t n) {
  char* text = (char*)malloc(n + 1);
  EXPECT(text != NULL);
  memset(text, 'x', n);
  text[n] = '\0';
  return text;
}

static void texts_may_be_as_long_as_the_headers_say(void) {
  char *name = letters(FSDP2_MAX_NAME), *longer_name = letters(FSDP2_MAX_NAME + 1);
  char *path = letters(FSDP2_MAX_PATH), *longer_path = letters(FSDP2_MAX_PATH + 1);
  char *text = letters(FSDP2_MAX_TEXT), *longer_text = letters(FSDP2_MAX_TEXT + 1);
  char *config = letters(FSDP2_MAX_CONFIG), *longer_config = letters(FSDP2_MAX_CONFIG + 1);
  EXPECT_STATUS(fsdp2_module_get_parameter_index(job.module, name, OUT(size_t)), FSDP2_E_NOT_FOUND);
  INVALID(fsdp2_module_get_parameter_index, job.module, longer_name, OUT(size_t));
  EXPECT_STATUS(fsdp2_checkpoint_verify(path), FSDP2_E_IO); /* the system takes less */
  INVALID(fsdp2_checkpoint_verify, longer_path);
  EXPECT_STATUS(fsdp2_callback_fail(FSDP2_E_IO, text), FSDP2_E_IO);
  INVALID(fsdp2_callback_fail, FSDP2_E_IO, longer_text);
  EXPECT_STATUS(fsdp2_module_from_config(config, NULL, OUT(fsdp2_module)),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("not valid JSON");
  EXPECT_STATUS(fsdp2_module_from_config(longer_config, NULL, OUT(fsdp2_module)),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("at most 16777216 bytes");
  free(name), free(longer_name), free(path), free(longer_path);
  free(text), free(longer_text), free(config), free(longer_config);
}

static void counts_beyond_any_memory_are_refused(void) {
  const int64_t one = 1;
  double number = 0.0;
  INVALID(fsdp2_mesh_get_submesh, job.mesh, kBadTexts, kHuge, OUT(fsdp2_mesh));
  INVALID(fsdp2_mesh_all_reduce, job.mesh, &number, kHuge, FSDP2_REDUCE_SUM);
  INVALID(fsdp2_mesh_all_reduce, job.mesh, &number, FSDP2_MAX_REDUCED + 1, FSDP2_REDUCE_SUM);
  INVALID(fsdp2_mesh_all_reduce, job.mesh, &number, SIZE_MAX, FSDP2_REDUCE_SUM);
  INVALID(fsdp2_tensor_from_buffer, &one, 8, FSDP2_DTYPE_I64, &one, kHuge, OUT(fsdp2_tensor));
  INVALID(fsdp2_tensor_from_buffer, &one, SIZE_MAX, FSDP2_DTYPE_I64, &one, 1, OUT(fsdp2_tensor));
  INVALID(fsdp2_tensor_read, tokens, OUT(char), SIZE_MAX);
  INVALID(fsdp2_module_forward, job.module, &tokens, kHuge, 0, OUT(fsdp2_tensor), 1, OUT2(size_t));
  INVALID(fsdp2_module_forward, job.module, &tokens, 1, 0, OUT(fsdp2_tensor), kHuge, OUT2(size_t));
  INVALID(fsdp2_module_checkpoint_activations, job.module, kBadTexts, kHuge, 1, 0);
  INVALID(fsdp2_module_set_requires_grad, loose_module, kBadTexts, kHuge, 0);
  INVALID(fsdp2_module_get_parameter_info, job.module, 21, OUT_STRUCT(fsdp2_module_parameter_info));
  INVALID(fsdp2_module_get_parameter_name, job.module, SIZE_MAX, 0, OUT(char), 64, OUT2(size_t));
  INVALID(fsdp2_module_get_parameter, job.module, 21, FSDP2_PARAMETER_LOCAL, OUT(fsdp2_tensor));
  INVALID(fsdp2_module_generate, job.module, &one, kHuge, NULL, OUT(int64_t), 64, OUT2(size_t));
  INVALID(fsdp2_step_run, job.step, &tokens, kHuge, OUT_STRUCT(fsdp2_step_result));
  INVALID(fsdp2_module_forward_submodule, job.module, "lm_head", &tokens, kHuge, 0,
          OUT(fsdp2_tensor), 1, OUT2(size_t));
  INVALID(fsdp2_tensor_write, tokens, &one, SIZE_MAX);
  INVALID(fsdp2_tensor_run_backward, &tokens, kHuge, NULL, 0);
  INVALID(fsdp2_shard_make_unit, loose_module, job.mesh, kBadTexts, kHuge, NULL);
  INVALID(fsdp2_shard_set_forward_prefetch, job.shard, NULL, kBadTexts, kHuge);
  INVALID(fsdp2_shard_set_backward_prefetch, job.shard, NULL, kBadTexts, SIZE_MAX);
  INVALID(fsdp2_shard_get_backward_prefetch, job.shard, NULL, OUT(size_t), kHuge, OUT2(size_t));
  INVALID(fsdp2_shard_get_events, job.shard, OUT(int32_t), OUT2(size_t), kHuge, OUT3(size_t));
  INVALID(fsdp2_shard_get_unit_info, job.shard, 3, OUT_STRUCT(fsdp2_unit_info));
  INVALID(fsdp2_shard_get_unit_name, job.shard, SIZE_MAX, OUT(char), 64, OUT2(size_t));
  INVALID(fsdp2_shard_get_parameter_info, job.shard, SIZE_MAX, OUT_STRUCT(fsdp2_parameter_info));
  INVALID(fsdp2_shard_get_parameter_name, job.shard, 21, 0, OUT(char), 64, OUT2(size_t));
  INVALID(fsdp2_shard_get_parameter, job.shard, 21, FSDP2_PARAMETER_LOCAL, OUT(fsdp2_tensor));
}

static void numbers_out_of_their_range_are_refused(void) {
  double number = 0.0;
  const char* no_unit = "lm_head";
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options sharding = FSDP2_SHARD_OPTIONS_INIT;
  INVALID(fsdp2_runtime_set_threads, 0);
  INVALID(fsdp2_runtime_set_threads, SIZE_MAX);
  INVALID(fsdp2_runtime_set_product_engine, -1);
  INVALID(fsdp2_log_set, 0, NULL, NULL, NULL);
  INVALID(fsdp2_mesh_get_dim_name, job.mesh, 1, OUT(char), 64, OUT2(size_t));
  INVALID(fsdp2_mesh_get_dim_name, job.mesh, -1, OUT(char), 64, OUT2(size_t));
  INVALID(fsdp2_mesh_all_reduce, job.mesh, &number, 1, 3);
  INVALID(fsdp2_mesh_from_group, job.mesh, 1, NULL, OUT(fsdp2_mesh));
  INVALID(fsdp2_mesh_get_group, job.mesh, -1, OUT_STRUCT(fsdp2_group_info));
  INVALID(fsdp2_mesh_get_group_ranks, job.mesh, 1, OUT(int32_t), 8, OUT2(size_t));
  INVALID(fsdp2_mesh_broadcast, job.mesh, 1, tokens);
  INVALID(fsdp2_mesh_scatter, job.mesh, 0, tokens, 9, OUT(fsdp2_tensor));
  INVALID(fsdp2_mesh_all_gather, job.mesh, 0, tokens, -1, OUT(fsdp2_tensor));
  INVALID(fsdp2_mesh_reduce_scatter, job.mesh, 0, tokens, 0, FSDP2_REDUCE_MAX, OUT(fsdp2_tensor));
  INVALID(fsdp2_mesh_reduce_scatter, job.mesh, 0, tokens, 0, 7, OUT(fsdp2_tensor));
  INVALID(fsdp2_mesh_all_reduce_tensor, job.mesh, 0, tokens, FSDP2_REDUCE_AVERAGE);
  INVALID(fsdp2_mesh_get_submesh, job.mesh, NULL, 0, OUT(fsdp2_mesh));
  INVALID(fsdp2_tensor_to_dlpack, tokens, 1, OUT(struct DLManagedTensorVersioned*));
  INVALID(fsdp2_module_checkpoint_activations, job.module, NULL, 0, 0, 0);
  INVALID(fsdp2_module_checkpoint_activations, job.module, NULL, 0, 1, 2);
  INVALID(fsdp2_module_forward, job.module, &tokens, 1, 2, OUT(fsdp2_tensor), 1, OUT2(size_t));
  INVALID(fsdp2_module_forward, job.module, NULL, 0, 0, OUT(fsdp2_tensor), 1, OUT2(size_t));
  INVALID(fsdp2_module_forward_submodule, job.module, "lm_head", &tokens, 1, 4, OUT(fsdp2_tensor),
          1, OUT2(size_t));
  INVALID(fsdp2_tensor_set_requires_grad, tokens, 1); /* integers */
  INVALID(fsdp2_tensor_set_requires_grad, tokens, 2);
  INVALID(fsdp2_tensor_run_backward, &tokens, 1, NULL, 2);
  INVALID(fsdp2_tensor_run_backward, NULL, 0, NULL, 0);
  INVALID(fsdp2_callback_fail, FSDP2_OK, "fine");
  INVALID(fsdp2_shard_apply_strategy, "HALF_SHARD", 0, &place, &sharding);
  INVALID(fsdp2_shard_apply_strategy, "FULL_SHARD", -1, &place, &sharding);
  INVALID(fsdp2_shard_apply_strategy, "HYBRID_SHARD", 0, &place, &sharding);
  INVALID(fsdp2_shard_apply_strategy, "NO_SHARD", 2, &place, &sharding);
  INVALID(fsdp2_shard_make_unit, loose_module, job.mesh, NULL, 0, NULL);
  INVALID(fsdp2_shard_set_requires_gradient_sync, job.shard, NULL, 2, 1);
  INVALID(fsdp2_shard_set_requires_gradient_sync, job.shard, NULL, 1, -1);
  INVALID(fsdp2_shard_set_requires_all_reduce, job.shard, NULL, 1, 2);
  INVALID(fsdp2_shard_set_is_last_backward, job.shard, 2);
  INVALID(fsdp2_shard_set_reshard_after_forward, job.shard, NULL, 2, 0);
  INVALID(fsdp2_shard_set_reshard_after_backward, job.shard, NULL, -1, 0);
  INVALID(fsdp2_shard_set_unshard_in_backward, job.shard, NULL, 2);
  INVALID(fsdp2_shard_set_reduce_unused_parameters, job.shard, NULL, 2, 0);
  INVALID(fsdp2_shard_set_force_sum_reduction, job.shard, NULL, 2);
  INVALID(fsdp2_shard_set_gradient_divide_factor, job.shard, NULL, 0.0);
  INVALID(fsdp2_shard_set_gradient_divide_factor, job.shard, NULL, NAN);
  INVALID(fsdp2_shard_set_gradient_divide_factor, job.shard, NULL, INFINITY);
  INVALID(fsdp2_shard_set_forward_prefetch, job.shard, NULL, &no_unit, 1);
  INVALID(fsdp2_shard_set_gradient_ready, job.shard, NULL, 2, NULL, NULL, NULL);
  INVALID(fsdp2_shard_unshard, job.shard, NULL, 2);
  INVALID(fsdp2_shard_cast_parameters, job.shard, FSDP2_DTYPE_KEEP);
  INVALID(fsdp2_shard_cast_parameters, job.shard, FSDP2_DTYPE_OTHER);
  INVALID(fsdp2_shard_cast_parameters, job.shard, FSDP2_DTYPE_I32);
  INVALID(fsdp2_shard_get_grad_norm, job.shard, 0.0, OUT(double));
  INVALID(fsdp2_shard_get_grad_norm, job.shard, NAN, OUT(double));
  INVALID(fsdp2_shard_scale_grad, job.shard, INFINITY);
  INVALID(fsdp2_shard_clip_grad_norm, job.shard, -1.0, 2.0, OUT(double));
  INVALID(fsdp2_shard_clip_grad_norm, job.shard, NAN, 2.0, OUT(double));
  INVALID(fsdp2_shard_clip_grad_norm, job.shard, INFINITY, 2.0, OUT(double));
  INVALID(fsdp2_shard_clip_grad_norm, job.shard, 1.0, -2.0, OUT(double));
  INVALID(fsdp2_shard_get_parameter_name, job.shard, 0, 1, OUT(char), 64, OUT2(size_t));
  INVALID(fsdp2_shard_get_parameter, job.shard, 0, 4, OUT(fsdp2_tensor));
  INVALID(fsdp2_optimizer_add_adamw_group, job.optimizer, kBadTexts, kHuge, NULL);
  INVALID(fsdp2_optimizer_add_sgd_group, job.optimizer, kBadTexts, kHuge, NULL);
  INVALID(fsdp2_optimizer_get_state, job.optimizer, kHuge, "step", 0, OUT(fsdp2_tensor));
  INVALID(fsdp2_optimizer_get_state, job.optimizer, 0, "step", 1, OUT(fsdp2_tensor));
  INVALID(fsdp2_optimizer_get_group_info, job.optimizer, 1, OUT_STRUCT(fsdp2_optimizer_group_info));
  INVALID(fsdp2_optimizer_get_group_parameters, job.optimizer, 1, OUT(size_t), 32, OUT2(size_t));
  INVALID(fsdp2_optimizer_get_group_parameters, job.optimizer, 0, OUT(size_t), kHuge, OUT2(size_t));
  INVALID(fsdp2_optimizer_set_group_lr, job.optimizer, SIZE_MAX, 1.0);
  INVALID(fsdp2_optimizer_set_group_lr, job.optimizer, 0, NAN);
  INVALID(fsdp2_optimizer_set_group_lr, job.optimizer, 0, -1.0);
  INVALID(fsdp2_optimizer_set_group_weight_decay, job.optimizer, 1, 0.0);
  INVALID(fsdp2_optimizer_set_group_weight_decay, job.optimizer, 0, INFINITY);
  INVALID(fsdp2_optimizer_set_group_weight_decay, job.optimizer, 0, -1.0);
  INVALID(fsdp2_module_train, job.module, 2);
  INVALID(fsdp2_module_set_requires_grad, loose_module, NULL, 0, 2);
  INVALID(fsdp2_module_get_parameter_name, job.module, 0, 1, OUT(char), 64, OUT2(size_t));
  INVALID(fsdp2_module_get_parameter, job.module, 0, FSDP2_PARAMETER_FULL, OUT(fsdp2_tensor));
  INVALID(fsdp2_state_add_tensor, state, "a", kSizes, kSizes, kHuge, tokens);
  INVALID(fsdp2_state_add_tensor, state, "a", kSizes, kSizes, 1, tokens);
  INVALID(fsdp2_state_get_name, state, kHuge, OUT(char), 64, OUT2(size_t));
  INVALID(fsdp2_state_gather, state, 2, OUT(fsdp2_state));
  INVALID(fsdp2_checkpoint_get_state, job.shard, job.optimizer, job.step, job.loader, 2,
          OUT(fsdp2_state));
  INVALID(fsdp2_optimizer_set_lr, job.optimizer, NAN);
  INVALID(fsdp2_optimizer_set_lr, job.optimizer, -1.0);
  INVALID(fsdp2_loader_set_position, job.loader, -1);
  INVALID(fsdp2_step_set_position, job.step, -1);
  INVALID(fsdp2_step_run, job.step, NULL, 0, OUT_STRUCT(fsdp2_step_result));
}

/* The functions without anything to refuse: they are here so that this list is whole. */
static void functions_without_a_status_never_crash(void) {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  info.struct_size = 8;
  info.rank = 77;
  fsdp2_error_last(&info);
  EXPECT(info.rank == 77);
  EXPECT(fsdp2_error_message() != NULL);
  EXPECT(fsdp2_status_name(INT32_MIN) != NULL);
  EXPECT(fsdp2_version() == FSDP2_HEADER_VERSION);
  EXPECT(fsdp2_live_handles() > 0);
  EXPECT_REFUSAL(fsdp2_check_version, "all bits", fsdp2_check_version(UINT32_MAX),
                 FSDP2_E_ABI_MISMATCH);
}

static void misuse(fsdp2_mesh mesh, int rank) {
  (void)rank;
  start_misuse(mesh);
  null_pointers_are_refused();
  texts_that_are_not_utf8_or_too_long_are_refused();
  texts_may_be_as_long_as_the_headers_say();
  counts_beyond_any_memory_are_refused();
  numbers_out_of_their_range_are_refused();
  functions_without_a_status_never_crash();
  end_misuse();
}

int main(void) { return run_misuse(misuse); }
