/* Every way to shard a module gives the same loss and gradients; where its parameters are. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/same_step.h"

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
  WITH(keep_buffers, 1);
  WITH(one_communicator, 1);
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

int main(void) {
  RUN(all_ways_give_the_same_loss_and_gradients);
  RUN(parameters_tell_their_placements);
  RUN(older_strategies_have_their_meshes);
  RUN(replicas_alone_give_the_same_step);
  return harness_result();
}
