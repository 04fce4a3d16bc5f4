/* Calls that are refused on one rank or on all, by threads of this process: what was refused was
 * not made, the other ranks are told, and the mesh goes on. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/ranks.h"

/* After one step, whose gradients are there. */
static struct job start_and_step(fsdp2_mesh mesh) {
  struct job job = start_job(mesh);
  take_step(job.loader, job.step);
  return job;
}

/* ---- outcomes that the headers document, on all ranks alike */

static void ask_for_what_is_not_there(fsdp2_mesh mesh, int rank) {
  struct job job = start_and_step(mesh);
  fsdp2_tensor out = {0};
  (void)rank;
  EXPECT_OK(fsdp2_shard_zero_grad(job.shard));
  EXPECT_STATUS(fsdp2_shard_get_parameter(job.shard, 0, FSDP2_PARAMETER_FULL_GRAD, &out),
                FSDP2_E_NOT_FOUND);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_STATUS(fsdp2_optimizer_get_state(job.optimizer, 0, "momentum", 0, &out),
                FSDP2_E_NOT_FOUND);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_STATUS(fsdp2_optimizer_get_state(job.optimizer, 0, "momentum", FSDP2_PARAMETER_FULL, &out),
                FSDP2_E_NOT_FOUND);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_STATUS(fsdp2_shard_reshard(job.shard, "model.layer.0"), FSDP2_E_NOT_FOUND);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_STATUS(fsdp2_shard_unshard(job.shard, "model.layer.0", 0), FSDP2_E_NOT_FOUND);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[1], 5e-6);
  end_job(&job);
}
static void what_is_not_there_costs_nothing(void) {
  on_ranks("not-there", 2, 0, ask_for_what_is_not_there);
}

static void give_too_little_room(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  const int64_t shape[2] = {1, 4}, values[4] = {1, 2, 3, 4};
  const fsdp2_tensor tokens = int64_tensor(values, shape, 2);
  fsdp2_tensor out = {0};
  size_t n = 0, needed = 0;
  char text[4], *whole;
  (void)rank;
  EXPECT_STATUS(fsdp2_plan_describe(job.shard, NULL, text, sizeof(text), &needed),
                FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  whole = (char*)malloc(needed);
  EXPECT_OK(fsdp2_plan_describe(job.shard, NULL, whole, needed, &needed));
  free(whole);
  EXPECT_STATUS(fsdp2_module_forward(job.module, &tokens, 1, 0, &out, 0, &n),
                FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(n == 1);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_STATUS(
      fsdp2_module_forward_submodule(job.module, "model.embed_tokens", &tokens, 1, 0, &out, 0, &n),
      FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_OK(fsdp2_module_forward(job.module, &tokens, 1, FSDP2_FORWARD_NO_GRAD, &out, 1, &n));
  EXPECT_OK(fsdp2_tensor_destroy(out));
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[0], 5e-6);
  end_job(&job);
}
static void too_little_room_is_asked_for_again(void) {
  on_ranks("too-small", 2, 0, give_too_little_room);
}

/* All ranks alike, in a forward and in a step. */
static void give_a_wrong_token(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  const int64_t shape[2] = {1, 4}, values[4] = {1, 2, 384, 4};
  fsdp2_tensor tokens[2], out = {0};
  fsdp2_step_result result;
  size_t n = 0;
  (void)rank;
  result.struct_size = (uint32_t)sizeof(result);
  tokens[0] = tokens[1] = int64_tensor(values, shape, 2);
  EXPECT_STATUS(fsdp2_module_forward(job.module, tokens, 1, 0, &out, 1, &n),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("384");
  EXPECT_OK(fsdp2_shard_reset(job.shard));
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_STATUS(fsdp2_step_run(job.step, tokens, 2, &result), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("384");
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[0], 5e-6);
  EXPECT_OK(fsdp2_tensor_destroy(tokens[0]));
  end_job(&job);
}
static void a_wrong_token_on_all_ranks_costs_nothing(void) {
  on_ranks("wrong-token", 2, 0, give_a_wrong_token);
}

/* Nobody looks at tokens that are on a device already, since the host would have to wait: the loss
 * tells, and the device goes on. */
static void give_a_wrong_token_on_the_device(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  const int64_t shape[2] = {1, 4}, values[4] = {1, 2, 384, 4}, labels[4] = {1, 2, 3, 4};
  fsdp2_tensor batch[2];
  fsdp2_step_result result;
  (void)rank;
  result.struct_size = (uint32_t)sizeof(result);
  batch[0] = on_test_device(int64_tensor(values, shape, 2));
  batch[1] = on_test_device(int64_tensor(labels, shape, 2));
  if (test_device() == NULL) {
    EXPECT_STATUS(fsdp2_step_run(job.step, batch, 2, &result), FSDP2_E_INVALID_ARGUMENT);
  } else {
    EXPECT_STATUS(fsdp2_step_run(job.step, batch, 2, &result), FSDP2_E_NOT_FINITE);
    EXPECT_MESSAGE("the loss of rank 0 is NaN");
  }
  EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[0], 5e-6);
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  end_job(&job);
}
static void a_wrong_token_on_the_device_costs_nothing(void) {
  on_ranks("wrong-token-there", 2, 0, give_a_wrong_token_on_the_device);
}

/* ---- mistakes of one rank */

static void expect_told(fsdp2_status status, int rank, fsdp2_status own, const char* why);
static void mistake_a_token(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  const int64_t shape[2] = {1, 4};
  int64_t values[4] = {1, 2, 3, 4};
  fsdp2_tensor tokens, out = {0};
  size_t n = 0;
  values[1] = rank == 1 ? -7 : 2;
  tokens = int64_tensor(values, shape, 2);
  expect_told(fsdp2_module_forward(job.module, &tokens, 1, 0, &out, 1, &n), rank,
              FSDP2_E_INVALID_ARGUMENT, "-7");
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[0], 5e-6);
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  end_job(&job);
}
static void a_wrong_token_on_one_rank_is_told_at_once(void) {
  on_ranks("one-wrong-token", 2, 0, mistake_a_token);
}

/* Replicas alone do not meet in forward, but in every step. */
static void mistake_a_token_of_a_step(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  const int64_t shape[2] = {1, 4};
  int64_t values[4] = {1, 2, 3, 4};
  fsdp2_tensor batch[2];
  fsdp2_step_result result;
  result.struct_size = (uint32_t)sizeof(result);
  values[1] = rank == 1 ? -7 : 2;
  batch[0] = batch[1] = int64_tensor(values, shape, 2);
  expect_told(fsdp2_step_run(job.step, batch, 2, &result), rank, FSDP2_E_INVALID_ARGUMENT, "-7");
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[0], 5e-6);
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  end_job(&job);
}
static void a_wrong_token_of_one_replica_is_told_at_once(void) {
  on_ranks("one-wrong-replica", 2, -1, mistake_a_token_of_a_step);
}

