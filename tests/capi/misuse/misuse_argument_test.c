/* Plain arguments that only the meaning of a function rules out: numbers out of their range,
 * indices just beyond the last, texts that are no name. misuse_table_test.c has what declarations
 * rule out. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/misuse.h"

#define INVALID(function, ...) \
  EXPECT_REFUSAL(function, #__VA_ARGS__, function(__VA_ARGS__), FSDP2_E_INVALID_ARGUMENT)

static const int64_t kSizes[2] = {1, 4};

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

static void indices_just_beyond_the_last_are_refused(void) {
  INVALID(fsdp2_module_get_parameter_info, job.module, 21, OUT_STRUCT(fsdp2_module_parameter_info));
  INVALID(fsdp2_module_get_parameter_name, job.module, 21, 0, OUT(char), 64, OUT2(size_t));
  INVALID(fsdp2_module_get_parameter, job.module, 21, FSDP2_PARAMETER_LOCAL, OUT(fsdp2_tensor));
  INVALID(fsdp2_shard_get_unit_info, job.shard, 3, OUT_STRUCT(fsdp2_unit_info));
  INVALID(fsdp2_shard_get_unit_name, job.shard, 3, OUT(char), 64, OUT2(size_t));
  INVALID(fsdp2_shard_get_parameter_info, job.shard, 21, OUT_STRUCT(fsdp2_parameter_info));
  INVALID(fsdp2_shard_get_parameter_name, job.shard, 21, 0, OUT(char), 64, OUT2(size_t));
  INVALID(fsdp2_shard_get_parameter, job.shard, 21, FSDP2_PARAMETER_LOCAL, OUT(fsdp2_tensor));
  INVALID(fsdp2_optimizer_get_state, job.optimizer, 21, "step", 0, OUT(fsdp2_tensor));
}

static void numbers_out_of_their_range_are_refused(void) {
  double number = 0.0;
  const char* no_unit = "lm_head";
  const char* const head[1] = {"lm_head.weight"};
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options sharding = FSDP2_SHARD_OPTIONS_INIT;
  INVALID(fsdp2_runtime_set_threads, 0);
  INVALID(fsdp2_runtime_set_threads, SIZE_MAX);
  INVALID(fsdp2_runtime_set_product_engine, -1);
  INVALID(fsdp2_runtime_set_deterministic, 2);
  INVALID(fsdp2_runtime_set_matmul_precision, 5);
  INVALID(fsdp2_runtime_keep_memory, 2);
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
  INVALID(fsdp2_module_tile_mlps, job.module, 0, OUT(size_t));
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
  INVALID(fsdp2_shard_set_allocate_memory_from_process_group, job.shard, NULL, 2);
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
  INVALID(fsdp2_optimizer_get_state, job.optimizer, 0, "step", 1, OUT(fsdp2_tensor));
  INVALID(fsdp2_optimizer_get_group_info, job.optimizer, 1, OUT_STRUCT(fsdp2_optimizer_group_info));
  INVALID(fsdp2_optimizer_get_group_parameters, job.optimizer, 1, OUT(size_t), 32, OUT2(size_t));
  INVALID(fsdp2_optimizer_exempt_from_decay, job.optimizer, 4);
  INVALID(fsdp2_optimizer_scale_lr, job.optimizer, "lm_head.weight", NAN);
  INVALID(fsdp2_optimizer_scale_lr, job.optimizer, "lm_head.weight", -1.0);
  INVALID(fsdp2_optimizer_scale_lr, job.optimizer, "*", 1.0);
  INVALID(fsdp2_optimizer_scale_named_lr, job.optimizer, NULL, 0, 1.0);
  INVALID(fsdp2_optimizer_exempt_named_from_decay, job.optimizer, NULL, 0, 0);
  INVALID(fsdp2_optimizer_exempt_named_from_decay, job.optimizer, head, 1, 2);
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
  INVALID(fsdp2_state_add_tensor, state, "a", kSizes, kSizes, 1, tokens);
  INVALID(fsdp2_state_gather, state, 2, OUT(fsdp2_state));
  INVALID(fsdp2_checkpoint_get_state, job.shard, job.optimizer, job.step, job.loader, 2,
          OUT(fsdp2_state));
  INVALID(fsdp2_optimizer_set_lr, job.optimizer, NAN);
  INVALID(fsdp2_optimizer_set_lr, job.optimizer, -1.0);
  INVALID(fsdp2_loader_set_position, job.loader, -1);
  INVALID(fsdp2_step_set_position, job.step, -1);
  INVALID(fsdp2_step_run, job.step, NULL, 0, OUT_STRUCT(fsdp2_step_result));
  EXPECT_REFUSAL(fsdp2_check_version, "all bits", fsdp2_check_version(UINT32_MAX),
                 FSDP2_E_ABI_MISMATCH);
}

static void functions_without_a_status_never_crash(void) {
  EXPECT(fsdp2_error_message() != NULL);
  EXPECT(fsdp2_status_name(INT32_MIN) != NULL);
  EXPECT(fsdp2_version() == FSDP2_HEADER_VERSION);
  EXPECT(fsdp2_live_handles() > 0);
}

static void misuse(fsdp2_mesh mesh, int rank) {
  (void)rank;
  start_misuse(mesh);
  texts_may_be_as_long_as_the_headers_say();
  indices_just_beyond_the_last_are_refused();
  numbers_out_of_their_range_are_refused();
  functions_without_a_status_never_crash();
  end_misuse();
}

int main(void) { return run_misuse(misuse); }
