/* Functions of the caller inside a shard's work: what they see, what they change, how they fail. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/tiny_model.h"

static const char* const kUnits[4] = {NULL, "model.layers.0", "model.layers.1", "model.layers.2"};
static struct tiny_result one_rank, four_ranks;

static void count_release(void* user_data) { ++*(int*)user_data; }

/* ---- all-reduce hook */

/* Which unit it is. */
static void expect_unit(const fsdp2_all_reduce_info* unit) {
  EXPECT(unit->struct_size == sizeof(*unit) && unit->unit_index >= 0 && unit->unit_index < 4);
  EXPECT(strcmp(unit->unit, unit->unit_index == 0 ? "" : kUnits[unit->unit_index]) == 0);
}

static fsdp2_status halve(const fsdp2_all_reduce_info* unit, fsdp2_tensor gradients,
                          void* user_data) {
  fsdp2_tensor_info info;
  static _Thread_local float values[1 << 14];
  size_t i, n;
  expect_unit(unit);
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(gradients, &info));
  EXPECT(info.n_dims == 1 && info.dtype == FSDP2_DTYPE_F32 &&
         (size_t)info.n_bytes <= sizeof(values));
  n = (size_t)info.shape[0];
  EXPECT_OK(fsdp2_tensor_read(gradients, values, info.n_bytes));
  for (i = 0; i < n; ++i) {
    values[i] *= 0.5f;
  }
  ++*(int*)user_data;
  return fsdp2_tensor_write(gradients, values, info.n_bytes);
}

static void hook_reductions(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  int calls = 0, released = 0, i;
  (void)rank;
  for (i = 0; i < 4; ++i) {
    EXPECT_OK(fsdp2_shard_set_all_reduce_hook(shard, kUnits[i], halve, &calls, NULL));
  }
  EXPECT_NEAR(tiny_step(module, shard).norm, 0.5 * one_rank.norm, 1e-5);
  EXPECT(calls == 4);
  /* Released once replaced, not by a call that fails, and with the model. */
  EXPECT_OK(fsdp2_shard_set_all_reduce_hook(shard, NULL, halve, &released, count_release));
  EXPECT_STATUS(fsdp2_shard_set_all_reduce_hook(shard, "lm_head", halve, &released, count_release),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT(released == 0);
  EXPECT_OK(fsdp2_shard_set_all_reduce_hook(shard, NULL, NULL, NULL, NULL));
  EXPECT(released == 1);
  EXPECT_OK(fsdp2_shard_set_all_reduce_hook(shard, NULL, halve, &released, count_release));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT(released == 1);
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT(released == 2);
}
static void a_hook_changes_reduced_gradients(void) { on_ranks("hook", 2, 0, hook_reductions); }

/* Adds up the gradients of both halves, as replicas would. */
static fsdp2_status add_over_mesh(const fsdp2_all_reduce_info* unit, fsdp2_tensor gradients,
                                  void* user_data) {
  const fsdp2_mesh mesh = *(const fsdp2_mesh*)user_data;
  double one = 1.0;
  expect_unit(unit);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_OK(fsdp2_mesh_all_reduce(mesh, &one, 1, FSDP2_REDUCE_SUM));
  EXPECT(one == 2.0);
  EXPECT_STATUS(fsdp2_mesh_flatten(mesh, NULL, 0, NULL, NULL), FSDP2_E_BUSY);
  return fsdp2_mesh_all_reduce_tensor(mesh, 0, gradients, FSDP2_REDUCE_AVERAGE);
}

static void reduce_over_two_meshes(fsdp2_mesh mesh, int rank) {
  const char *replicas[1] = {"ddp"}, *shards[1] = {"fsdp"};
  const fsdp2_module module = tiny_model();
  fsdp2_mesh over_replicas = {0}, over_shards = {0};
  fsdp2_shard shard;
  int i;
  EXPECT_OK(fsdp2_mesh_get_submesh(mesh, replicas, 1, &over_replicas));
  EXPECT_OK(fsdp2_mesh_get_submesh(mesh, shards, 1, &over_shards));
  shard = shard_of(module, over_shards);
  for (i = 0; i < 4; ++i) {
    EXPECT_OK(
        fsdp2_shard_set_all_reduce_hook(shard, kUnits[i], add_over_mesh, &over_replicas, NULL));
  }
  tiny_turn = rank;
  EXPECT_NEAR(tiny_step(module, shard).norm, four_ranks.norm, 1e-5);
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(over_replicas));
  EXPECT_OK(fsdp2_mesh_destroy(over_shards));
}
static void a_hook_may_reduce_over_another_mesh(void) {
  four_ranks = tiny_on_one_rank_for(4);
  on_ranks("two-meshes", 4, 2, reduce_over_two_meshes);
}