/* Rank 1 made the mistake, and rank 0 knows which. */
static void expect_told(fsdp2_status status, int rank, fsdp2_status own, const char* why) {
  EXPECT_STATUS(status, rank == 1 ? own : FSDP2_E_PEER_FAILED);
  EXPECT_MESSAGE(why);
  if (rank == 0) {
    EXPECT_MESSAGE("rank 1");
  }
}

static void mistake_a_shard(fsdp2_mesh mesh, int rank) {
  struct job job = start_and_step(mesh);
  double norm = 0.0;
  int32_t overflow = 0;
  fsdp2_tensor out = {0};
  const int64_t prompt[1] = {43};
  int64_t tokens[64];
  size_t n_tokens = 0;
  expect_told(
      fsdp2_module_generate(job.module, prompt, 1, NULL, tokens, rank == 1 ? 63 : 64, &n_tokens),
      rank, FSDP2_E_BUFFER_TOO_SMALL, "tokens: expected room for 64, found 63");
  EXPECT(n_tokens == (rank == 1 ? 64 : 0));
  expect_told(fsdp2_shard_get_grad_norm(job.shard, rank == 1 ? NAN : 2.0, &norm), rank,
              FSDP2_E_INVALID_ARGUMENT, "norm_type: expected a number > 0");
  expect_told(fsdp2_shard_clip_grad_norm(job.shard, rank == 1 ? -1.0 : 1.0, 2.0, &norm), rank,
              FSDP2_E_INVALID_ARGUMENT, "max_norm: expected 0");
  expect_told(fsdp2_shard_get_grad_overflow(job.shard, rank == 1 ? NULL : &overflow), rank,
              FSDP2_E_NULL_ARGUMENT, "out is NULL");
  expect_told(fsdp2_shard_get_parameter(job.shard, rank == 1 ? 99 : 0, FSDP2_PARAMETER_FULL, &out),
              rank, FSDP2_E_INVALID_ARGUMENT, "index: there are 21 parameters");
  expect_told(fsdp2_optimizer_get_state(job.optimizer, 0, rank == 1 ? "momentum" : "exp_avg",
                                        FSDP2_PARAMETER_FULL, &out),
              rank, FSDP2_E_NOT_FOUND, "name: expected one of [step, exp_avg");
  expect_told(fsdp2_shard_load_values(job.shard), 1, FSDP2_E_WRONG_STATE, "defer_values");
  EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[1], 5e-6);
  end_job(&job);
}
static void a_mistake_about_a_shard_is_told_at_once(void) {
  on_ranks("mistaken-shard", 2, 0, mistake_a_shard);
}

