/* Every function that takes a handle, with each wrong kind of handle. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/misuse.h"

struct DLManagedTensorVersioned;

/* Calls `function` with the handle `h` in one place and good objects in all others. */
#define CALL(name, kind, ...)             \
  static fsdp2_status name(uint64_t id) { \
    fsdp2_##kind h = {0};                 \
    h.id = id;                            \
    return (__VA_ARGS__);                 \
  }

CALL(mesh_destroy, mesh, fsdp2_mesh_destroy(h))
CALL(mesh_duplicate, mesh, fsdp2_mesh_duplicate(h, OUT(fsdp2_mesh)))
CALL(mesh_get_info, mesh, fsdp2_mesh_get_info(h, OUT_STRUCT(fsdp2_mesh_info)))
CALL(mesh_get_dim_name, mesh, fsdp2_mesh_get_dim_name(h, 0, OUT(char), 64, OUT2(size_t)))
CALL(mesh_describe, mesh, fsdp2_mesh_describe(h, OUT(char), 64, OUT2(size_t)))
static const char* const kDims[1] = {"fsdp"};
CALL(mesh_get_submesh, mesh, fsdp2_mesh_get_submesh(h, kDims, 1, OUT(fsdp2_mesh)))
CALL(mesh_barrier, mesh, fsdp2_mesh_barrier(h))
CALL(mesh_all_reduce, mesh, fsdp2_mesh_all_reduce(h, OUT(double), 1, FSDP2_REDUCE_SUM))
static const fsdp2_mesh_options kPlace = FSDP2_MESH_OPTIONS_INIT;
CALL(mesh_create_in, mesh, fsdp2_mesh_create_in(h, &kPlace, OUT(fsdp2_mesh)))
CALL(mesh_from_group, mesh, fsdp2_mesh_from_group(h, 0, NULL, OUT(fsdp2_mesh)))
CALL(mesh_get_dim_index, mesh, fsdp2_mesh_get_dim_index(h, "fsdp", OUT(int32_t)))
CALL(mesh_get_ranks, mesh, fsdp2_mesh_get_ranks(h, OUT(int32_t), 8, OUT2(size_t)))
CALL(mesh_get_group, mesh, fsdp2_mesh_get_group(h, 0, OUT_STRUCT(fsdp2_group_info)))
CALL(mesh_get_group_ranks, mesh, fsdp2_mesh_get_group_ranks(h, 0, OUT(int32_t), 8, OUT2(size_t)))
CALL(mesh_is_equal, mesh, fsdp2_mesh_is_equal(h, job.mesh, OUT(int32_t)))
CALL(mesh_is_equal_to, mesh, fsdp2_mesh_is_equal(job.mesh, h, OUT(int32_t)))
CALL(mesh_get_hash, mesh, fsdp2_mesh_get_hash(h, OUT(uint64_t)))
CALL(mesh_flatten, mesh, fsdp2_mesh_flatten(h, kDims, 1, "flat", OUT(fsdp2_mesh)))
CALL(mesh_get_root, mesh, fsdp2_mesh_get_root(h, OUT(int32_t), 8, OUT2(size_t), OUT3(fsdp2_mesh)))
CALL(mesh_broadcast, mesh, fsdp2_mesh_broadcast(h, 0, tokens))
CALL(mesh_broadcast_of, tensor, fsdp2_mesh_broadcast(job.mesh, 0, h))
CALL(mesh_scatter, mesh, fsdp2_mesh_scatter(h, 0, tokens, 0, OUT(fsdp2_tensor)))
CALL(mesh_scatter_of, tensor, fsdp2_mesh_scatter(job.mesh, 0, h, 0, OUT(fsdp2_tensor)))
CALL(mesh_all_gather, mesh, fsdp2_mesh_all_gather(h, 0, tokens, 0, OUT(fsdp2_tensor)))
CALL(mesh_all_gather_of, tensor, fsdp2_mesh_all_gather(job.mesh, 0, h, 0, OUT(fsdp2_tensor)))
CALL(mesh_reduce_scatter, mesh,
     fsdp2_mesh_reduce_scatter(h, 0, tokens, 0, FSDP2_REDUCE_SUM, OUT(fsdp2_tensor)))
CALL(mesh_reduce_scatter_of, tensor,
     fsdp2_mesh_reduce_scatter(job.mesh, 0, h, 0, FSDP2_REDUCE_SUM, OUT(fsdp2_tensor)))
CALL(mesh_all_reduce_tensor, mesh, fsdp2_mesh_all_reduce_tensor(h, 0, tokens, FSDP2_REDUCE_SUM))
CALL(mesh_all_reduce_tensor_of, tensor,
     fsdp2_mesh_all_reduce_tensor(job.mesh, 0, h, FSDP2_REDUCE_SUM))