/* ---- gradient ready */

struct ready {
  fsdp2_module module;
  fsdp2_shard shard;
  int calls, busy, reads;
  fsdp2_gradient_info infos[kTinyParameters];
  char names[kTinyParameters][64];
};

/* Keeps the first infos, whose names are gone afterwards. */
static void note_info(struct ready* ready, const fsdp2_gradient_info* info) {
  EXPECT(info->struct_size == sizeof(*info));
  if (ready->calls < kTinyParameters) {
    ready->infos[ready->calls] = *info;
    snprintf(ready->names[ready->calls], sizeof(ready->names[0]), "%s", info->parameter);
  }
}

/* The indices lead to the same parameters and units. */
static void expect_known_infos(const struct ready* ready) {
  fsdp2_parameter_info info;
  char name[64];
  size_t index, needed;
  int i;
  for (i = 0; i < kTinyParameters; ++i) {
    index = (size_t)ready->infos[i].parameter_index;
    EXPECT_OK(fsdp2_shard_get_parameter_name(ready->shard, index, 0, name, sizeof(name), &needed));
    EXPECT(strcmp(name, ready->names[i]) == 0);
    info.struct_size = (uint32_t)sizeof(info);
    EXPECT_OK(fsdp2_shard_get_parameter_info(ready->shard, index, &info));
    EXPECT(info.unit == ready->infos[i].unit_index);
  }
}

static fsdp2_status note_ready(const fsdp2_gradient_info* gradient_info, fsdp2_tensor gradient,
                               void* user_data) {
  struct ready* ready = (struct ready*)user_data;
  fsdp2_tensor_info info;
  fsdp2_module_parameter_info parameter_info;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(gradient, &info));
  EXPECT(info.requires_grad == 0 && info.n_dims >= 1);
  note_info(ready, gradient_info);
  ++ready->calls;
  ready->busy += fsdp2_shard_zero_grad(ready->shard) == FSDP2_E_BUSY;
  parameter_info.struct_size = (uint32_t)sizeof(parameter_info);
  ready->reads += fsdp2_module_get_parameter_info(ready->module, 0, &parameter_info) == FSDP2_OK;
  return FSDP2_OK;
}

static void watch_gradients(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  struct ready ready;
  (void)rank;
  memset(&ready, 0, sizeof(ready));
  ready.module = module;
  ready.shard = shard_of(module, mesh);
  EXPECT_OK(fsdp2_shard_set_gradient_ready(ready.shard, NULL, 1, note_ready, &ready, NULL));
  tiny_backward(module);
  EXPECT(ready.calls == kTinyParameters && ready.busy == kTinyParameters);
  EXPECT(ready.reads == kTinyParameters);
  expect_known_infos(&ready);
  EXPECT_OK(fsdp2_shard_set_gradient_ready(ready.shard, NULL, 1, NULL, NULL, NULL));
  EXPECT_OK(
      fsdp2_shard_set_gradient_ready(ready.shard, "model.layers.1", 0, note_ready, &ready, NULL));
  tiny_backward(module);
  EXPECT(ready.calls == kTinyParameters + 9);
  destroy_tiny(module, ready.shard);
}
static void each_parameter_tells_when_its_gradient_is_there(void) {
  on_ranks("ready-1", 1, 0, watch_gradients);
  on_ranks("ready-2", 2, 0, watch_gradients);
}

/* ---- all-gather extension */

enum { kMaxElements = 1 << 12 };

static _Thread_local int this_rank;

static void expect_gather(const fsdp2_gather_info* gather) {
  EXPECT(gather->struct_size == sizeof(*gather) && gather->compute_dtype == FSDP2_DTYPE_F32);
  EXPECT(gather->shard_ranks == 2 && gather->shard_rank == this_rank);
  EXPECT(strstr(gather->parameter, "weight") != NULL);
  EXPECT(gather->unit_index >= 0 && gather->unit_index < 4);
  EXPECT(gather->unit_index == 0 || strstr(gather->parameter, kUnits[gather->unit_index]) != NULL);
  EXPECT(gather->parameter_index >= 0 && gather->parameter_index < kTinyParameters);
  EXPECT((gather->parameter_index == 0) ==
         (strcmp(gather->parameter, "model.embed_tokens.weight") == 0));
}

