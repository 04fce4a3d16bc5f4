/* Which modules become units: by options, by hand, by rules; the parameters that stay out. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/tiny_model.h"

/* What one rank computes of the tokens of four. */
static struct tiny_result reference;

static void expect_units_with(const fsdp2_shard_options* options, const char* expected) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_with(module, mesh, options);
  expect_units(shard, expected);
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

#define LAYERS "|model.layers.0|model.layers.1|model.layers.2"

static void options_say_which_modules_are_units(void) {
  static const char *const kinds[1] = {"LlamaMLP"}, *const names[2] = {"model.norm", "model"};
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  expect_units_with(&options, LAYERS);
  options.modules_per_unit = 2;
  expect_units_with(&options, "|model.layers.0|model.layers.2");
  options.modules_per_unit = 0;
  options.wrap_embeddings = 1;
  options.wrap_head = 1;
  expect_units_with(&options, "|model.embed_tokens" LAYERS "|lm_head");
  options.wrap = FSDP2_WRAP_NONE;
  expect_units_with(&options, "|model.embed_tokens|lm_head");
  options.wrap_embeddings = options.wrap_head = 0;
  expect_units_with(&options, "");
  options.wrap_names = names;
  options.n_wrap_names = 2;
  expect_units_with(&options, "|model|model.norm");
  options.n_wrap_names = 0;
  options.wrap_min_numel = 2000; /* a layer has 2,208 */
  expect_units_with(&options, LAYERS);
  options.wrap_min_numel = 0;
  options.wrap = FSDP2_WRAP_KINDS;
  options.wrap_kinds = kinds;
  options.n_wrap_kinds = 1;
  expect_units_with(&options, "|model.layers.0.mlp|model.layers.1.mlp|model.layers.2.mlp");
}

static void modules_are_sharded_by_hand_bottom_up(void) {
  static const char *const first[1] = {"model.layers.0"}, *const two[3] = {"model.layers.1",
                                                                           "model.layers.2",
                                                                           "model.layers.2.mlp"};
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_shard shard;
  EXPECT_OK(fsdp2_shard_make_unit(module, mesh, first, 1, NULL));
  EXPECT_OK(fsdp2_shard_make_unit(module, mesh, two, 3, NULL));
  options.wrap = FSDP2_WRAP_NONE;
  shard = shard_with(module, mesh, &options);
  expect_units(shard, "|model.layers.0|model.layers.1");
  EXPECT(unit_of(shard, "model.layers.1").n_modules == 2);
  EXPECT(unit_of(shard, "model.layers.2").n_parameters == 18); /* of both */
  EXPECT(unit_of(shard, NULL).n_parameters == 3 && unit_of(shard, "").is_root == 1);
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

/* The MLPs of two ranks' halves in 16 bits, by a rule or by hand; then the layers over all ranks.
 */
static fsdp2_shard shard_with_small_mlps(fsdp2_module module, fsdp2_mesh mesh, fsdp2_mesh halves,
                                         int by_rule) {
  static const char* const kinds[1] = {"LlamaMLP"};
  static const char* const names[3] = {"model.layers.0.mlp", "model.layers.1.mlp",
                                       "model.layers.2.mlp"};
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  int i;
  options.param_dtype = FSDP2_DTYPE_BF16;
  options.reduce_dtype = FSDP2_DTYPE_F32;
  options.reshard_after_forward = FSDP2_RESHARD_ALWAYS;
  for (i = 0; i < 3 && !by_rule; ++i) {
    EXPECT_OK(fsdp2_shard_make_unit(module, halves, names + i, 1, &options));
  }
  if (by_rule) {
    options.wrap = FSDP2_WRAP_KINDS;
    options.wrap_kinds = kinds;
    options.n_wrap_kinds = 1;
    EXPECT_OK(fsdp2_shard_make_units(module, halves, &options));
  }
  return shard_with(module, mesh, NULL);
}

static void wrap_by_rule_and_by_hand(fsdp2_mesh mesh, int rank) {
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  struct tiny_result results[2];
  fsdp2_mesh halves = {0};
  int i;
  place.fsdp_size = 2;
  place.device_type = test_device();
  EXPECT_OK(fsdp2_mesh_create_in(mesh, &place, &halves));
  tiny_turn = rank;
  for (i = 0; i < 2; ++i) {
    const fsdp2_module module = tiny_model();
    const fsdp2_shard shard = shard_with_small_mlps(module, mesh, halves, /*by_rule=*/i);
    expect_units(shard,
                 "|model.layers.0|model.layers.0.mlp|model.layers.1|model.layers.1.mlp"
                 "|model.layers.2|model.layers.2.mlp");
    EXPECT(unit_of(shard, "model.layers.1.mlp").compute_dtype == FSDP2_DTYPE_BF16);
    EXPECT(unit_of(shard, "model.layers.1").compute_dtype == FSDP2_DTYPE_F32);
    EXPECT(parameter_of(shard, "model.layers.1.mlp.up_proj.weight").shard_ranks == 2);
    EXPECT(parameter_of(shard, "model.layers.1.mlp.up_proj.weight").replica_ranks == 2);
    EXPECT(parameter_of(shard, "lm_head.weight").shard_ranks == 4);
    EXPECT(parameter_of(shard, "lm_head.weight").replica_ranks == 1);
    results[i] = tiny_step(module, shard);
    destroy_tiny(module, shard);
  }
  EXPECT(results[0].loss == results[1].loss && results[0].norm == results[1].norm);
  EXPECT_OK(fsdp2_mesh_all_reduce(mesh, &results[0].loss, 1, FSDP2_REDUCE_AVERAGE));
  EXPECT_NEAR(results[0].loss, reference.loss, 1e-2);
  EXPECT_NEAR(results[0].norm, reference.norm, 5e-2);
  EXPECT_OK(fsdp2_mesh_destroy(halves));
}
static void a_rule_has_options_and_a_mesh_of_its_own(void) {
  reference = tiny_on_one_rank_for(4);
  on_ranks("rules", 4, 0, wrap_by_rule_and_by_hand);
}

static void a_rule_that_selects_nothing_is_told(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  options.wrap = FSDP2_WRAP_NONE;
  EXPECT_STATUS(fsdp2_shard_make_units(module, mesh, &options), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("no unit was made");
  EXPECT_OK(fsdp2_shard_make_units(module, mesh, NULL));
  EXPECT_STATUS(fsdp2_shard_make_units(module, mesh, NULL), FSDP2_E_WRONG_STATE);
  destroy_tiny(module, shard_with(module, mesh, &options));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void ignored_parameters_are_left_alone(void) {
  static const char* const names[1] = {"model.norm.weight"};
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_shard shard;
  size_t count = 0;
  options.ignored_names = names;
  options.n_ignored_names = 1;
  shard = shard_with(module, mesh, &options);
  EXPECT_OK(fsdp2_shard_get_parameter_count(shard, &count));
  EXPECT(count == kTinyParameters - 1);
  EXPECT_STATUS(fsdp2_shard_get_parameter_index(shard, names[0], &count), FSDP2_E_NOT_FOUND);
  EXPECT(isfinite(tiny_step(module, shard).loss));
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

int main(void) {
  RUN(options_say_which_modules_are_units);
  RUN(modules_are_sharded_by_hand_bottom_up);
  RUN(a_rule_has_options_and_a_mesh_of_its_own);
  RUN(a_rule_that_selects_nothing_is_told);
  RUN(ignored_parameters_are_left_alone);
  return harness_result();
}