CALL(mesh_agree, mesh, fsdp2_mesh_agree(h, "a", "b"))
CALL(mesh_fail, mesh, fsdp2_mesh_fail(h, "a"))
CALL(tensor_read, tensor, fsdp2_tensor_read(h, OUT(char), 32))
CALL(tensor_get_value, tensor, fsdp2_tensor_get_value(h, OUT(double)))
CALL(tensor_to_dlpack, tensor, fsdp2_tensor_to_dlpack(h, 0, OUT(struct DLManagedTensorVersioned*)))
CALL(tensor_get_info, tensor, fsdp2_tensor_get_info(h, OUT_STRUCT(fsdp2_tensor_info)))
CALL(tensor_backward, tensor, fsdp2_tensor_backward(h))
CALL(tensor_destroy, tensor, fsdp2_tensor_destroy(h))
CALL(tensor_duplicate, tensor, fsdp2_tensor_duplicate(h, OUT(fsdp2_tensor)))
CALL(module_destroy, module, fsdp2_module_destroy(h))
CALL(module_duplicate, module, fsdp2_module_duplicate(h, OUT(fsdp2_module)))
CALL(module_train, module, fsdp2_module_train(h, 0))
CALL(module_is_training, module, fsdp2_module_is_training(h, OUT(int32_t)))
CALL(module_parameter_count, module, fsdp2_module_get_parameter_count(h, OUT(size_t)))
CALL(module_parameter_info, module,
     fsdp2_module_get_parameter_info(h, 0, OUT_STRUCT(fsdp2_module_parameter_info)))
CALL(module_parameter_name, module,
     fsdp2_module_get_parameter_name(h, 0, 0, OUT(char), 64, OUT2(size_t)))
CALL(module_parameter_index, module,
     fsdp2_module_get_parameter_index(h, "model.norm.weight", OUT(size_t)))
CALL(module_parameter, module,
     fsdp2_module_get_parameter(h, 0, FSDP2_PARAMETER_LOCAL, OUT(fsdp2_tensor)))
CALL(module_zero_grad, module, fsdp2_module_zero_grad(h))
CALL(module_requires_grad, module, fsdp2_module_set_requires_grad(h, NULL, 0, 1))
CALL(module_get_info, module, fsdp2_module_get_info(h, OUT_STRUCT(fsdp2_module_info)))
CALL(module_forward, module,
     fsdp2_module_forward(h, &tokens, 1, 0, OUT(fsdp2_tensor), 1, OUT2(size_t)))
CALL(module_forward_of_input, tensor,
     fsdp2_module_forward(loose_module, &h, 1, 0, OUT(fsdp2_tensor), 1, OUT2(size_t)))
static const int64_t kPrompt[1] = {1};
CALL(module_generate, module,
     fsdp2_module_generate(h, kPrompt, 1, NULL, OUT(int64_t), 64, OUT2(size_t)))
CALL(shard_create, module, fsdp2_shard_create(h, job.mesh, NULL, OUT(fsdp2_shard)))
CALL(shard_create_over_mesh, mesh, fsdp2_shard_create(loose_module, h, NULL, OUT(fsdp2_shard)))
CALL(shard_destroy, shard, fsdp2_shard_destroy(h))
CALL(shard_duplicate, shard, fsdp2_shard_duplicate(h, OUT(fsdp2_shard)))
CALL(shard_sync, shard, fsdp2_shard_set_requires_gradient_sync(h, NULL, 1, 1))
CALL(shard_zero_grad, shard, fsdp2_shard_zero_grad(h))
CALL(shard_clip, shard, fsdp2_shard_clip_grad_norm(h, 1.0, 2.0, OUT(double)))
CALL(shard_count, shard, fsdp2_shard_get_parameter_count(h, OUT(size_t)))
CALL(shard_info, shard, fsdp2_shard_get_parameter_info(h, 0, OUT_STRUCT(fsdp2_parameter_info)))
CALL(shard_name, shard, fsdp2_shard_get_parameter_name(h, 0, 0, OUT(char), 64, OUT2(size_t)))
CALL(shard_parameter, shard,
     fsdp2_shard_get_parameter(h, 0, FSDP2_PARAMETER_LOCAL, OUT(fsdp2_tensor)))
CALL(shard_stats, shard, fsdp2_shard_get_stats(h, OUT_STRUCT(fsdp2_shard_stats)))
CALL(shard_reset_stats, shard, fsdp2_shard_reset_stats(h))
CALL(shard_describe, shard, fsdp2_shard_describe(h, OUT(char), 64, OUT2(size_t)))
CALL(plan_get_info, shard, fsdp2_plan_get_info(h, NULL, OUT_STRUCT(fsdp2_plan_info)))
CALL(plan_describe, shard, fsdp2_plan_describe(h, NULL, OUT(char), 64, OUT2(size_t)))
static const char kZeros[32];
static const char* const kHead[1] = {"lm_head"};
CALL(tensor_write, tensor, fsdp2_tensor_write(h, kZeros, 32))
CALL(tensor_set_requires_grad, tensor, fsdp2_tensor_set_requires_grad(h, 0))
CALL(tensor_get_grad, tensor, fsdp2_tensor_get_grad(h, OUT(fsdp2_tensor)))
CALL(tensor_run_backward, tensor, fsdp2_tensor_run_backward(&h, 1, NULL, 0))
CALL(module_forward_submodule, module,
     fsdp2_module_forward_submodule(h, "lm_head", &tokens, 1, 0, OUT(fsdp2_tensor), 1,
                                    OUT2(size_t)))
