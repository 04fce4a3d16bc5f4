/* Modules that are sharded first and get their values later. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/tiny_model.h"

static void values_can_be_deferred(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  const int64_t shape[2] = {1, 2}, values[2] = {1, 2};
  const fsdp2_tensor tokens = int64_tensor(values, shape, 2);
  fsdp2_tensor logits = {0};
  fsdp2_shard shard;
  size_t n = 0;
  options.defer_values = 1;
  shard = shard_with(module, mesh, &options);
  EXPECT_STATUS(fsdp2_module_forward(module, &tokens, 1, 0, &logits, 1, &n), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("have no values yet");
  EXPECT_MESSAGE("lm_head.weight");
  EXPECT_OK(fsdp2_shard_load_values(shard));
  EXPECT_STATUS(fsdp2_shard_load_values(shard), FSDP2_E_WRONG_STATE);
  EXPECT_OK(fsdp2_module_forward(module, &tokens, 1, 0, &logits, 1, &n));
  EXPECT_OK(fsdp2_tensor_destroy(logits));
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

/* What sharding leaves alone has no memory before it has values; shards have, but nothing in it. */
static void save_deferred_values(fsdp2_mesh mesh, int rank) {
  static const char* const kIgnored = "model.norm.weight";
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_save_options saving = FSDP2_SAVE_OPTIONS_INIT;
  fsdp2_state state = {0}, whole = {0};
  fsdp2_shard shard;
  (void)rank;
  options.defer_values = 1;
  options.ignored_names = &kIgnored;
  options.n_ignored_names = 1;
  shard = shard_with(module, mesh, &options);
  EXPECT_STATUS(fsdp2_checkpoint_get_state(shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                           (fsdp2_loader){0}, 0, &state),
                FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("model.norm.weight has no memory");
  for (saving.background = 0; saving.background < 2; ++saving.background) {
    EXPECT_STATUS(fsdp2_checkpoint_save(shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                        (fsdp2_loader){0}, temporary_path("deferred"), &saving),
                  FSDP2_E_WRONG_STATE);
    EXPECT_MESSAGE("have no values yet");
    EXPECT_OK(fsdp2_mesh_barrier(mesh)); /* nothing was sent or written: the mesh goes on */
  }
  EXPECT_STATUS(fsdp2_checkpoint_save_full(shard, temporary_path("deferred.safetensors")),
                FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("have no values yet");
  EXPECT_OK(fsdp2_shard_load_values(shard));
  EXPECT_OK(fsdp2_checkpoint_get_state(shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                       (fsdp2_loader){0}, 0, &state));
  EXPECT_OK(fsdp2_state_gather(state, 0, &whole));
  EXPECT_OK(fsdp2_state_destroy(whole));
  EXPECT_OK(fsdp2_state_destroy(state));
  destroy_tiny(module, shard);
}
static void deferred_values_have_no_state_to_save(void) {
  on_ranks("deferred-alone", 1, 0, save_deferred_values);
  on_ranks("deferred-together", 2, 0, save_deferred_values);
}

/* A state of the norm alone. */
static fsdp2_state state_of_norm(fsdp2_mesh mesh) {
  const int64_t width[1] = {kTinyWidth};
  const float ones[kTinyWidth] = {1.0f};
  fsdp2_tensor norm = {0};
  fsdp2_state state = {0};
  EXPECT_OK(fsdp2_tensor_from_buffer(ones, sizeof(ones), FSDP2_DTYPE_F32, width, 1, &norm));
  EXPECT_OK(fsdp2_state_create(mesh, &state));
  EXPECT_OK(fsdp2_state_add_tensor(state, "model.model.norm.weight", NULL, NULL, 0, norm));
  EXPECT_OK(fsdp2_tensor_destroy(norm));
  return state;
}

/* A partial state gives the norm alone its values. */
static void forward_after_a_partial_state(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_load_options loading = FSDP2_LOAD_OPTIONS_INIT;
  const int64_t shape[2] = {1, 2}, values[2] = {1, 2};
  const fsdp2_tensor tokens = int64_tensor(values, shape, 2);
  const fsdp2_state state = state_of_norm(mesh);
  fsdp2_tensor logits = {0};
  fsdp2_shard shard;
  size_t n = 0;
  (void)rank;
  options.defer_values = 1;
  shard = shard_with(module, mesh, &options);
  loading.partial = 1;
  EXPECT_OK(fsdp2_checkpoint_set_state(shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                       (fsdp2_loader){0}, state, &loading));
  EXPECT_STATUS(fsdp2_module_forward(module, &tokens, 1, 0, &logits, 1, &n), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("the parameters model.embed_tokens.weight, lm_head.weight, model.layers.0");
  EXPECT_OK(fsdp2_mesh_barrier(mesh)); /* nothing was sent: the mesh goes on */
  EXPECT_OK(fsdp2_shard_load_values(shard));
  EXPECT_OK(fsdp2_module_forward(module, &tokens, 1, 0, &logits, 1, &n));
  EXPECT_OK(fsdp2_tensor_destroy(logits));
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  EXPECT_OK(fsdp2_state_destroy(state));
  destroy_tiny(module, shard);
}
static void values_that_a_partial_load_left_out_are_named(void) {
  on_ranks("left-out-1", 1, 0, forward_after_a_partial_state);
  on_ranks("left-out", 2, 0, forward_after_a_partial_state);
}

/* A parameter that sharding has left alone has no memory before a load brings its values. */
static void load_an_ignored_parameter(fsdp2_mesh mesh, int rank) {
  static const char* const kIgnored = "model.norm.weight";
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_load_options loading = FSDP2_LOAD_OPTIONS_INIT;
  const fsdp2_state state = state_of_norm(mesh);
  float norm[kTinyWidth] = {0};
  fsdp2_tensor parameter = {0};
  size_t index = 0;
  fsdp2_shard shard;
  (void)rank;
  options.defer_values = 1;
  options.ignored_names = &kIgnored;
  options.n_ignored_names = 1;
  shard = shard_with(module, mesh, &options);
  EXPECT_OK(fsdp2_module_get_parameter_index(module, kIgnored, &index));
  EXPECT_STATUS(fsdp2_checkpoint_set_state(shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                           (fsdp2_loader){0}, state, &loading),
                FSDP2_E_NOT_FOUND); /* it lacks the others */
  EXPECT_STATUS(fsdp2_module_get_parameter(module, index, FSDP2_PARAMETER_LOCAL, &parameter),
                FSDP2_E_WRONG_STATE);
  loading.partial = 1;
  EXPECT_OK(fsdp2_checkpoint_set_state(shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                       (fsdp2_loader){0}, state, &loading));
  EXPECT_OK(fsdp2_module_get_parameter(module, index, FSDP2_PARAMETER_LOCAL, &parameter));
  EXPECT_OK(fsdp2_tensor_read(parameter, norm, sizeof(norm)));
  EXPECT(norm[0] == 1.0f && norm[1] == 0.0f);
  EXPECT_OK(fsdp2_tensor_destroy(parameter));
  EXPECT_OK(fsdp2_state_destroy(state));
  destroy_tiny(module, shard);
}
static void a_load_gives_an_ignored_parameter_its_memory(void) {
  on_ranks("ignored-1", 1, 0, load_an_ignored_parameter);
  on_ranks("ignored-2", 2, 0, load_an_ignored_parameter);
}

/* All of the model but the norm. */
static fsdp2_state state_without_norm(fsdp2_mesh mesh) {
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_shard shard = shard_with(module, mesh, &options);
  fsdp2_state all = {0}, part = {0};
  fsdp2_state_info info;
  size_t i;
  EXPECT_OK(fsdp2_checkpoint_get_state(shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                       (fsdp2_loader){0}, 0, &all));
  info.struct_size = sizeof(info);
  EXPECT_OK(fsdp2_state_get_info(all, &info));
  EXPECT_OK(fsdp2_state_create(mesh, &part));
  for (i = 0; i < (size_t)info.n_tensors; ++i) {
    char name[256];
    size_t needed = 0;
    fsdp2_tensor tensor = {0};
    EXPECT_OK(fsdp2_state_get_name(all, i, name, sizeof(name), &needed));
    EXPECT_OK(fsdp2_state_get_tensor(all, name, &tensor));
    if (strcmp(name, "model.model.norm.weight") != 0) {
      EXPECT_OK(fsdp2_state_add_tensor(part, name, NULL, NULL, 0, tensor));
    }
    EXPECT_OK(fsdp2_tensor_destroy(tensor));
  }
  EXPECT_OK(fsdp2_state_destroy(all));
  destroy_tiny(module, shard);
  return part;
}

/* All but an ignored parameter has values: there is nothing of it to save. */
static void a_save_names_ignored_parameters_without_values(void) {
  static const char* const kIgnored = "model.norm.weight";
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_state state = state_without_norm(mesh);
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_load_options loading = FSDP2_LOAD_OPTIONS_INIT;
  fsdp2_save_options saving = FSDP2_SAVE_OPTIONS_INIT;
  fsdp2_shard shard;
  options.defer_values = 1;
  options.ignored_names = &kIgnored;
  options.n_ignored_names = 1;
  shard = shard_with(module, mesh, &options);
  loading.partial = 1;
  EXPECT_OK(fsdp2_checkpoint_set_state(shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                       (fsdp2_loader){0}, state, &loading));
  EXPECT_STATUS(fsdp2_checkpoint_save_full(shard, temporary_path("without.safetensors")),
                FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("the parameters model.norm.weight have no values yet");
  saving.format = FSDP2_CHECKPOINT_PTH_PER_RANK;
  EXPECT_STATUS(fsdp2_checkpoint_save(shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                      (fsdp2_loader){0}, temporary_path("without"), &saving),
                FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("the parameters model.norm.weight have no values yet");
  EXPECT_OK(fsdp2_state_destroy(state));
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

int main(void) {
  RUN(values_can_be_deferred);
  RUN(deferred_values_have_no_state_to_save);
  RUN(values_that_a_partial_load_left_out_are_named);
  RUN(a_load_gives_an_ignored_parameter_its_memory);
  RUN(a_save_names_ignored_parameters_without_values);
  return harness_result();
}
