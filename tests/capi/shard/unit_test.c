/* What may be changed about the units of a shard while it is in use, what is done with them by
 * hand, and what they tell. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/tiny_model.h"

static struct tiny_result one_rank;

/* ---- events */

/* "A model.layers.0 U model.layers.0 ...", the root as "-" and layers by their number. */
static const char* events_of(fsdp2_shard shard) {
  static _Thread_local char text[4096];
  static const char kLetters[] = "AURSP";
  int32_t kinds[512];
  size_t units[512];
  char name[256];
  size_t n = 0, needed = 0, i;
  text[0] = '\0';
  EXPECT_OK(fsdp2_shard_get_events(shard, NULL, NULL, 0, &n));
  EXPECT_OK(fsdp2_shard_get_events(shard, kinds, units, 512, &needed));
  EXPECT(n == needed);
  for (i = 0; i < needed; ++i) {
    EXPECT_OK(fsdp2_shard_get_unit_name(shard, units[i], name, sizeof(name), &n));
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%c%s", i == 0 ? "" : " ",
             kLetters[kinds[i]], name[0] == '\0' ? "-" : name + strlen("model.layers."));
  }
  return text;
}

static void expect_events(fsdp2_shard shard, const char* expected) {
  const char* found = events_of(shard);
  if (!EXPECT(strcmp(found, expected) == 0)) {
    fprintf(stderr, "  expected %s\n  found    %s\n", expected, found);
  }
  EXPECT_OK(fsdp2_shard_clear_events(shard));
}

static fsdp2_shard shard_on_use(fsdp2_module module, fsdp2_mesh mesh) {
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  options.comm_schedule = FSDP2_COMM_SCHEDULE_ON_USE;
  return shard_with(module, mesh, &options);
}