CALL(make_unit, module, fsdp2_shard_make_unit(h, job.mesh, kHead, 1, NULL))
CALL(make_unit_over_mesh, mesh, fsdp2_shard_make_unit(loose_module, h, kHead, 1, NULL))
CALL(make_units, module, fsdp2_shard_make_units(h, job.mesh, NULL))
CALL(make_units_over_mesh, mesh, fsdp2_shard_make_units(loose_module, h, NULL))
CALL(shard_load_values, shard, fsdp2_shard_load_values(h))
CALL(shard_get_mesh, shard, fsdp2_shard_get_mesh(h, OUT(fsdp2_mesh)))
CALL(shard_grad_norm, shard, fsdp2_shard_get_grad_norm(h, 2.0, OUT(double)))
CALL(shard_grad_overflow, shard, fsdp2_shard_get_grad_overflow(h, OUT(int32_t)))
CALL(shard_scale_grad, shard, fsdp2_shard_scale_grad(h, 1.0))
CALL(shard_parameter_index, shard, fsdp2_shard_get_parameter_index(h, "a", OUT(size_t)))
CALL(shard_cast, shard, fsdp2_shard_cast_parameters(h, FSDP2_DTYPE_F32))
CALL(shard_unit_count, shard, fsdp2_shard_get_unit_count(h, OUT(size_t)))
CALL(shard_unit_info, shard, fsdp2_shard_get_unit_info(h, 0, OUT_STRUCT(fsdp2_unit_info)))
CALL(shard_unit_name, shard, fsdp2_shard_get_unit_name(h, 0, OUT(char), 64, OUT2(size_t)))
CALL(shard_unit_index, shard, fsdp2_shard_get_unit_index(h, NULL, OUT(size_t)))
CALL(shard_all_reduce, shard, fsdp2_shard_set_requires_all_reduce(h, NULL, 1, 1))
CALL(shard_last_backward, shard, fsdp2_shard_set_is_last_backward(h, 1))
CALL(shard_get_last_backward, shard, fsdp2_shard_get_is_last_backward(h, OUT(int32_t)))
CALL(shard_after_forward, shard, fsdp2_shard_set_reshard_after_forward(h, NULL, 1, 1))
CALL(shard_after_backward, shard, fsdp2_shard_set_reshard_after_backward(h, NULL, 1, 1))
CALL(shard_in_backward, shard, fsdp2_shard_set_unshard_in_backward(h, NULL, 1))
CALL(shard_unused, shard, fsdp2_shard_set_reduce_unused_parameters(h, NULL, 0, 1))
CALL(shard_divide, shard, fsdp2_shard_set_gradient_divide_factor(h, NULL, 1.0))
CALL(shard_sums, shard, fsdp2_shard_set_force_sum_reduction(h, NULL, 0))
CALL(shard_forward_prefetch, shard, fsdp2_shard_set_forward_prefetch(h, NULL, NULL, 0))
CALL(shard_backward_prefetch, shard, fsdp2_shard_set_backward_prefetch(h, NULL, NULL, 0))
CALL(shard_get_forward_prefetch, shard,
     fsdp2_shard_get_forward_prefetch(h, NULL, OUT(size_t), 8, OUT2(size_t)))
CALL(shard_get_backward_prefetch, shard,
     fsdp2_shard_get_backward_prefetch(h, NULL, OUT(size_t), 8, OUT2(size_t)))
CALL(shard_unit_settings, shard,
     fsdp2_shard_get_unit_settings(h, NULL, OUT_STRUCT(fsdp2_unit_settings)))
