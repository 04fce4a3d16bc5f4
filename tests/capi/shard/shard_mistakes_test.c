/* What cannot be sharded, and options and meshes that cannot be: told by name, changing nothing. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/same_step.h"

static void modules_refused(fsdp2_module module, fsdp2_mesh mesh, const char* name,
                            fsdp2_status expected, const char* part) {
  EXPECT_STATUS(fsdp2_shard_make_unit(module, mesh, &name, 1, NULL), expected);
  EXPECT_MESSAGE(name);
  EXPECT_MESSAGE(part);
}

static void modules_that_cannot_be_sharded_are_told_by_name(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const char* name = "model";
  const fsdp2_tensor none = {0};
  fsdp2_tensor out = {0};
  fsdp2_shard shard = {5};
  size_t n = 0;
  modules_refused(module, mesh, "model.layers.9", FSDP2_E_NOT_FOUND, "holds 0, 1, 2");
  modules_refused(module, mesh, "model.layers", FSDP2_E_INVALID_ARGUMENT, "container");
  EXPECT_OK(fsdp2_shard_make_unit(module, mesh, &name, 1, NULL));
  modules_refused(module, mesh, "model", FSDP2_E_WRONG_STATE, "already sharded");
  modules_refused(module, mesh, "model.layers.1", FSDP2_E_WRONG_STATE,
                  "children before their parents");
  EXPECT_STATUS(fsdp2_module_forward(module, &none, 0, 0, &out, 1, &n), FSDP2_E_INVALID_ARGUMENT);
  shard = shard_with(module, mesh, NULL);
  name = "lm_head";
  EXPECT_STATUS(fsdp2_shard_make_unit(module, mesh, &name, 1, NULL), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("make units of the modules in it before it");
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void a_half_sharded_module_does_not_run(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const int64_t shape[2] = {1, 1}, value = 1;
  const fsdp2_tensor tokens = int64_tensor(&value, shape, 2);
  const char* name = "lm_head";
  fsdp2_tensor out = {0};
  size_t n = 0;
  EXPECT_OK(fsdp2_shard_make_unit(module, mesh, &name, 1, NULL));
  EXPECT_STATUS(fsdp2_module_forward(module, &tokens, 1, 0, &out, 1, &n), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("fsdp2_shard_create");
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static fsdp2_tensor negative_of(fsdp2_tensor tensor) {
  const fsdp2_scope none = {0};
  fsdp2_value input = {0}, output = {0};
  size_t n = 0;
  input.kind = FSDP2_VALUE_TENSOR;
  input.tensor = tensor;
  EXPECT_OK(fsdp2_op_call("aten::neg", &input, 1, 0, none, &output, 1, &n));
  return output.tensor;
}

static void a_graph_of_before_is_refused(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_tensor before = tiny_loss(module, 0);
  const fsdp2_shard shard = shard_with(module, mesh, NULL);
  const fsdp2_tensor longer = negative_of(before);
  EXPECT_STATUS(fsdp2_tensor_backward(before), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("before the model was sharded");
  EXPECT_STATUS(fsdp2_tensor_backward(longer), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("before the model was sharded");
  tiny_backward(module);
  EXPECT_OK(fsdp2_tensor_destroy(longer));
  EXPECT_OK(fsdp2_tensor_destroy(before));
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void a_split_tie_is_refused(void) {
  static const char* const embedding[1] = {"model.embed_tokens"};
  const fsdp2_mesh mesh = lone_mesh();
  fsdp2_module module = {0};
  fsdp2_shard shard = {5};
  EXPECT_OK(fsdp2_module_from_config(TINY_CONFIG("true"), NULL, &module));
  EXPECT_OK(fsdp2_shard_make_unit(module, mesh, embedding, 1, NULL));
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, NULL, &shard), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("model.embed_tokens.weight = lm_head.weight");
  EXPECT_MESSAGE("one list");
  EXPECT(shard.id == 5);
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static fsdp2_status a_dim_too_many(const fsdp2_shard_dim_info* info, int32_t* out,
                                   void* user_data) {
  (void)user_data;
  *out = strcmp(info->parameter, "model.layers.2.mlp.up_proj.weight") == 0 ? info->n_dims : 0;
  return FSDP2_OK;
}

static fsdp2_status no_dim(const fsdp2_shard_dim_info* info, int32_t* out, void* user_data) {
  (void)info, (void)out, (void)user_data;
  return fsdp2_callback_fail(FSDP2_E_NOT_FOUND, "no plan for it");
}

static void options_refused(fsdp2_module module, fsdp2_mesh mesh,
                            const fsdp2_shard_options* options, fsdp2_status expected,
                            const char* part) {
  fsdp2_shard shard = {5};
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, options, &shard), expected);
  EXPECT_MESSAGE(part);
  EXPECT(shard.id == 5);
}

static void options_that_cannot_be_are_told_and_change_nothing(void) {
  static const char* const unknown[1] = {"model.layers.7"};
  static const char* const kinds[1] = {"GPT2Block"};
  const fsdp2_shard_options plain = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_shard_options options = plain;
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  options.shard_dim = a_dim_too_many;
  options_refused(module, mesh, &options, FSDP2_E_INVALID_ARGUMENT,
                  "model.layers.2.mlp.up_proj.weight: shard dim 2");
  options.shard_dim = no_dim;
  options_refused(module, mesh, &options, FSDP2_E_CALLBACK, "no plan for it");
  options = plain;
  options.wrap_names = unknown;
  options.n_wrap_names = 1;
  options_refused(module, mesh, &options, FSDP2_E_NOT_FOUND, "model.layers.7");
  options = plain;
  options.ignored_names = unknown;
  options.n_ignored_names = 1;
  options_refused(module, mesh, &options, FSDP2_E_NOT_FOUND, "model.layers.7");
  options = plain;
  options.wrap = FSDP2_WRAP_KINDS;
  options.wrap_kinds = kinds;
  options.n_wrap_kinds = 1;
  options_refused(module, mesh, &options, FSDP2_E_NOT_FOUND, "LlamaDecoderLayer");
  options = plain;
  options.cpu_offload = 1;
  if (test_device() == NULL) { /* memory is pinned for a device */
    options_refused(module, mesh, &options, FSDP2_E_UNSUPPORTED, "pin");
  }
  destroy_tiny(module, shard_with(module, mesh, NULL));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void meshes_that_cannot_be_sharded_over_are_told(void) {
  const int64_t shape[3] = {1, 1, 1};
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  const fsdp2_mesh lone = lone_mesh();
  const fsdp2_module module = tiny_model();
  fsdp2_mesh cube = {0}, nameless = {0};
  place.shape = shape;
  place.n_dims = 3;
  EXPECT_OK(fsdp2_mesh_create_in(lone, &place, &cube));
  place.n_dims = 2;
  EXPECT_OK(fsdp2_mesh_create_in(lone, &place, &nameless));
  options_refused(module, cube, NULL, FSDP2_E_INVALID_ARGUMENT, "expected 1 dim");
  options_refused(module, nameless, NULL, FSDP2_E_INVALID_ARGUMENT, "names for its dims");
  destroy_tiny(module, shard_with(module, lone, NULL));
  EXPECT_OK(fsdp2_mesh_destroy(cube));
  EXPECT_OK(fsdp2_mesh_destroy(nameless));
  EXPECT_OK(fsdp2_mesh_destroy(lone));
}

