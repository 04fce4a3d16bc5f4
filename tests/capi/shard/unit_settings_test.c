/* What has been set about units can be read, and be restored. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/tiny_model.h"

static const char kLayer[] = "model.layers.1";

static fsdp2_unit_settings settings_of(fsdp2_shard shard, const char* unit) {
  fsdp2_unit_settings settings;
  memset(&settings, 0xa5, sizeof(settings));
  settings.struct_size = (uint32_t)sizeof(settings);
  EXPECT_OK(fsdp2_shard_get_unit_settings(shard, unit, &settings));
  return settings;
}

static void expect_settings(fsdp2_shard shard, const char* unit, fsdp2_unit_settings expected) {
  const fsdp2_unit_settings found = settings_of(shard, unit);
  EXPECT(memcmp(&found, &expected, sizeof(found)) == 0);
}

static int32_t is_last_backward(fsdp2_shard shard) {
  int32_t flag = -1;
  EXPECT_OK(fsdp2_shard_get_is_last_backward(shard, &flag));
  return flag;
}

static const fsdp2_unit_settings kBegin = {
    (uint32_t)sizeof(kBegin), 1, 1, FSDP2_RESHARD_AUTO, 1, 1, 0, 0, 0.0, 0, 0};

static void change_one_by_one(fsdp2_shard shard) {
  fsdp2_unit_settings expected = kBegin;
  EXPECT_OK(fsdp2_shard_set_requires_gradient_sync(shard, kLayer, 0, 0));
  expected.requires_gradient_sync = expected.requires_all_reduce = 0; /* it sets both */
  expect_settings(shard, kLayer, expected);
  EXPECT_OK(fsdp2_shard_set_requires_all_reduce(shard, kLayer, 1, 0));
  expected.requires_all_reduce = 1;
  expect_settings(shard, kLayer, expected);
  EXPECT_OK(fsdp2_shard_set_reshard_after_forward(shard, kLayer, 0, 0));
  expected.reshard_after_forward = FSDP2_RESHARD_NEVER;
  expect_settings(shard, kLayer, expected);
  EXPECT_OK(fsdp2_shard_set_reshard_after_forward(shard, kLayer, 1, 0));
  expected.reshard_after_forward = FSDP2_RESHARD_ALWAYS;
  expect_settings(shard, kLayer, expected);
  EXPECT_OK(fsdp2_shard_set_reshard_after_backward(shard, kLayer, 0, 0));
  expected.reshard_after_backward = 0;
  expect_settings(shard, kLayer, expected);
  EXPECT_OK(fsdp2_shard_set_unshard_in_backward(shard, kLayer, 0));
  expected.unshard_in_backward = 0;
  expect_settings(shard, kLayer, expected);
  EXPECT_OK(fsdp2_shard_set_reduce_unused_parameters(shard, kLayer, 1, 0));
  expected.reduce_unused_parameters = 1;
  expect_settings(shard, kLayer, expected);
  EXPECT_OK(fsdp2_shard_set_force_sum_reduction(shard, kLayer, 1));
  expected.force_sum_reduction = 1;
  expect_settings(shard, kLayer, expected);
  EXPECT_OK(fsdp2_shard_set_gradient_divide_factor(shard, kLayer, 2.5));
  expected.gradient_divide_factor = 2.5;
  expect_settings(shard, kLayer, expected);
  EXPECT_OK(fsdp2_shard_set_allocate_memory_from_process_group(shard, kLayer, 1)); /* of one rank */
  expected.allocate_memory_from_process_group = 1;
  expect_settings(shard, kLayer, expected);
}