/* Sends bf16: the upper halves of the floats. */
static fsdp2_status to_halves(const fsdp2_gather_info* gather, fsdp2_tensor chunk,
                              fsdp2_tensor* out, void* user_data) {
  fsdp2_tensor_info info;
  uint32_t values[kMaxElements];
  uint16_t halves[kMaxElements];
  int64_t i;
  expect_gather(gather);
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(chunk, &info));
  EXPECT_OK(fsdp2_tensor_read(chunk, values, info.n_bytes));
  for (i = 0; i < info.shape[0]; ++i) {
    halves[i] = (uint16_t)(values[i] >> 16);
  }
  ++*(int*)user_data;
  EXPECT_OK(
      fsdp2_tensor_from_buffer(halves, info.n_bytes / 2, FSDP2_DTYPE_BF16, info.shape, 1, out));
  *out = on_test_device(*out);
  return FSDP2_OK;
}

static fsdp2_status from_halves(const fsdp2_gather_info* gather, fsdp2_tensor pieces,
                                fsdp2_tensor chunks, void* user_data) {
  fsdp2_tensor_info info;
  uint16_t halves[kMaxElements];
  uint32_t values[kMaxElements];
  int64_t i;
  (void)user_data;
  expect_gather(gather);
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(pieces, &info));
  EXPECT(info.n_dims == 2 && info.dtype == FSDP2_DTYPE_BF16);
  EXPECT_OK(fsdp2_tensor_read(pieces, halves, info.n_bytes));
  for (i = 0; i < info.n_bytes / 2; ++i) {
    values[i] = (uint32_t)halves[i] << 16;
  }
  return fsdp2_tensor_write(chunks, values, info.n_bytes * 2);
}

static void gather_halves(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  int64_t bytes;
  int calls = 0, i;
  this_rank = rank;
  tiny_step(module, shard);
  EXPECT_OK(fsdp2_shard_reset_stats(shard));
  tiny_step(module, shard);
  bytes = stats_of(shard).all_gather_bytes;
  for (i = 0; i < 4; ++i) {
    EXPECT_OK(fsdp2_shard_set_all_gather_extension(shard, kUnits[i], to_halves, from_halves, &calls,
                                                   NULL));
  }
  EXPECT_OK(fsdp2_shard_reset_stats(shard));
  EXPECT_NEAR(tiny_step(module, shard).loss, one_rank.loss, 1e-2);
  EXPECT(calls == 57); /* the layers' 27 in forward and backward, the root's 3 once */
  EXPECT(stats_of(shard).all_gather_bytes < bytes * 6 / 10);
  for (i = 0; i < 4; ++i) {
    EXPECT_OK(fsdp2_shard_set_all_gather_extension(shard, kUnits[i], NULL, NULL, NULL, NULL));
  }
  EXPECT_NEAR(tiny_step(module, shard).loss, one_rank.loss, 1e-6);
  destroy_tiny(module, shard);
}
static void another_form_can_travel(void) { on_ranks("halves", 2, 0, gather_halves); }

static void remove_while_gathering(fsdp2_mesh mesh, int rank) {
  const char* const unit = "model.layers.1";
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  int calls = 0; /* of to_halves, and of the release */
  this_rank = rank;
  EXPECT_OK(fsdp2_shard_set_all_gather_extension(shard, unit, to_halves, from_halves, &calls,
                                                 count_release));
  EXPECT_OK(fsdp2_shard_unshard(shard, unit, 1));
  EXPECT_OK(fsdp2_shard_set_all_gather_extension(shard, unit, NULL, NULL, NULL, NULL));
  EXPECT(calls == 9); /* the gather under way still needs it */
  EXPECT_OK(fsdp2_shard_wait_unshard(shard, unit));
  EXPECT(calls == 10);
  EXPECT_NEAR(tiny_step(module, shard).loss, one_rank.loss, 1e-2);
  EXPECT(calls == 10);
  destroy_tiny(module, shard);
}
static void a_gather_ends_with_the_functions_it_began_with(void) {
  on_ranks("removed", 2, 0, remove_while_gathering);
}