static void log_a_step(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_on_use(module, mesh);
  static const char *const ahead[1] = {"model.layers.2"}, *const back[1] = {"model.layers.0"};
  int32_t kind = 0;
  size_t unit = 0, needed = 0;
  (void)rank;
  expect_events(shard, "");
  tiny_backward(module);
  expect_events(shard,
                "A- U- A0 U0 R0 A1 U1 R1 A2 U2 R2 "
                "A2 U2 A1 R2 S2 P2 U1 A0 R1 S1 P1 U0 R0 S0 P0 R- S- P-");
  EXPECT_OK(fsdp2_shard_set_forward_prefetch(shard, "model.layers.0", ahead, 1));
  EXPECT_OK(fsdp2_shard_set_backward_prefetch(shard, "model.layers.2", back, 1));
  tiny_backward(module);
  expect_events(shard,
                "A- U- A0 U0 A2 R0 A1 U1 R1 U2 R2 "
                "A2 U2 A0 R2 S2 P2 A1 U1 R1 S1 P1 U0 R0 S0 P0 R- S- P-");
  EXPECT_OK(fsdp2_shard_set_forward_prefetch(shard, "model.layers.0", NULL, 0));
  EXPECT_OK(fsdp2_tensor_destroy(tiny_loss(module, FSDP2_FORWARD_NO_GRAD)));
  EXPECT_STATUS(fsdp2_shard_get_events(shard, &kind, &unit, 1, &needed), FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(needed == 11);
  expect_events(shard, "A- U- A0 U0 R0 A1 U1 R1 A2 U2 R2"); /* the root stays, as with gradients */
  destroy_tiny(module, shard);
}
static void events_are_told_in_order(void) { on_ranks("events", 2, 0, log_a_step); }

/* ---- settings */

static void change_settings(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  struct tiny_result result;
  (void)rank;
  /* Accumulation: nothing is reduced, then two backwards at once. */
  EXPECT_OK(fsdp2_shard_set_requires_gradient_sync(shard, NULL, 0, 1));
  EXPECT_OK(fsdp2_shard_reset_stats(shard));
  tiny_backward(module);
  EXPECT(stats_of(shard).reduce_scatters == 0);
  EXPECT(parameter_of(shard, "lm_head.weight").has_grad == 0);
  EXPECT_OK(fsdp2_shard_set_requires_gradient_sync(shard, NULL, 1, 1));
  tiny_backward(module);
  EXPECT(stats_of(shard).reduce_scatters == 4);
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &result.norm));
  EXPECT_NEAR(result.norm, 2 * one_rank.norm, 1e-5);
  /* The same, where no backward was known to be the last. */
  EXPECT_OK(fsdp2_shard_zero_grad(shard));
  EXPECT_OK(fsdp2_shard_set_requires_gradient_sync(shard, NULL, 0, 1));
  tiny_backward(module);
  tiny_backward(module);
  EXPECT_OK(fsdp2_shard_set_requires_gradient_sync(shard, NULL, 1, 1));
  EXPECT_OK(fsdp2_shard_finalize_backward(shard));
  EXPECT(stats_of(shard).reduce_scatters == 8);
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &result.norm));
  EXPECT_NEAR(result.norm, 2 * one_rank.norm, 1e-5);
  EXPECT_OK(fsdp2_shard_finalize_backward(shard)); /* nothing is put off */
  EXPECT(stats_of(shard).reduce_scatters == 8);
  /* One unit alone. */
  EXPECT_OK(fsdp2_shard_zero_grad(shard));
  EXPECT_OK(fsdp2_shard_set_requires_gradient_sync(shard, "model.layers.1", 0, 0));
  tiny_backward(module);
  EXPECT(parameter_of(shard, "model.layers.1.mlp.up_proj.weight").has_grad == 0);
  EXPECT(parameter_of(shard, "model.layers.2.mlp.up_proj.weight").has_grad == 1);
  EXPECT_OK(fsdp2_shard_set_requires_gradient_sync(shard, "model.layers.1", 1, 0));
  EXPECT_OK(fsdp2_shard_zero_grad(shard));
  /* What stays gathered. */
  EXPECT_OK(fsdp2_shard_set_reshard_after_forward(shard, NULL, 0, 1));
  EXPECT_OK(fsdp2_shard_set_reshard_after_backward(shard, "model.layers.1", 0, 0));
  EXPECT_OK(fsdp2_tensor_destroy(tiny_loss(module, 0)));
  EXPECT(unit_of(shard, "model.layers.0").state == FSDP2_UNIT_UNSHARDED);
  tiny_backward(module);
  EXPECT(unit_of(shard, "model.layers.0").state == FSDP2_UNIT_SHARDED);
  EXPECT(unit_of(shard, "model.layers.0").live_bytes == 0);
  EXPECT(unit_of(shard, "model.layers.1").state == FSDP2_UNIT_UNSHARDED);
  EXPECT(unit_of(shard, "model.layers.1").live_bytes == 4 * 2208);
  EXPECT(stats_of(shard).unsharded_bytes == 4 * 2208);
  EXPECT_OK(fsdp2_shard_set_reshard_after_backward(shard, NULL, 1, 1));
  EXPECT_OK(fsdp2_shard_set_reshard_after_forward(shard, NULL, 1, 1));
  /* Two backwards of one step, the first of which leaves its last reduction under way. */
  EXPECT_OK(fsdp2_shard_zero_grad(shard));
  EXPECT_OK(fsdp2_shard_set_is_last_backward(shard, 0));
  tiny_backward(module);
  EXPECT_OK(fsdp2_shard_set_is_last_backward(shard, 1));
  tiny_backward(module);
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &result.norm));
  EXPECT_NEAR(result.norm, 2 * one_rank.norm, 1e-5);
  EXPECT(unit_of(shard, "model.layers.1").state == FSDP2_UNIT_SHARDED);
  destroy_tiny(module, shard);
}