static const fsdp2_unit_settings kSettings = {sizeof(kSettings), 1, 1, 0, 1, 1, 0, 0, 0.0};
CALL(shard_set_unit_settings, shard, fsdp2_shard_set_unit_settings(h, NULL, &kSettings))
CALL(shard_unshard, shard, fsdp2_shard_unshard(h, NULL, 0))
CALL(shard_wait_unshard, shard, fsdp2_shard_wait_unshard(h, NULL))
CALL(shard_reshard, shard, fsdp2_shard_reshard(h, NULL))
CALL(shard_reset, shard, fsdp2_shard_reset(h))
CALL(shard_events, shard, fsdp2_shard_get_events(h, OUT(int32_t), OUT2(size_t), 8, OUT3(size_t)))
CALL(shard_clear_events, shard, fsdp2_shard_clear_events(h))
CALL(shard_hook, shard, fsdp2_shard_set_all_reduce_hook(h, NULL, NULL, NULL, NULL))
CALL(shard_ready, shard, fsdp2_shard_set_gradient_ready(h, NULL, 0, NULL, NULL, NULL))
CALL(shard_extension, shard, fsdp2_shard_set_all_gather_extension(h, NULL, NULL, NULL, NULL, NULL))
CALL(optimizer_adamw, shard, fsdp2_optimizer_create_adamw(h, NULL, OUT(fsdp2_optimizer)))
CALL(optimizer_sgd, shard, fsdp2_optimizer_create_sgd(h, NULL, OUT(fsdp2_optimizer)))
static const char* const kNorm[1] = {"model.norm.weight"};
CALL(optimizer_add_adamw_group, optimizer, fsdp2_optimizer_add_adamw_group(h, kNorm, 1, NULL))
CALL(optimizer_add_sgd_group, optimizer, fsdp2_optimizer_add_sgd_group(h, kNorm, 1, NULL))
CALL(optimizer_get_info, optimizer, fsdp2_optimizer_get_info(h, OUT_STRUCT(fsdp2_optimizer_info)))
CALL(optimizer_group_info, optimizer,
     fsdp2_optimizer_get_group_info(h, 0, OUT_STRUCT(fsdp2_optimizer_group_info)))
CALL(optimizer_group_parameters, optimizer,
     fsdp2_optimizer_get_group_parameters(h, 0, OUT(size_t), 32, OUT2(size_t)))
CALL(optimizer_set_group_lr, optimizer, fsdp2_optimizer_set_group_lr(h, 0, 1.0))
CALL(optimizer_set_group_decay, optimizer, fsdp2_optimizer_set_group_weight_decay(h, 0, 1.0))
CALL(optimizer_get_state, optimizer,
     fsdp2_optimizer_get_state(h, 0, "step", FSDP2_PARAMETER_LOCAL, OUT(fsdp2_tensor)))
CALL(optimizer_set_lr, optimizer, fsdp2_optimizer_set_lr(h, 1.0))
CALL(optimizer_get_lr, optimizer, fsdp2_optimizer_get_lr(h, OUT(double)))
CALL(optimizer_run, optimizer, fsdp2_optimizer_run(h))
CALL(optimizer_destroy, optimizer, fsdp2_optimizer_destroy(h))
CALL(optimizer_duplicate, optimizer, fsdp2_optimizer_duplicate(h, OUT(fsdp2_optimizer)))
static fsdp2_loader_options kLoading = FSDP2_LOADER_OPTIONS_INIT;
CALL(loader_open, mesh, fsdp2_loader_open(h, TINY_LLAMA_TOKENS, &kLoading, OUT(fsdp2_loader)))
CALL(loader_next, loader, fsdp2_loader_next(h, OUT(fsdp2_tensor), OUT2(fsdp2_tensor)))
CALL(loader_get_position, loader, fsdp2_loader_get_position(h, OUT(int64_t)))
CALL(loader_set_position, loader, fsdp2_loader_set_position(h, 0))
CALL(loader_destroy, loader, fsdp2_loader_destroy(h))
CALL(loader_duplicate, loader, fsdp2_loader_duplicate(h, OUT(fsdp2_loader)))
CALL(step_create, shard, fsdp2_step_create(h, job.optimizer, NULL, OUT(fsdp2_step)))
CALL(step_create_with_optimizer, optimizer, fsdp2_step_create(job.shard, h, NULL, OUT(fsdp2_step)))
CALL(step_run, step, fsdp2_step_run(h, &tokens, 1, OUT_STRUCT(fsdp2_step_result)))
CALL(step_run_over_batch, tensor, fsdp2_step_run(job.step, &h, 1, OUT_STRUCT(fsdp2_step_result)))
CALL(step_set_position, step, fsdp2_step_set_position(h, 0))
CALL(step_get_position, step, fsdp2_step_get_position(h, OUT(int64_t)))
CALL(step_destroy, step, fsdp2_step_destroy(h))
CALL(step_duplicate, step, fsdp2_step_duplicate(h, OUT(fsdp2_step)))
CALL(save_full, shard, fsdp2_checkpoint_save_full(h, "x"))
CALL(load_full, shard, fsdp2_checkpoint_load_full(h, "x"))
CALL(save_pretrained, shard, fsdp2_checkpoint_save_pretrained(h, "x"))
CALL(save, shard, fsdp2_checkpoint_save(h, job.optimizer, job.step, job.loader, "x", NULL))
CALL(prepare_save, shard, fsdp2_checkpoint_prepare(h, job.optimizer, job.step, job.loader))
CALL(load, shard, fsdp2_checkpoint_load(h, job.optimizer, job.step, job.loader, "x", NULL))
CALL(wait_for_save, shard, fsdp2_checkpoint_wait(h))
CALL(poll_save, shard, fsdp2_checkpoint_poll(h, OUT(int32_t)))
CALL(load_report, shard, fsdp2_checkpoint_get_report(h, OUT(char), 64, OUT2(size_t)))

