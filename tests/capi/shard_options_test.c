/* Every way to shard a module: the units it gives, the same loss and gradients, and the bad input
 * that is told. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/tiny_model.h"

/* What one rank computes of the tokens of so many. */
static struct tiny_result reference[5];

/* ---- units */

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
  EXPECT_OK(fsdp2_shard_modules(module, mesh, first, 1, NULL));
  EXPECT_OK(fsdp2_shard_modules(module, mesh, two, 3, NULL));
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
    EXPECT_OK(fsdp2_shard_modules(module, halves, names + i, 1, &options));
  }
  if (by_rule) {
    options.wrap = FSDP2_WRAP_KINDS;
    options.wrap_kinds = kinds;
    options.n_wrap_kinds = 1;
    EXPECT_OK(fsdp2_shard_wrap(module, halves, &options));
  }
  return shard_with(module, mesh, NULL);
}

static void wrap_by_rule_and_by_hand(fsdp2_mesh mesh, int rank) {
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  struct tiny_result results[2];
  fsdp2_mesh halves = {0};
  int i;
  place.fsdp_size = 2;
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
  EXPECT_NEAR(results[0].loss, reference[4].loss, 1e-2);
  EXPECT_NEAR(results[0].norm, reference[4].norm, 5e-2);
  EXPECT_OK(fsdp2_mesh_destroy(halves));
}
static void a_rule_has_options_and_a_mesh_of_its_own(void) {
  reference[4] = tiny_on_one_rank_for(4);
  on_ranks("rules", 4, 0, wrap_by_rule_and_by_hand);
}