static void mistake_a_mesh(fsdp2_mesh mesh, int rank) {
  const int64_t values[2] = {1, 2}, shape[1] = {2};
  const int is_wrong = rank == 1;
  const char *dim[1] = {"fsdp"}, *other[1] = {"tp"};
  fsdp2_tensor tensor = on_test_device(int64_tensor(values, shape, 1)), out = {0};
  fsdp2_tensor* const where = is_wrong ? NULL : &out;
  fsdp2_mesh made = {0};
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  expect_told(fsdp2_mesh_broadcast(mesh, rank, tensor), rank, FSDP2_E_INVALID_ARGUMENT,
              "dim: expected 0 to 0, found 1");
  expect_told(fsdp2_mesh_scatter(mesh, 0, rank == 0 ? tensor : out, 0, where), rank,
              FSDP2_E_NULL_ARGUMENT, "out is NULL");
  expect_told(fsdp2_mesh_all_gather(mesh, 0, tensor, 0, where), rank, FSDP2_E_NULL_ARGUMENT,
              "out is NULL");
  expect_told(fsdp2_mesh_all_gather(mesh, 0, tensor, rank, &out), rank, FSDP2_E_INVALID_ARGUMENT,
              "tensor dim 1: expected 0 to 0");
  expect_told(fsdp2_mesh_reduce_scatter(mesh, 0, tensor, 0, is_wrong ? 9 : 0, &out), rank,
              FSDP2_E_INVALID_ARGUMENT, "op: expected FSDP2_REDUCE_SUM");
  expect_told(fsdp2_mesh_all_reduce_tensor(mesh, 0, tensor, is_wrong ? -1 : 0), rank,
              FSDP2_E_INVALID_ARGUMENT, "op: expected FSDP2_REDUCE_SUM");
  expect_told(fsdp2_mesh_flatten(mesh, is_wrong ? NULL : dim, 1, "flat", &made), rank,
              FSDP2_E_NULL_ARGUMENT, "names is NULL");
  expect_told(fsdp2_mesh_flatten(mesh, is_wrong ? other : dim, 1, "flat", &made), rank,
              FSDP2_E_NOT_FOUND, "tp");
  options.timeout_ms = is_wrong ? 5 : options.timeout_ms;
  expect_told(fsdp2_mesh_create_in(mesh, &options, &made), rank, FSDP2_E_INVALID_ARGUMENT,
              "leave them at their defaults");
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
}
static void a_mistake_about_a_mesh_is_told_at_once(void) {
  on_ranks("mistaken-mesh", 2, 0, mistake_a_mesh);
}

/* Which group waits for this rank nobody can tell: all are told. */
static void mistake_a_dim(fsdp2_mesh mesh, int rank) {
  const int64_t values[2] = {1, 2}, shape[1] = {2};
  fsdp2_tensor tensor = on_test_device(int64_tensor(values, shape, 1));
  expect_told(fsdp2_mesh_broadcast(mesh, rank == 1 ? 2 : 0, tensor), rank, FSDP2_E_INVALID_ARGUMENT,
              "dim: expected 0 to 1, found 2");
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
}
static void a_mistaken_dim_of_several_is_told_to_all(void) {
  on_ranks("mistaken-dim", 2, -1, mistake_a_dim);
}

/* On a mesh that is spent, the call fails for that, and says nothing about room. */
static void lack_room_on_a_spent_mesh(fsdp2_mesh mesh, int rank) {
  struct job job = start_and_step(mesh);
  const int64_t prompt[1] = {43};
  size_t n_tokens = 7;
  (void)rank;
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_OK(fsdp2_mesh_fail(mesh, "given up"));
  EXPECT_STATUS(fsdp2_module_generate(job.module, prompt, 1, NULL, NULL, 0, &n_tokens),
                FSDP2_E_PEER_FAILED);
  EXPECT(n_tokens == 7);
  end_job(&job);
}
static void too_little_room_is_not_said_on_a_spent_mesh(void) {
  on_ranks("room-spent", 2, 0, lack_room_on_a_spent_mesh);
}

int main(void) {
  RUN(what_is_not_there_costs_nothing);
  RUN(too_little_room_is_asked_for_again);
  RUN(a_wrong_token_on_all_ranks_costs_nothing);
  RUN(a_wrong_token_on_the_device_costs_nothing);
  RUN(a_wrong_token_on_one_rank_is_told_at_once);
  RUN(a_wrong_token_of_one_replica_is_told_at_once);
  RUN(a_mistake_about_a_shard_is_told_at_once);
  RUN(a_mistake_about_a_mesh_is_told_at_once);
  RUN(a_mistaken_dim_of_several_is_told_to_all);
  RUN(too_little_room_is_not_said_on_a_spent_mesh);
  return harness_result();
}