CALL(state_create, mesh, fsdp2_state_create(h, OUT(fsdp2_state)))
CALL(state_destroy, state, fsdp2_state_destroy(h))
CALL(state_duplicate, state, fsdp2_state_duplicate(h, OUT(fsdp2_state)))
CALL(state_add_tensor, state, fsdp2_state_add_tensor(h, "a", NULL, NULL, 0, tokens))
CALL(state_add_tensor_of, tensor, fsdp2_state_add_tensor(state, "a", NULL, NULL, 0, h))
CALL(state_add_value, state, fsdp2_state_add_value(h, "a", "1"))
CALL(state_get_info, state, fsdp2_state_get_info(h, OUT_STRUCT(fsdp2_state_info)))
CALL(state_get_count, state, fsdp2_state_get_count(h, OUT(size_t)))
CALL(state_get_name, state, fsdp2_state_get_name(h, 0, OUT(char), 64, OUT2(size_t)))
CALL(state_get_tensor, state, fsdp2_state_get_tensor(h, "a", OUT(fsdp2_tensor)))
CALL(state_get_value, state, fsdp2_state_get_value(h, "a", OUT(char), 64, OUT2(size_t)))
CALL(state_save, state, fsdp2_state_save(h, "x", NULL))
CALL(state_load, state, fsdp2_state_load(h, "x"))
CALL(state_gather, state, fsdp2_state_gather(h, 0, OUT(fsdp2_state)))
CALL(get_state, shard,
     fsdp2_checkpoint_get_state(h, job.optimizer, job.step, job.loader, 0, OUT(fsdp2_state)))
CALL(set_state, shard,
     fsdp2_checkpoint_set_state(h, job.optimizer, job.step, job.loader, state, NULL))
CALL(set_state_from, state,
     fsdp2_checkpoint_set_state(job.shard, job.optimizer, job.step, job.loader, h, NULL))