static void a_rule_that_selects_nothing_is_told(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  options.wrap = FSDP2_WRAP_NONE;
  EXPECT_STATUS(fsdp2_shard_wrap(module, mesh, &options), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("no unit was made");
  EXPECT_OK(fsdp2_shard_wrap(module, mesh, NULL));
  EXPECT_STATUS(fsdp2_shard_wrap(module, mesh, NULL), FSDP2_E_WRONG_STATE);
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

/* ---- the same numbers */

static fsdp2_status last_dim_of_matrices(const char* name, const int64_t* shape, size_t n_dims,
                                         int32_t* out, void* user_data) {
  (void)name, (void)shape;
  *out = n_dims == 2 ? -1 : 0;
  ++*(int*)user_data;
  return FSDP2_OK;
}

static void expect_same_step(fsdp2_mesh mesh, const fsdp2_shard_options* options,
                             const char* what) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_with(module, mesh, options);
  const fsdp2_mesh_info place = place_of(mesh);
  const struct tiny_result* expected = &reference[place.world_size];
  int i;
  tiny_turn = place.rank; /* or a wrong average would not show */
  for (i = 0; i < 2; ++i) {
    struct tiny_result result = tiny_step(module, shard);
    EXPECT_OK(fsdp2_mesh_all_reduce(mesh, &result.loss, 1, FSDP2_REDUCE_AVERAGE));
    if (!EXPECT_NEAR(result.loss, expected->loss, 1e-6) ||
        !EXPECT_NEAR(result.norm, expected->norm, 1e-5)) {
      fprintf(stderr, "  with %s, step %d\n", what, i);
    }
  }
  destroy_tiny(module, shard);
}

static void shard_in_every_way(fsdp2_mesh mesh, int rank) {
  const fsdp2_shard_options plain = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_shard_options options = plain;
  const fsdp2_mesh_info place = place_of(mesh);
  int asked = 0;
  (void)rank;
  expect_same_step(mesh, NULL, "defaults");
#define WITH(field, value) \
  options = plain;         \
  options.field = (value); \
  expect_same_step(mesh, &options, #field " = " #value)
  WITH(reshard_after_forward, FSDP2_RESHARD_ALWAYS);
  WITH(reshard_after_forward, FSDP2_RESHARD_NEVER);
  WITH(comm_path, FSDP2_COMM_PATH_DIRECT);
  WITH(comm_path, FSDP2_COMM_PATH_PACKED);
  WITH(comm_schedule, FSDP2_COMM_SCHEDULE_ON_USE);
  WITH(prefetch, -1);
  WITH(prefetch, 3);
  WITH(load_from_rank0, 1);
  WITH(wrap, FSDP2_WRAP_NONE);
  WITH(modules_per_unit, 2);
  WITH(wrap_embeddings, 1);
  WITH(wrap_head, 1);
  WITH(wrap_min_numel, 500);
  options = plain;
  options.cpu_offload = options.no_pin_memory = 1;
  expect_same_step(mesh, &options, "cpu_offload");
  options = plain;
  options.shard_dim = last_dim_of_matrices;
  options.shard_dim_user_data = &asked;
  expect_same_step(mesh, &options, "shard_dim");
  EXPECT(asked == kTinyParameters);
  if (place.shape[place.n_dims - 1] % 2 == 0) {
    WITH(reshard_after_forward, 2);
  }
#undef WITH
}

static void all_ways_give_the_same_loss_and_gradients(void) {
  int ranks;
  for (ranks = 1; ranks <= 4; ++ranks) {
    reference[ranks] = tiny_on_one_rank_for(ranks);
    EXPECT(reference[ranks].loss > 1.0 && reference[ranks].norm > 0.0);
  }
  EXPECT(reference[1].norm > reference[2].norm * 1.01); /* the ranks' gradients differ */
  on_ranks("ways-1", 1, 0, shard_in_every_way);
  on_ranks("ways-2", 2, 0, shard_in_every_way);
  on_ranks("ways-4", 4, 0, shard_in_every_way);
  on_ranks("ways-hybrid", 4, 2, shard_in_every_way);
}

/* ---- where parameters are */

static void look_at_parameters(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_parameter_info info;
  fsdp2_mesh own = {0};
  fsdp2_shard shard;
  int asked = 0, same = 0;
  options.shard_dim = last_dim_of_matrices;
  options.shard_dim_user_data = &asked;
  shard = shard_with(module, mesh, &options);
  info = parameter_of(shard, "lm_head.weight"); /* [32, 16] */
  EXPECT(info.shard_dim == 1 && info.shard_ranks == 2 && info.replica_ranks == 2);
  EXPECT(info.shape[0] == 32 && info.shape[1] == 16 && info.unit == 0);
  EXPECT(info.local_shape[0] == 32 && info.local_shape[1] == 8);
  EXPECT(info.local_offset == 8 * (rank % 2));
  info = parameter_of(shard, "model.layers.1.input_layernorm.weight");
  EXPECT(info.shard_dim == 0 && info.local_shape[0] == 8 && info.unit == 2);
  EXPECT(unit_of(shard, "model.layers.1").shard_dim == -1);
  EXPECT_OK(fsdp2_shard_get_mesh(shard, &own));
  EXPECT_OK(fsdp2_mesh_is_equal(own, mesh, &same));
  EXPECT(same == 1);
  EXPECT_OK(fsdp2_mesh_destroy(own));
  destroy_tiny(module, shard);
}
static void parameters_tell_their_placements(void) {
  on_ranks("placements", 4, 2, look_at_parameters);
}

/* ---- values that come later */

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

/* A partial state gives the norm alone its values. */
static void forward_after_a_partial_state(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_load_options loading = FSDP2_LOAD_OPTIONS_INIT;
  const int64_t shape[2] = {1, 2}, width[1] = {kTinyWidth}, values[2] = {1, 2};
  const float ones[kTinyWidth] = {1.0f};
  const fsdp2_tensor tokens = int64_tensor(values, shape, 2);
  fsdp2_tensor logits = {0}, norm = {0};
  fsdp2_state state = {0};
  fsdp2_shard shard;
  size_t n = 0;
  (void)rank;
  options.defer_values = 1;
  shard = shard_with(module, mesh, &options);
  EXPECT_OK(fsdp2_tensor_from_buffer(ones, sizeof(ones), FSDP2_DTYPE_F32, width, 1, &norm));
  EXPECT_OK(fsdp2_state_create(mesh, &state));
  EXPECT_OK(fsdp2_state_add_tensor(state, "model.model.norm.weight", NULL, NULL, 0, norm));
  loading.partial = 1;
  EXPECT_OK(fsdp2_checkpoint_set_state(shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                       (fsdp2_loader){0}, state, &loading));
  EXPECT_STATUS(fsdp2_module_forward(module, &tokens, 1, 0, &logits, 1, &n), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("the parameters model.embed_tokens.weight, lm_head.weight, model.layers.0");
  EXPECT_OK(fsdp2_mesh_barrier(mesh)); /* nothing was sent: the mesh goes on */
  EXPECT_OK(fsdp2_shard_load_values(shard));
  EXPECT_OK(fsdp2_module_forward(module, &tokens, 1, 0, &logits, 1, &n));
  EXPECT_OK(fsdp2_tensor_destroy(logits));
  EXPECT_OK(fsdp2_tensor_destroy(norm));
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  EXPECT_OK(fsdp2_state_destroy(state));
  destroy_tiny(module, shard);
}
static void values_that_a_partial_load_left_out_are_named(void) {
  on_ranks("left-out-1", 1, 0, forward_after_a_partial_state);
  on_ranks("left-out", 2, 0, forward_after_a_partial_state);
}

/* ---- strategies */

static void shard_by_strategy(const char* name, int64_t fsdp_size, int32_t n_dims, int64_t shards,
                              int32_t reshard) {
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  fsdp2_mesh_info info;
  place.backend = FSDP2_BACKEND_FAKE;
  place.world_size = 4;
  EXPECT_OK(fsdp2_shard_apply_strategy(name, fsdp_size, &place, &options));
  EXPECT(options.reshard_after_forward == reshard);
  EXPECT_OK(fsdp2_mesh_create(&place, &mesh));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_mesh_get_info(mesh, &info));
  if (!EXPECT(info.n_dims == n_dims && info.shape[n_dims - 1] == shards)) {
    fprintf(stderr, "  with %s\n", name);
  }
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void older_strategies_have_their_meshes(void) {
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  shard_by_strategy("FULL_SHARD", 0, 1, 4, FSDP2_RESHARD_AUTO);
  shard_by_strategy("shard_grad_op", 0, 1, 4, FSDP2_RESHARD_NEVER);
  shard_by_strategy("NO_SHARD", 0, 2, 1, FSDP2_RESHARD_AUTO);
  shard_by_strategy("HYBRID_SHARD", 2, 2, 2, FSDP2_RESHARD_AUTO);
  shard_by_strategy("_HYBRID_SHARD_ZERO2", 2, 2, 2, FSDP2_RESHARD_NEVER);
  EXPECT_STATUS(fsdp2_shard_apply_strategy("ZERO3", 0, &place, &options), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("HYBRID_SHARD_ZERO2");
}

static void shard_without_shards(fsdp2_mesh mesh, int rank) {
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh replicas = {0};
  (void)rank;
  place.fsdp_size = -1;
  EXPECT_OK(fsdp2_mesh_create_in(mesh, &place, &replicas));
  expect_same_step(replicas, NULL, "NO_SHARD");
  EXPECT_OK(fsdp2_mesh_destroy(replicas));
}
static void replicas_alone_give_the_same_step(void) {
  on_ranks("replicas", 2, 0, shard_without_shards);
}

/* ---- bad input */

static void modules_refused(fsdp2_module module, fsdp2_mesh mesh, const char* name,
                            fsdp2_status expected, const char* part) {
  EXPECT_STATUS(fsdp2_shard_modules(module, mesh, &name, 1, NULL), expected);
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
  EXPECT_OK(fsdp2_shard_modules(module, mesh, &name, 1, NULL));
  modules_refused(module, mesh, "model", FSDP2_E_WRONG_STATE, "already sharded");
  modules_refused(module, mesh, "model.layers.1", FSDP2_E_WRONG_STATE,
                  "children before their parents");
  EXPECT_STATUS(fsdp2_module_forward(module, &none, 0, 0, &out, 1, &n), FSDP2_E_INVALID_ARGUMENT);
  shard = shard_with(module, mesh, NULL);
  name = "lm_head";
  EXPECT_STATUS(fsdp2_shard_modules(module, mesh, &name, 1, NULL), FSDP2_E_WRONG_STATE);
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
  EXPECT_OK(fsdp2_shard_modules(module, mesh, &name, 1, NULL));
  EXPECT_STATUS(fsdp2_module_forward(module, &tokens, 1, 0, &out, 1, &n), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("fsdp2_shard_create");
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void a_split_tie_is_refused(void) {
  static const char* const embedding[1] = {"model.embed_tokens"};
  const fsdp2_mesh mesh = lone_mesh();
  fsdp2_module module = {0};
  fsdp2_shard shard = {5};
  EXPECT_OK(fsdp2_module_from_config(TINY_CONFIG("true"), NULL, &module));
  EXPECT_OK(fsdp2_shard_modules(module, mesh, embedding, 1, NULL));
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, NULL, &shard), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("model.embed_tokens.weight = lm_head.weight");
  EXPECT_MESSAGE("one list");
  EXPECT(shard.id == 5);
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static fsdp2_status a_dim_too_many(const char* name, const int64_t* shape, size_t n_dims,
                                   int32_t* out, void* user_data) {
  (void)shape, (void)user_data;
  *out = strcmp(name, "model.layers.2.mlp.up_proj.weight") == 0 ? (int32_t)n_dims : 0;
  return FSDP2_OK;
}

static fsdp2_status no_dim(const char* name, const int64_t* shape, size_t n_dims, int32_t* out,
                           void* user_data) {
  (void)name, (void)shape, (void)n_dims, (void)out, (void)user_data;
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
  options_refused(module, mesh, &options, FSDP2_E_UNSUPPORTED, "pin");
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
static void refusals_are_the_same_on_all_ranks(void) { on_ranks("uneven", 3, 0, shard_unevenly); }

int main(void) {
  RUN(options_say_which_modules_are_units);
  RUN(modules_are_sharded_by_hand_bottom_up);
  RUN(a_rule_has_options_and_a_mesh_of_its_own);
  RUN(a_rule_that_selects_nothing_is_told);
  RUN(ignored_parameters_are_left_alone);
  RUN(all_ways_give_the_same_loss_and_gradients);
  RUN(parameters_tell_their_placements);
  RUN(values_can_be_deferred);
  RUN(values_that_a_partial_load_left_out_are_named);
  RUN(older_strategies_have_their_meshes);
  RUN(replicas_alone_give_the_same_step);
  RUN(modules_that_cannot_be_sharded_are_told_by_name);
  RUN(a_half_sharded_module_does_not_run);
  RUN(a_split_tie_is_refused);
  RUN(options_that_cannot_be_are_told_and_change_nothing);
  RUN(meshes_that_cannot_be_sharded_over_are_told);
  RUN(refusals_are_the_same_on_all_ranks);
  return harness_result();
}