static void change_reductions(fsdp2_mesh mesh, int rank) {
  static const char* const units[4] = {NULL, "model.layers.0", "model.layers.1", "model.layers.2"};
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  int i;
  (void)rank;
  for (i = 0; i < 4; ++i) {
    EXPECT_OK(fsdp2_shard_set_gradient_divide_factor(shard, units[i], 1.0));
    EXPECT_OK(fsdp2_shard_set_force_sum_reduction(shard, units[i], 1));
  }
  EXPECT_NEAR(tiny_step(module, shard).norm, 2 * one_rank.norm, 1e-5);
  for (i = 0; i < 4; ++i) {
    EXPECT_OK(fsdp2_shard_set_gradient_divide_factor(shard, units[i], 2.0));
  }
  EXPECT_NEAR(tiny_step(module, shard).norm, one_rank.norm, 1e-5);
  /* The embedding's gradient does not need its values. */
  EXPECT_OK(fsdp2_shard_set_unshard_in_backward(shard, NULL, 1));
  EXPECT_NEAR(tiny_step(module, shard).norm, one_rank.norm, 1e-5);
  destroy_tiny(module, shard);
}

static void settings_change_what_units_do(void) {
  one_rank = tiny_on_one_rank();
  on_ranks("settings", 2, 0, change_settings);
  on_ranks("reductions", 2, 0, change_reductions);
}

static void reduce_in_two_stages(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  double norm = 0.0;
  (void)rank;
  EXPECT_OK(fsdp2_shard_reset_stats(shard));
  EXPECT_OK(fsdp2_shard_set_requires_all_reduce(shard, NULL, 0, 1));
  tiny_backward(module);
  EXPECT(stats_of(shard).reduce_scatters == 4 && stats_of(shard).all_reduces == 0);
  EXPECT(parameter_of(shard, "lm_head.weight").has_grad == 0);
  EXPECT_OK(fsdp2_shard_set_requires_all_reduce(shard, NULL, 1, 1));
  tiny_backward(module);
  EXPECT(stats_of(shard).reduce_scatters == 8 && stats_of(shard).all_reduces == 4);
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &norm));
  EXPECT_NEAR(norm, 2 * one_rank.norm, 1e-5);
  destroy_tiny(module, shard);
}
static void replicas_can_wait_for_the_last_backward(void) {
  on_ranks("two-stages", 4, 2, reduce_in_two_stages);
}

static void use_the_head_alone(fsdp2_mesh mesh, int rank) {
  static float hidden[2 * kTinyWidth], ones[2 * kTinyVocabulary];
  const int64_t in_shape[3] = {1, 2, kTinyWidth}, out_shape[3] = {1, 2, kTinyVocabulary};
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_tensor input = {0}, output = {0}, gradient = {0};
  fsdp2_shard shard;
  size_t n = 0;
  int i;
  (void)rank;
  options.wrap_head = 1;
  shard = shard_with(module, mesh, &options);
  EXPECT_OK(fsdp2_tensor_from_buffer(hidden, sizeof(hidden), FSDP2_DTYPE_F32, in_shape, 3, &input));
  EXPECT_OK(fsdp2_tensor_from_buffer(ones, sizeof(ones), FSDP2_DTYPE_F32, out_shape, 3, &gradient));
  input = on_test_device(input);
  gradient = on_test_device(gradient);
  for (i = 0; i < 2; ++i) {
    EXPECT_OK(fsdp2_shard_set_reduce_unused_parameters(shard, NULL, i, 1));
    EXPECT_OK(fsdp2_shard_clear_events(shard));
    EXPECT_OK(fsdp2_module_forward_submodule(module, "lm_head", &input, 1, 0, &output, 1, &n));
    EXPECT_OK(fsdp2_tensor_run_backward(&output, 1, &gradient, 0));
    EXPECT_OK(fsdp2_tensor_destroy(output));
    EXPECT(parameter_of(shard, "lm_head.weight").has_grad == 1);
    EXPECT(parameter_of(shard, "model.norm.weight").has_grad == i);
  }
  EXPECT_OK(fsdp2_tensor_destroy(input));
  EXPECT_OK(fsdp2_tensor_destroy(gradient));
  destroy_tiny(module, shard);
}
static void unused_parameters_may_get_zeros(void) { on_ranks("head", 2, 0, use_the_head_alone); }

/* ---- by hand */