static const struct {
  const char* function;
  fsdp2_status (*call)(uint64_t id);
  char kind; /* first letter of the handle's, L for the loader's */
  int destroys;
} kCalls[] = {
    {"fsdp2_mesh_destroy", mesh_destroy, 'm', 1},
    {"fsdp2_mesh_duplicate", mesh_duplicate, 'm', 0},
    {"fsdp2_mesh_get_info", mesh_get_info, 'm', 0},
    {"fsdp2_mesh_get_dim_name", mesh_get_dim_name, 'm', 0},
    {"fsdp2_mesh_describe", mesh_describe, 'm', 0},
    {"fsdp2_mesh_get_submesh", mesh_get_submesh, 'm', 0},
    {"fsdp2_mesh_barrier", mesh_barrier, 'm', 0},
    {"fsdp2_mesh_all_reduce", mesh_all_reduce, 'm', 0},
    {"fsdp2_mesh_create_in", mesh_create_in, 'm', 0},
    {"fsdp2_mesh_from_group", mesh_from_group, 'm', 0},
    {"fsdp2_mesh_get_dim_index", mesh_get_dim_index, 'm', 0},
    {"fsdp2_mesh_get_ranks", mesh_get_ranks, 'm', 0},
    {"fsdp2_mesh_get_group", mesh_get_group, 'm', 0},
    {"fsdp2_mesh_get_group_ranks", mesh_get_group_ranks, 'm', 0},
    {"fsdp2_mesh_is_equal", mesh_is_equal, 'm', 0},
    {"fsdp2_mesh_is_equal", mesh_is_equal_to, 'm', 0},
    {"fsdp2_mesh_get_hash", mesh_get_hash, 'm', 0},
    {"fsdp2_mesh_flatten", mesh_flatten, 'm', 0},
    {"fsdp2_mesh_get_root", mesh_get_root, 'm', 0},
    {"fsdp2_mesh_broadcast", mesh_broadcast, 'm', 0},
    {"fsdp2_mesh_broadcast", mesh_broadcast_of, 't', 0},
    {"fsdp2_mesh_scatter", mesh_scatter, 'm', 0},
    {"fsdp2_mesh_scatter", mesh_scatter_of, 't', 0},
    {"fsdp2_mesh_all_gather", mesh_all_gather, 'm', 0},
    {"fsdp2_mesh_all_gather", mesh_all_gather_of, 't', 0},
    {"fsdp2_mesh_reduce_scatter", mesh_reduce_scatter, 'm', 0},
    {"fsdp2_mesh_reduce_scatter", mesh_reduce_scatter_of, 't', 0},
    {"fsdp2_mesh_all_reduce_tensor", mesh_all_reduce_tensor, 'm', 0},
    {"fsdp2_mesh_all_reduce_tensor", mesh_all_reduce_tensor_of, 't', 0},
    {"fsdp2_mesh_agree", mesh_agree, 'm', 0},
    {"fsdp2_mesh_fail", mesh_fail, 'm', 0},
    {"fsdp2_tensor_read", tensor_read, 't', 0},
    {"fsdp2_tensor_get_value", tensor_get_value, 't', 0},
    {"fsdp2_tensor_to_dlpack", tensor_to_dlpack, 't', 0},
    {"fsdp2_tensor_get_info", tensor_get_info, 't', 0},
    {"fsdp2_tensor_backward", tensor_backward, 't', 0},
    {"fsdp2_tensor_destroy", tensor_destroy, 't', 1},
    {"fsdp2_tensor_duplicate", tensor_duplicate, 't', 0},
    {"fsdp2_module_destroy", module_destroy, 'M', 1},
    {"fsdp2_module_duplicate", module_duplicate, 'M', 0},
    {"fsdp2_module_get_info", module_get_info, 'M', 0},
    {"fsdp2_module_get_parameter_count", module_parameter_count, 'M', 0},
    {"fsdp2_module_get_parameter_info", module_parameter_info, 'M', 0},
    {"fsdp2_module_get_parameter_name", module_parameter_name, 'M', 0},
    {"fsdp2_module_get_parameter_index", module_parameter_index, 'M', 0},
    {"fsdp2_module_get_parameter", module_parameter, 'M', 0},
    {"fsdp2_module_zero_grad", module_zero_grad, 'M', 0},
    {"fsdp2_module_set_requires_grad", module_requires_grad, 'M', 0},
    {"fsdp2_module_train", module_train, 'M', 0},
    {"fsdp2_module_is_training", module_is_training, 'M', 0},
    {"fsdp2_module_forward", module_forward, 'M', 0},
    {"fsdp2_module_forward", module_forward_of_input, 't', 0},
    {"fsdp2_module_generate", module_generate, 'M', 0},
    {"fsdp2_shard_create", shard_create, 'M', 0},
    {"fsdp2_shard_create", shard_create_over_mesh, 'm', 0},
    {"fsdp2_shard_destroy", shard_destroy, 's', 1},
    {"fsdp2_shard_duplicate", shard_duplicate, 's', 0},
    {"fsdp2_shard_set_requires_gradient_sync", shard_sync, 's', 0},
    {"fsdp2_shard_zero_grad", shard_zero_grad, 's', 0},
    {"fsdp2_shard_clip_grad_norm", shard_clip, 's', 0},
    {"fsdp2_shard_get_parameter_count", shard_count, 's', 0},
    {"fsdp2_shard_get_parameter_info", shard_info, 's', 0},
    {"fsdp2_shard_get_parameter_name", shard_name, 's', 0},
    {"fsdp2_shard_get_parameter", shard_parameter, 's', 0},
    {"fsdp2_shard_get_stats", shard_stats, 's', 0},
    {"fsdp2_shard_reset_stats", shard_reset_stats, 's', 0},
    {"fsdp2_shard_describe", shard_describe, 's', 0},
    {"fsdp2_plan_get_info", plan_get_info, 's', 0},
    {"fsdp2_plan_describe", plan_describe, 's', 0},
    {"fsdp2_tensor_write", tensor_write, 't', 0},
    {"fsdp2_tensor_set_requires_grad", tensor_set_requires_grad, 't', 0},
    {"fsdp2_tensor_get_grad", tensor_get_grad, 't', 0},
    {"fsdp2_tensor_run_backward", tensor_run_backward, 't', 0},
    {"fsdp2_module_forward_submodule", module_forward_submodule, 'M', 0},
    {"fsdp2_shard_make_unit", make_unit, 'M', 0},
    {"fsdp2_shard_make_unit", make_unit_over_mesh, 'm', 0},
    {"fsdp2_shard_make_units", make_units, 'M', 0},
    {"fsdp2_shard_make_units", make_units_over_mesh, 'm', 0},
    {"fsdp2_shard_load_values", shard_load_values, 's', 0},
    {"fsdp2_shard_get_mesh", shard_get_mesh, 's', 0},
    {"fsdp2_shard_get_grad_norm", shard_grad_norm, 's', 0},
    {"fsdp2_shard_get_grad_overflow", shard_grad_overflow, 's', 0},
    {"fsdp2_shard_scale_grad", shard_scale_grad, 's', 0},
    {"fsdp2_shard_get_parameter_index", shard_parameter_index, 's', 0},
    {"fsdp2_shard_cast_parameters", shard_cast, 's', 0},
    {"fsdp2_shard_get_unit_count", shard_unit_count, 's', 0},
    {"fsdp2_shard_get_unit_info", shard_unit_info, 's', 0},
    {"fsdp2_shard_get_unit_name", shard_unit_name, 's', 0},
    {"fsdp2_shard_get_unit_index", shard_unit_index, 's', 0},
    {"fsdp2_shard_set_requires_all_reduce", shard_all_reduce, 's', 0},
    {"fsdp2_shard_set_is_last_backward", shard_last_backward, 's', 0},
    {"fsdp2_shard_get_is_last_backward", shard_get_last_backward, 's', 0},
    {"fsdp2_shard_set_reshard_after_forward", shard_after_forward, 's', 0},
    {"fsdp2_shard_set_reshard_after_backward", shard_after_backward, 's', 0},
    {"fsdp2_shard_set_unshard_in_backward", shard_in_backward, 's', 0},
    {"fsdp2_shard_set_reduce_unused_parameters", shard_unused, 's', 0},
    {"fsdp2_shard_set_gradient_divide_factor", shard_divide, 's', 0},
    {"fsdp2_shard_set_force_sum_reduction", shard_sums, 's', 0},
    {"fsdp2_shard_set_forward_prefetch", shard_forward_prefetch, 's', 0},
    {"fsdp2_shard_set_backward_prefetch", shard_backward_prefetch, 's', 0},
    {"fsdp2_shard_get_forward_prefetch", shard_get_forward_prefetch, 's', 0},
    {"fsdp2_shard_get_backward_prefetch", shard_get_backward_prefetch, 's', 0},
    {"fsdp2_shard_get_unit_settings", shard_unit_settings, 's', 0},
    {"fsdp2_shard_set_unit_settings", shard_set_unit_settings, 's', 0},
    {"fsdp2_shard_unshard", shard_unshard, 's', 0},
    {"fsdp2_shard_wait_unshard", shard_wait_unshard, 's', 0},
    {"fsdp2_shard_reshard", shard_reshard, 's', 0},
    {"fsdp2_shard_reset", shard_reset, 's', 0},
    {"fsdp2_shard_get_events", shard_events, 's', 0},
    {"fsdp2_shard_clear_events", shard_clear_events, 's', 0},
    {"fsdp2_shard_set_all_reduce_hook", shard_hook, 's', 0},
    {"fsdp2_shard_set_gradient_ready", shard_ready, 's', 0},
    {"fsdp2_shard_set_all_gather_extension", shard_extension, 's', 0},
    {"fsdp2_optimizer_create_adamw", optimizer_adamw, 's', 0},
    {"fsdp2_optimizer_create_sgd", optimizer_sgd, 's', 0},
    {"fsdp2_optimizer_add_adamw_group", optimizer_add_adamw_group, 'o', 0},
    {"fsdp2_optimizer_add_sgd_group", optimizer_add_sgd_group, 'o', 0},
    {"fsdp2_optimizer_get_info", optimizer_get_info, 'o', 0},
    {"fsdp2_optimizer_get_group_info", optimizer_group_info, 'o', 0},
    {"fsdp2_optimizer_get_group_parameters", optimizer_group_parameters, 'o', 0},
    {"fsdp2_optimizer_set_group_lr", optimizer_set_group_lr, 'o', 0},
    {"fsdp2_optimizer_set_group_weight_decay", optimizer_set_group_decay, 'o', 0},
    {"fsdp2_optimizer_get_state", optimizer_get_state, 'o', 0},
    {"fsdp2_optimizer_set_lr", optimizer_set_lr, 'o', 0},
    {"fsdp2_optimizer_get_lr", optimizer_get_lr, 'o', 0},
    {"fsdp2_optimizer_run", optimizer_run, 'o', 0},
    {"fsdp2_optimizer_destroy", optimizer_destroy, 'o', 1},
    {"fsdp2_optimizer_duplicate", optimizer_duplicate, 'o', 0},
    {"fsdp2_loader_open", loader_open, 'm', 0},
    {"fsdp2_loader_next", loader_next, 'L', 0},
    {"fsdp2_loader_get_position", loader_get_position, 'L', 0},
    {"fsdp2_loader_set_position", loader_set_position, 'L', 0},
    {"fsdp2_loader_destroy", loader_destroy, 'L', 1},
    {"fsdp2_loader_duplicate", loader_duplicate, 'L', 0},
    {"fsdp2_step_create", step_create, 's', 0},
    {"fsdp2_step_create", step_create_with_optimizer, 'o', 0},
    {"fsdp2_step_run", step_run, 'S', 0},
    {"fsdp2_step_run", step_run_over_batch, 't', 0},
    {"fsdp2_step_set_position", step_set_position, 'S', 0},
    {"fsdp2_step_get_position", step_get_position, 'S', 0},
    {"fsdp2_step_destroy", step_destroy, 'S', 1},
    {"fsdp2_step_duplicate", step_duplicate, 'S', 0},
    {"fsdp2_checkpoint_save_full", save_full, 's', 0},
    {"fsdp2_checkpoint_load_full", load_full, 's', 0},
    {"fsdp2_checkpoint_save_pretrained", save_pretrained, 's', 0},
    {"fsdp2_checkpoint_save", save, 's', 0},
    {"fsdp2_checkpoint_prepare", prepare_save, 's', 0},
    {"fsdp2_checkpoint_load", load, 's', 0},
    {"fsdp2_checkpoint_wait", wait_for_save, 's', 0},
    {"fsdp2_checkpoint_poll", poll_save, 's', 0},
    {"fsdp2_checkpoint_get_report", load_report, 's', 0},
    {"fsdp2_checkpoint_get_state", get_state, 's', 0},
    {"fsdp2_checkpoint_set_state", set_state, 's', 0},
    {"fsdp2_checkpoint_set_state", set_state_from, 'T', 0},
    {"fsdp2_state_create", state_create, 'm', 0},
    {"fsdp2_state_destroy", state_destroy, 'T', 1},
    {"fsdp2_state_duplicate", state_duplicate, 'T', 0},
    {"fsdp2_state_add_tensor", state_add_tensor, 'T', 0},
    {"fsdp2_state_add_tensor", state_add_tensor_of, 't', 0},
    {"fsdp2_state_add_value", state_add_value, 'T', 0},
    {"fsdp2_state_get_info", state_get_info, 'T', 0},
    {"fsdp2_state_get_count", state_get_count, 'T', 0},
    {"fsdp2_state_get_name", state_get_name, 'T', 0},
    {"fsdp2_state_get_tensor", state_get_tensor, 'T', 0},
    {"fsdp2_state_get_value", state_get_value, 'T', 0},
    {"fsdp2_state_save", state_save, 'T', 0},
    {"fsdp2_state_load", state_load, 'T', 0},
    {"fsdp2_state_gather", state_gather, 'T', 0},
};