static void shard_unevenly(fsdp2_mesh mesh, int rank) {
  const fsdp2_shard_options plain = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_shard_options options = plain;
  const fsdp2_module module = tiny_model();
  int asked = 0;
  (void)rank;
  options.shard_dim = last_dim_of_matrices;
  options.shard_dim_user_data = &asked;
  options_refused(module, mesh, &options, FSDP2_E_UNSUPPORTED, "16 elements over 3 ranks");
  options = plain;
  options.reshard_after_forward = 2;
  options_refused(module, mesh, &options, FSDP2_E_INVALID_ARGUMENT, "divides the 3 ranks");
  options = plain;
  options.modules_per_unit = rank;
  options_refused(module, mesh, &options, FSDP2_E_INVALID_ARGUMENT, "modules_per_unit");
  options = plain;
  options.shard_dim = rank == 1 ? no_dim : NULL;
  options_refused(module, mesh, &options, rank == 1 ? FSDP2_E_CALLBACK : FSDP2_E_PEER_FAILED,
                  "no plan for it");
  expect_same_step(mesh, NULL, "three ranks");
  destroy_tiny(module, shard_with(module, mesh, NULL));
}
static void refusals_are_the_same_on_all_ranks(void) {
  reference[3] = tiny_on_one_rank_for(3);
  on_ranks("uneven", 3, 0, shard_unevenly);
}

int main(void) {
  RUN(modules_that_cannot_be_sharded_are_told_by_name);
  RUN(a_half_sharded_module_does_not_run);
  RUN(a_graph_of_before_is_refused);
  RUN(a_split_tie_is_refused);
  RUN(options_that_cannot_be_are_told_and_change_nothing);
  RUN(meshes_that_cannot_be_sharded_over_are_told);
  RUN(refusals_are_the_same_on_all_ranks);
  return harness_result();
}