static void unshard_by_hand(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  const char* layer = "model.layers.1";
  (void)rank;
  EXPECT_OK(fsdp2_shard_unshard(shard, layer, 0));
  EXPECT(unit_of(shard, layer).state == FSDP2_UNIT_UNSHARDED);
  EXPECT(unit_of(shard, "model.layers.2").state == FSDP2_UNIT_SHARDED);
  EXPECT_OK(fsdp2_shard_reshard(shard, layer));
  EXPECT(unit_of(shard, layer).state == FSDP2_UNIT_SHARDED);
  EXPECT_OK(fsdp2_shard_unshard(shard, layer, 1));
  EXPECT(unit_of(shard, layer).state == FSDP2_UNIT_GATHERING);
  EXPECT_OK(fsdp2_shard_wait_unshard(shard, layer));
  EXPECT(unit_of(shard, layer).state == FSDP2_UNIT_UNSHARDED);
  EXPECT_NEAR(tiny_step(module, shard).norm, one_rank.norm, 1e-5);
  /* A forward that is given up. */
  EXPECT_OK(fsdp2_shard_set_reshard_after_forward(shard, NULL, 0, 1));
  EXPECT_OK(fsdp2_tensor_destroy(tiny_loss(module, 0)));
  EXPECT(stats_of(shard).unsharded_bytes > 0);
  EXPECT_OK(fsdp2_shard_reset(shard));
  EXPECT(stats_of(shard).unsharded_bytes == 0);
  EXPECT(unit_of(shard, NULL).state == FSDP2_UNIT_SHARDED);
  EXPECT_NEAR(tiny_step(module, shard).norm, one_rank.norm, 1e-5);
  destroy_tiny(module, shard);
}
static void units_are_gathered_and_freed_by_hand(void) {
  on_ranks("by-hand", 2, 0, unshard_by_hand);
}

static void keep_buffers(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_shard shard = {0};
  int64_t kept;
  (void)rank;
  options.keep_buffers = 1;
  EXPECT_OK(fsdp2_shard_create(module, mesh, &options, &shard));
  EXPECT(stats_of(shard).kept_bytes == 0);
  EXPECT_NEAR(tiny_step(module, shard).norm, one_rank.norm, 1e-5);
  kept = stats_of(shard).kept_bytes;
  EXPECT(kept > stats_of(shard).peak_unsharded_bytes);
  EXPECT_NEAR(tiny_step(module, shard).norm, one_rank.norm, 1e-5);
  EXPECT(stats_of(shard).kept_bytes == kept);
  EXPECT_OK(fsdp2_shard_release_buffers(shard));
  EXPECT(stats_of(shard).kept_bytes == 0);
  EXPECT_NEAR(tiny_step(module, shard).norm, one_rank.norm, 1e-5);
  EXPECT(stats_of(shard).kept_bytes == kept);
  destroy_tiny(module, shard);
}
static void buffers_are_kept_until_they_are_released(void) {
  on_ranks("buffers", 2, 0, keep_buffers);
}

static void cast(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  (void)rank;
  EXPECT_OK(fsdp2_shard_cast_parameters(shard, FSDP2_DTYPE_F64));
  EXPECT(parameter_of(shard, "lm_head.weight").dtype == FSDP2_DTYPE_F64);
  EXPECT(parameter_of(shard, "lm_head.weight").compute_dtype == FSDP2_DTYPE_F64);
  EXPECT_NEAR(tiny_step(module, shard).norm, one_rank.norm, 1e-5);
  destroy_tiny(module, shard);
}
static void cast_what_computes_in_its_own_way(fsdp2_mesh mesh, int rank) {
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_module module = tiny_model();
  fsdp2_shard shard;
  (void)rank;
  options.param_dtype = FSDP2_DTYPE_F32;
  shard = shard_with(module, mesh, &options);
  EXPECT_OK(fsdp2_shard_cast_parameters(shard, FSDP2_DTYPE_F64));
  EXPECT(parameter_of(shard, "lm_head.weight").dtype == FSDP2_DTYPE_F64);
  EXPECT(parameter_of(shard, "lm_head.weight").compute_dtype == FSDP2_DTYPE_F32);
  EXPECT_NEAR(tiny_step(module, shard).norm, one_rank.norm, 1e-5);
  destroy_tiny(module, shard);
}
static void shards_can_be_cast(void) {
  on_ranks("cast-1", 1, 0, cast);
  on_ranks("cast", 2, 0, cast);
  on_ranks("cast-fixed", 2, 0, cast_what_computes_in_its_own_way);
}

