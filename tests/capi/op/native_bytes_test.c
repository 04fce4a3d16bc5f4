/* How much memory is behind a handle, for garbage collectors that see eight bytes. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/tiny_model.h"

static fsdp2_module_info info_of(fsdp2_module module) {
  fsdp2_module_info info;
  memset(&info, 0xa5, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_module_get_info(module, &info));
  return info;
}

static int64_t bytes_of(fsdp2_module module) { return info_of(module).n_bytes; }

static void expect_bytes(fsdp2_module module, int64_t expected) {
  const int64_t found = bytes_of(module);
  if (!EXPECT(found == expected)) {
    fprintf(stderr, "  expected %lld bytes, found %lld\n", (long long)expected, (long long)found);
  }
}

/* What this rank's shards take, with padding. */
static int64_t sharded_bytes(fsdp2_shard shard) {
  size_t count = 0, i;
  int64_t bytes = 0;
  EXPECT_OK(fsdp2_shard_get_unit_count(shard, &count));
  for (i = 0; i < count; ++i) {
    fsdp2_unit_info unit;
    unit.struct_size = (uint32_t)sizeof(unit);
    EXPECT_OK(fsdp2_shard_get_unit_info(shard, i, &unit));
    bytes += unit.sharded_bytes;
  }
  return bytes;
}

static void a_module_takes_what_its_values_and_gradients_take(void) {
  const fsdp2_module module = tiny_model();
  const int64_t bytes = 4 * info_of(module).numel;
  expect_bytes(module, 0); /* no values yet */
  tiny_backward(module);
  expect_bytes(module, 2 * bytes);
  EXPECT_OK(fsdp2_module_zero_grad(module));
  expect_bytes(module, bytes);
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void count_on_a_rank(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  const int64_t shards = sharded_bytes(shard);
  const int64_t layer = unit_of(shard, "model.layers.1").unsharded_bytes;
  (void)rank;
  EXPECT(2 * shards >= 4 * info_of(module).numel);
  expect_bytes(module, shards);
  EXPECT_OK(fsdp2_shard_unshard(shard, "model.layers.1", 0));
  expect_bytes(module, shards + layer);
  EXPECT_OK(fsdp2_shard_reshard(shard, "model.layers.1"));
  expect_bytes(module, shards);
  /* Reduced gradients, then unreduced ones, which are whole on every rank. */
  tiny_backward(module);
  EXPECT(bytes_of(module) >= 2 * shards && bytes_of(module) < 3 * shards);
  EXPECT_OK(fsdp2_shard_zero_grad(shard));
  expect_bytes(module, shards);
  EXPECT_OK(fsdp2_shard_set_requires_gradient_sync(shard, NULL, 0, 1));
  tiny_backward(module);
  EXPECT(bytes_of(module) >= 3 * shards);
  EXPECT_OK(fsdp2_module_zero_grad(module));
  expect_bytes(module, shards);
  destroy_tiny(module, shard);
}
static void a_rank_takes_its_shards_and_what_is_gathered(void) {
  on_ranks("bytes", 2, 0, count_on_a_rank);
}

static void ignored_parameters_and_units_by_hand_count(void) {
  static const char* const layer[1] = {"model.layers.0"};
  static const char* const ignored[1] = {"model.norm.weight"};
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  fsdp2_shard shard;
  EXPECT_OK(fsdp2_shard_make_unit(module, mesh, layer, 1, NULL));
  expect_bytes(module, 0);
  options.ignored_names = ignored;
  options.n_ignored_names = 1;
  shard = shard_with(module, mesh, &options);
  expect_bytes(module, 4 * info_of(module).numel);
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static fsdp2_status forward_of_none(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                                    size_t n_inputs, fsdp2_tensor* outputs, size_t cap,
                                    size_t* n_outputs, void* user_data) {
  (void)info;
  (void)user_data;
  (void)n_inputs;
  (void)cap;
  outputs[0] = inputs[0];
  *n_outputs = 1;
  return FSDP2_OK;
}

static void buffers_count(void) {
  static const int64_t shape[1] = {3}, values[3] = {1, 2, 3};
  const fsdp2_tensor table = int64_tensor(values, shape, 1);
  fsdp2_module module = {0};
  EXPECT_OK(fsdp2_module_create_custom("Table", NULL, forward_of_none, NULL, NULL, &module));
  expect_bytes(module, 0);
  EXPECT_OK(fsdp2_module_add_buffer(module, "kept", table, 0));
  EXPECT_OK(fsdp2_module_add_buffer(module, "transient", table, FSDP2_BUFFER_NOT_PERSISTENT));
  expect_bytes(module, 2 * (int64_t)sizeof(values));
  EXPECT_OK(fsdp2_tensor_destroy(table));
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void values_that_come_later_take_nothing_before(fsdp2_mesh mesh, int rank) {
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_module module = tiny_model();
  fsdp2_shard shard;
  (void)rank;
  options.defer_values = 1;
  shard = shard_with(module, mesh, &options);
  expect_bytes(module, 0);
  expect_bytes(module, 0); /* and asking allocates nothing */
  EXPECT_OK(fsdp2_shard_load_values(shard));
  expect_bytes(module, sharded_bytes(shard));
  destroy_tiny(module, shard);
}
static void deferred_values_take_nothing(void) {
  on_ranks("deferred-bytes", 2, 0, values_that_come_later_take_nothing_before);
}

/* ---- states */

static fsdp2_state_info state_info_of(fsdp2_state state) {
  fsdp2_state_info info;
  memset(&info, 0xa5, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_state_get_info(state, &info));
  return info;
}

static void count_a_state(fsdp2_mesh mesh, int rank) {
  const int64_t values[3] = {1, 2, 3}, whole[1] = {5}, one[1] = {rank == 0 ? 3 : 2};
  const int64_t at[1] = {rank == 0 ? 0 : 3};
  const fsdp2_tensor chunk = int64_tensor(values, one, 1);
  fsdp2_state state = {0}, full = {0};
  fsdp2_state_info info;
  EXPECT_OK(fsdp2_state_create(mesh, &state));
  info = state_info_of(state);
  EXPECT(info.struct_size == sizeof(info));
  EXPECT(info.n_tensors == 0 && info.n_values == 0 && info.n_bytes == 0 && info.reserved == 0);
  EXPECT_OK(fsdp2_state_add_tensor(state, "a", whole, at, 1, chunk));
  EXPECT_OK(fsdp2_state_add_value(state, "b", "[1, 2, 3]"));
  EXPECT_OK(fsdp2_state_add_value(state, "c", "\"a text\""));
  info = state_info_of(state);
  EXPECT(info.n_tensors == 1 && info.n_values == 2);
  EXPECT(info.n_bytes == 8 * one[0]);
  EXPECT_OK(fsdp2_state_gather(state, 1, &full));
  EXPECT(state_info_of(full).n_bytes == (rank == 0 ? 8 * 5 : 0));
  EXPECT_OK(fsdp2_state_destroy(full));
  EXPECT_OK(fsdp2_state_destroy(state));
  EXPECT_OK(fsdp2_tensor_destroy(chunk));
}
static void a_state_takes_what_its_chunks_take(void) { on_ranks("state", 2, 0, count_a_state); }

int main(void) {
  use_test_device();
  RUN(a_module_takes_what_its_values_and_gradients_take);
  RUN(a_rank_takes_its_shards_and_what_is_gathered);
  RUN(ignored_parameters_and_units_by_hand_count);
  RUN(buffers_count);
  RUN(deferred_values_take_nothing);
  RUN(a_state_takes_what_its_chunks_take);
  return harness_result();
}