struct handles {
  uint64_t mesh, tensor, module, shard, optimizer, loader, step, state;
};

static uint64_t of_kind(const struct handles* handles, char kind) {
  switch (kind) {
    case 'm':
      return handles->mesh;
    case 't':
      return handles->tensor;
    case 'M':
      return handles->module;
    case 's':
      return handles->shard;
    case 'o':
      return handles->optimizer;
    case 'L':
      return handles->loader;
    case 'T':
      return handles->state;
    default:
      return handles->step;
  }
}

static void misuse(fsdp2_mesh mesh, int rank) {
  static const char kKinds[] = "mtMsoLST";
  fsdp2_mesh gone_mesh = {0};
  struct job gone = start_job(mesh);
  const int64_t one = 1, shape = 1;
  fsdp2_tensor gone_tensor = int64_tensor(&one, &shape, 1);
  fsdp2_state gone_state = {0};
  struct handles stale, live;
  size_t i, k;
  EXPECT_OK(fsdp2_state_create(gone.mesh, &gone_state));
  EXPECT_OK(fsdp2_state_destroy(gone_state));
  EXPECT_OK(fsdp2_tensor_destroy(gone_tensor));
  end_job(&gone);
  EXPECT_OK(fsdp2_mesh_from_group(mesh, 0, NULL, &gone_mesh));
  EXPECT_OK(fsdp2_mesh_destroy(gone_mesh));
  start_misuse(mesh);
  stale.mesh = gone_mesh.id, stale.tensor = gone_tensor.id, stale.module = gone.module.id;
  stale.shard = gone.shard.id, stale.optimizer = gone.optimizer.id;
  stale.loader = gone.loader.id, stale.step = gone.step.id, stale.state = gone_state.id;
  live.mesh = job.mesh.id, live.tensor = tokens.id, live.module = job.module.id;
  live.shard = job.shard.id, live.optimizer = job.optimizer.id;
  live.loader = job.loader.id, live.step = job.step.id, live.state = state.id;
  for (i = 0; i < sizeof(kCalls) / sizeof(kCalls[0]); ++i) {
    const char* name = kCalls[i].function;
    const uint64_t own = of_kind(&live, kCalls[i].kind);
    if (kCalls[i].destroys) {
      EXPECT_OK(kCalls[i].call(0));
    } else {
      /* Only the first rank of a scatter passes a tensor: the others hear of its mistake. */
      const int hears = kCalls[i].call == mesh_scatter_of && rank > 0;
      expect_refusal(name, "null", kCalls[i].call(0),
                     hears ? FSDP2_E_PEER_FAILED : FSDP2_E_INVALID_HANDLE);
    }
    expect_refusal(name, "all bits", kCalls[i].call(UINT64_MAX), FSDP2_E_INVALID_HANDLE);
    expect_refusal(name, "garbage", kCalls[i].call(0xdeadbeef), FSDP2_E_INVALID_HANDLE);
    expect_refusal(name, "a slot of later", kCalls[i].call(own + 1000), FSDP2_E_INVALID_HANDLE);
    expect_refusal(name, "a generation of later", kCalls[i].call(own + (UINT64_C(1) << 24)),
                   FSDP2_E_INVALID_HANDLE);
    expect_refusal(name, "stale", kCalls[i].call(of_kind(&stale, kCalls[i].kind)),
                   FSDP2_E_STALE_HANDLE);
    for (k = 0; kKinds[k] != '\0'; ++k) {
      if (kKinds[k] != kCalls[i].kind) {
        expect_refusal(name, "another kind", kCalls[i].call(of_kind(&live, kKinds[k])),
                       FSDP2_E_HANDLE_KIND);
      }
    }
  }
  end_misuse();
}

int main(void) { return run_misuse(misuse); }