/* ---- gradients */

static void measure(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  const double infinity = 1e300 * 1e300;
  fsdp2_tensor gradient = {0};
  double two = 0.0, one = 0.0, most = 0.0, clipped = 0.0;
  float values[4] = {0};
  size_t index = 0;
  int32_t overflow = -1;
  tiny_step(module, shard);
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &two));
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 1.0, &one));
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, infinity, &most));
  EXPECT(one > two && two > most && most > 0.0);
  EXPECT_OK(fsdp2_shard_scale_grad(shard, 4.0));
  EXPECT_OK(fsdp2_shard_clip_grad_norm(shard, 0.0, 1.0, &clipped));
  EXPECT_NEAR(clipped, 4 * one, 1e-5);
  EXPECT_OK(fsdp2_shard_clip_grad_norm(shard, 0.5, infinity, &clipped));
  EXPECT_NEAR(clipped, 4 * most, 1e-5);
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, infinity, &clipped));
  EXPECT_NEAR(clipped, 4 * most < 0.5 ? 4 * most : 0.5, 1e-4);
  EXPECT_OK(fsdp2_shard_get_grad_overflow(shard, &overflow));
  EXPECT(overflow == 0);
  if (rank == 1) { /* 4 of the 8 elements of this rank */
    EXPECT_OK(fsdp2_shard_get_parameter_index(shard, "model.norm.weight", &index));
    EXPECT_OK(fsdp2_shard_get_parameter(shard, index, FSDP2_PARAMETER_LOCAL_GRAD, &gradient));
    values[2] = (float)infinity;
    EXPECT_OK(fsdp2_tensor_write(gradient, values, sizeof(values)));
    EXPECT_OK(fsdp2_tensor_destroy(gradient));
  }
  EXPECT_OK(fsdp2_shard_get_grad_overflow(shard, &overflow));
  EXPECT(overflow == 1);
  destroy_tiny(module, shard);
}
static void gradients_are_measured_scaled_and_checked(void) { on_ranks("norms", 4, 0, measure); }

/* ---- bad input */

static void units_that_are_none_are_told(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_shard shard;
  const char* head = "lm_head";
  size_t index = 5;
  options.param_dtype = FSDP2_DTYPE_F32;
  shard = shard_with(module, mesh, &options);
  EXPECT_STATUS(fsdp2_shard_set_forward_prefetch(shard, NULL, &head, 1), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("units: expected a module that is sharded as a unit of its own, found 'lm_head'");
  EXPECT_MESSAGE("'model.layers.2'");
  EXPECT_STATUS(fsdp2_shard_set_backward_prefetch(shard, head, NULL, 0), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_shard_get_unit_index(shard, "model.layers.3", &index), FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("'model.layers' holds 0, 1, 2");
  EXPECT_STATUS(fsdp2_shard_get_unit_index(shard, "model..layers", &index), FSDP2_E_NOT_FOUND);
  EXPECT_STATUS(fsdp2_shard_get_unit_index(shard, "model.", &index), FSDP2_E_NOT_FOUND);
  EXPECT_STATUS(fsdp2_shard_get_unit_index(shard, "model", &index), FSDP2_E_INVALID_ARGUMENT);
  EXPECT(index == 5);
  EXPECT_STATUS(fsdp2_shard_cast_parameters(shard, FSDP2_DTYPE_BF16), FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("before it is sharded");
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

int main(void) {
  one_rank = tiny_on_one_rank();
  RUN(events_are_told_in_order);
  RUN(settings_change_what_units_do);
  RUN(replicas_can_wait_for_the_last_backward);
  RUN(unused_parameters_may_get_zeros);
  RUN(units_are_gathered_and_freed_by_hand);
  RUN(buffers_are_kept_until_they_are_released);
  RUN(shards_can_be_cast);
  RUN(gradients_are_measured_scaled_and_checked);
  RUN(units_that_are_none_are_told);
  return harness_result();
}