/* ---- failures */

static fsdp2_status fail_with_text(const fsdp2_all_reduce_info* unit, fsdp2_tensor gradients,
                                   void* user_data) {
  (void)unit, (void)gradients, (void)user_data;
  return fsdp2_callback_fail(FSDP2_E_IO, "the disk is full");
}

static fsdp2_status fail_inside(const fsdp2_all_reduce_info* unit, fsdp2_tensor gradients,
                                void* user_data) {
  double value = 0.0;
  (void)unit, (void)user_data;
  return fsdp2_tensor_get_value(gradients, &value); /* it has many */
}

static fsdp2_status just_fail(const fsdp2_all_reduce_info* unit, fsdp2_tensor gradients,
                              void* user_data) {
  (void)unit, (void)gradients, (void)user_data;
  return FSDP2_E_CANCELLED;
}

static fsdp2_status fail_without_a_status(const fsdp2_all_reduce_info* info, fsdp2_tensor gradients,
                                          void* user_data) {
  const fsdp2_status unknown[4] = {FSDP2_OK, -1, 7, 999};
  int i;
  (void)info, (void)gradients, (void)user_data;
  for (i = 0; i < 4; ++i) {
    EXPECT_STATUS(fsdp2_callback_fail(unknown[i], "why"), FSDP2_E_INVALID_ARGUMENT);
  }
  return fsdp2_callback_fail(12345, "why");
}

static void backward_fails(fsdp2_module module, fsdp2_status expected, const char* part) {
  const fsdp2_tensor loss = tiny_loss(module, 0);
  EXPECT_STATUS(fsdp2_tensor_backward(loss), expected);
  EXPECT_MESSAGE(part);
  EXPECT_OK(fsdp2_tensor_destroy(loss));
}

static void fail_on_one_rank(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  int calls = 0;
  if (rank == 1) {
    EXPECT_OK(fsdp2_shard_set_all_reduce_hook(shard, "model.layers.2", fail_with_text, NULL, NULL));
  } else {
    EXPECT_OK(fsdp2_shard_set_all_reduce_hook(shard, "model.layers.2", halve, &calls, NULL));
  }
  backward_fails(module, rank == 1 ? FSDP2_E_CALLBACK : FSDP2_E_PEER_FAILED,
                 "all-reduce hook of unit 'model.layers.2'");
  EXPECT_MESSAGE("FSDP2_E_IO");
  EXPECT_MESSAGE("the disk is full");
  destroy_tiny(module, shard);
}

static void a_callback_that_fails_fails_the_call_on_all_ranks(void) {
  on_ranks("fail-one", 2, 0, fail_on_one_rank);
}

static void what_a_callback_says_is_in_the_message(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  double norm = 0.0;
  EXPECT_OK(fsdp2_shard_set_all_reduce_hook(shard, NULL, fail_inside, NULL, NULL));
  backward_fails(module, FSDP2_E_CALLBACK, "FSDP2_E_INVALID_ARGUMENT (106): tensor: expected one");
  EXPECT_OK(fsdp2_shard_set_all_reduce_hook(shard, NULL, just_fail, NULL, NULL));
  backward_fails(module, FSDP2_E_CALLBACK,
                 "the root unit: the callback returned FSDP2_E_CANCELLED");
  EXPECT_OK(fsdp2_shard_set_all_reduce_hook(shard, NULL, fail_without_a_status, NULL, NULL));
  backward_fails(module, FSDP2_E_CALLBACK, "status: expected one of the FSDP2_E_... of base.h");
  EXPECT_OK(fsdp2_shard_set_all_reduce_hook(shard, NULL, NULL, NULL, NULL));
  EXPECT_OK(fsdp2_shard_zero_grad(shard));
  tiny_backward(module);
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &norm));
  EXPECT_NEAR(norm, one_rank.norm, 1e-5);
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

int main(void) {
  one_rank = tiny_on_one_rank();
  RUN(a_hook_changes_reduced_gradients);
  RUN(a_hook_may_reduce_over_another_mesh);
  RUN(each_parameter_tells_when_its_gradient_is_there);
  RUN(another_form_can_travel);
  RUN(a_gather_ends_with_the_functions_it_began_with);
  RUN(a_callback_that_fails_fails_the_call_on_all_ranks);
  RUN(what_a_callback_says_is_in_the_message);
  return harness_result();
}