static void every_setting_is_told_as_it_was_set(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_unit_settings before, changed;
  expect_settings(shard, NULL, kBegin);
  expect_settings(shard, kLayer, kBegin);
  before = settings_of(shard, kLayer);
  change_one_by_one(shard);
  expect_settings(shard, NULL, kBegin); /* the others are as they were */
  expect_settings(shard, "model.layers.0", kBegin);
  changed = settings_of(shard, kLayer);
  EXPECT_OK(fsdp2_shard_set_unit_settings(shard, kLayer, &before));
  expect_settings(shard, kLayer, before);
  EXPECT_OK(fsdp2_shard_set_unit_settings(shard, "", &changed));
  expect_settings(shard, NULL, changed);
  EXPECT_OK(fsdp2_shard_set_reshard_after_forward(shard, NULL, 0, 1));
  EXPECT(settings_of(shard, kLayer).reshard_after_forward == FSDP2_RESHARD_NEVER);
  EXPECT(is_last_backward(shard) == 1);
  EXPECT_OK(fsdp2_shard_set_is_last_backward(shard, 0));
  EXPECT(is_last_backward(shard) == 0);
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

/* ---- what units do */

static int32_t state_after_forward(fsdp2_module module, fsdp2_shard shard) {
  int32_t state;
  EXPECT_OK(fsdp2_tensor_destroy(tiny_loss(module, 0)));
  state = unit_of(shard, kLayer).state;
  EXPECT_OK(fsdp2_shard_reset(shard));
  return state;
}

static void restore_in_slices(fsdp2_mesh mesh, int rank) {
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_module module = tiny_model();
  fsdp2_shard shard;
  fsdp2_unit_settings before;
  double norm;
  (void)rank;
  options.reshard_after_forward = 2;
  shard = shard_with(module, mesh, &options);
  norm = tiny_step(module, shard).norm;
  EXPECT(state_after_forward(module, shard) == FSDP2_UNIT_SLICED);
  before = settings_of(shard, kLayer);
  EXPECT_OK(fsdp2_shard_set_reshard_after_forward(shard, kLayer, 0, 0));
  EXPECT_OK(fsdp2_shard_set_gradient_divide_factor(shard, kLayer, 1e-3));
  EXPECT(state_after_forward(module, shard) == FSDP2_UNIT_UNSHARDED);
  EXPECT(tiny_step(module, shard).norm > 2 * norm);
  EXPECT_OK(fsdp2_shard_set_unit_settings(shard, kLayer, &before));
  EXPECT(state_after_forward(module, shard) == FSDP2_UNIT_SLICED);
  EXPECT(tiny_step(module, shard).norm == norm);
  destroy_tiny(module, shard);
}
static void restored_units_do_what_they_did_before(void) {
  on_ranks("restored", 4, 0, restore_in_slices);
}

/* Ranks as threads have none. */
static void refuse_memory_of_groups(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_unit_settings settings = kBegin;
  double norm;
  (void)rank;
  EXPECT_OK(fsdp2_shard_set_allocate_memory_from_process_group(shard, kLayer, 0));
  EXPECT_STATUS(fsdp2_shard_set_allocate_memory_from_process_group(shard, kLayer, 1),
                FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("unit 'model.layers.1': allocate_memory_from_process_group: group ");
  EXPECT_MESSAGE(" over thread, which has no memory of its own to give");
  settings.allocate_memory_from_process_group = 1;
  settings.unshard_in_backward = settings.reshard_after_backward = 0;
  EXPECT_STATUS(fsdp2_shard_set_unit_settings(shard, kLayer, &settings), FSDP2_E_UNSUPPORTED);
  expect_settings(shard, kLayer, kBegin); /* nothing of them */
  norm = tiny_step(module, shard).norm;
  EXPECT(norm > 0);
  destroy_tiny(module, shard);
}
static void groups_without_memory_are_named(void) {
  on_ranks("memory", 2, 0, refuse_memory_of_groups);
}

/* ---- prefetch lists */

typedef fsdp2_status (*get_prefetch)(fsdp2_shard shard, const char* unit, size_t* units, size_t cap,
                                     size_t* needed);
typedef fsdp2_status (*set_prefetch)(fsdp2_shard shard, const char* unit, const char* const* units,
                                     size_t n_units);

/* Keeps a list by its units' names, empties it, and sets it again. */
static void keep_and_restore(fsdp2_shard shard, get_prefetch get, set_prefetch set) {
  static const char* const ahead[2] = {"model.layers.2", "model.layers.0"};
  char names[2][64];
  const char* kept[2] = {names[0], names[1]};
  size_t units[2] = {77, 77}, needed = 77, i;
  EXPECT_OK(get(shard, kLayer, NULL, 0, &needed));
  EXPECT(needed == 0);
  EXPECT_OK(set(shard, kLayer, ahead, 2));
  EXPECT_STATUS(get(shard, kLayer, units, 1, &needed), FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(needed == 2 && units[0] == 77);
  EXPECT_OK(get(shard, NULL, units, 2, &needed));
  EXPECT(needed == 0 && units[0] == 77);
  EXPECT_OK(get(shard, kLayer, units, 2, &needed));
  EXPECT(needed == 2 && units[0] == 3 && units[1] == 1); /* 0 is the root */
  for (i = 0; i < 2; ++i) {
    EXPECT_OK(fsdp2_shard_get_unit_name(shard, units[i], names[i], sizeof(names[i]), &needed));
  }
  EXPECT_OK(set(shard, kLayer, NULL, 0));
  EXPECT_OK(get(shard, kLayer, NULL, 0, &needed));
  EXPECT(needed == 0);
  EXPECT_OK(set(shard, kLayer, kept, 2));
  units[0] = units[1] = 77;
  EXPECT_OK(get(shard, kLayer, units, 2, &needed));
  EXPECT(needed == 2 && units[0] == 3 && units[1] == 1);
}

static void prefetch_lists_are_told_in_their_order(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  size_t needed = 77;
  keep_and_restore(shard, fsdp2_shard_get_forward_prefetch, fsdp2_shard_set_forward_prefetch);
  EXPECT_OK(fsdp2_shard_get_backward_prefetch(shard, kLayer, NULL, 0, &needed));
  EXPECT(needed == 0); /* a list of its own */
  keep_and_restore(shard, fsdp2_shard_get_backward_prefetch, fsdp2_shard_set_backward_prefetch);
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

/* ---- what is no unit, or has nothing to set */

static void a_unit_without_parameters_has_no_settings(void) {
  static const char* const norm[1] = {"model.norm"};
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  fsdp2_shard shard;
  fsdp2_unit_settings settings = kBegin;
  size_t needed = 77;
  options.wrap_head = options.wrap_embeddings = 1;
  options.wrap_names = norm;
  options.n_wrap_names = 1;
  shard = shard_with(module, mesh, &options);
  EXPECT(unit_of(shard, NULL).n_parameters == 0);
  settings.reshard_after_backward = 0;
  EXPECT_OK(fsdp2_shard_set_unit_settings(shard, NULL, &settings));
  expect_settings(shard, NULL, kBegin);
  EXPECT_OK(fsdp2_shard_get_forward_prefetch(shard, NULL, NULL, 0, &needed));
  EXPECT(needed == 0);
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void what_is_no_unit_is_refused(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_unit_settings settings = kBegin, mixed = kBegin;
  size_t units[2], needed = 77;
  settings.gradient_divide_factor = 9.0;
  EXPECT_STATUS(fsdp2_shard_get_unit_settings(shard, "model.layers.3", &settings),
                FSDP2_E_NOT_FOUND);
  EXPECT_STATUS(fsdp2_shard_get_unit_settings(shard, "lm_head", &settings),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT(settings.gradient_divide_factor == 9.0);
  EXPECT_STATUS(fsdp2_shard_set_unit_settings(shard, "lm_head", &settings),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_shard_get_forward_prefetch(shard, "lm_head", units, 2, &needed),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_shard_get_backward_prefetch(shard, "model.x", units, 2, &needed),
                FSDP2_E_NOT_FOUND);
  EXPECT(needed == 77);
  mixed.requires_gradient_sync = 0;
  mixed.reshard_after_forward = 2;
  EXPECT_STATUS(fsdp2_shard_set_unit_settings(shard, kLayer, &mixed), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("settings.reshard_after_forward: expected FSDP2_RESHARD_AUTO (0)");
  mixed = kBegin;
  mixed.requires_gradient_sync = 0;
  mixed.force_sum_reduction = 2;
  EXPECT_STATUS(fsdp2_shard_set_unit_settings(shard, kLayer, &mixed), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("settings.force_sum_reduction: expected 0 or 1, found 2");
  expect_settings(shard, kLayer, kBegin); /* nothing of them */
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

int main(void) {
  RUN(every_setting_is_told_as_it_was_set);
  RUN(restored_units_do_what_they_did_before);
  RUN(groups_without_memory_are_named);
  RUN(prefetch_lists_are_told_in_their_order);
  RUN(a_unit_without_parameters_has_no_settings);
  RUN(what_is_no_unit_is_refused);
  return harness_result();
}
