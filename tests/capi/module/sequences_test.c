/* Ranks that share sequences: the same losses as of ranks that do not. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/ranks.h"

enum { kSteps = 3 };

static struct expectation {
  int64_t fsdp_size, ulysses_size;
  fsdp2_step_result results[kSteps];
  fsdp2_shard_stats stats;
} whole, shared;

static void train(fsdp2_mesh job_mesh, int rank, struct expectation* way) {
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  struct job job;
  int i;
  options.fsdp_size = way->fsdp_size;
  options.ulysses_size = way->ulysses_size;
  options.device_type = test_device();
  EXPECT_OK(fsdp2_mesh_create_in(job_mesh, &options, &mesh));
  job = start_job(mesh);
  for (i = 0; i < kSteps; ++i) {
    const fsdp2_step_result result = take_step(job.loader, job.step);
    if (rank == 0) {
      way->results[i] = result;
    }
  }
  if (rank == 0) {
    way->stats.struct_size = (uint32_t)sizeof(way->stats);
    EXPECT_OK(fsdp2_shard_get_stats(job.shard, &way->stats));
  }
  end_job(&job);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}
static void train_whole(fsdp2_mesh mesh, int rank) { train(mesh, rank, &whole); }
static void train_shared(fsdp2_mesh mesh, int rank) { train(mesh, rank, &shared); }

static void compare(int64_t fsdp_size, int64_t ulysses_size) {
  int i;
  shared.fsdp_size = fsdp_size;
  shared.ulysses_size = ulysses_size;
  on_ranks("shared", 4, 0, train_shared);
  for (i = 0; i < kSteps; ++i) {
    EXPECT_NEAR(shared.results[i].loss, whole.results[i].loss, 2e-5);
    EXPECT_NEAR(shared.results[i].grad_norm, whole.results[i].grad_norm, 2e-4);
    EXPECT(shared.results[i].n_tokens == 8 * 32 && whole.results[i].n_tokens == 8 * 32);
    EXPECT(shared.results[i].n_labels == whole.results[i].n_labels);
  }
  EXPECT(shared.stats.all_to_alls == (int64_t)kSteps * 2 * 4);
  EXPECT(shared.stats.all_to_all_bytes > 0 && whole.stats.all_to_alls == 0);
}

static void steps_are_those_of_ranks_that_do_not_share(void) {
  on_ranks("whole", 4, 0, train_whole);
  compare(0, 2);
  compare(0, 4);
  compare(2, 2);
}

/* (dp, cp) is never (replicate, shard). */
static void look_at_shard(fsdp2_mesh job_mesh, int rank) {
  static const char* const names[2] = {"dp", "cp"};
  const int64_t shape[2] = {2, 2};
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  fsdp2_module module = tiny_llama();
  fsdp2_shard shard;
  fsdp2_parameter_info info;
  (void)rank;
  options.n_dims = 2;
  options.shape = shape;
  options.names = names;
  options.device_type = test_device();
  EXPECT_OK(fsdp2_mesh_create_in(job_mesh, &options, &mesh));
  shard = shard_of(module, mesh);
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_shard_get_parameter_info(shard, 0, &info));
  EXPECT(info.shard_ranks == 4 && info.replica_ranks == 1);
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}
static void a_named_dim_shares_them_too(void) { on_ranks("named", 4, 0, look_at_shard); }

static void refuse(fsdp2_mesh job_mesh, int rank) {
  static const char* const names[2] = {"dp", "cp"};
  const int64_t shape[2] = {1, 3};
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  fsdp2_module module = tiny_llama();
  fsdp2_shard shard = {0};
  (void)rank;
  options.ulysses_size = 2;
  options.device_type = test_device();
  EXPECT_STATUS(fsdp2_mesh_create_in(job_mesh, &options, &mesh), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("ulysses_size 2 does not divide the 3 ranks");
  options.n_dims = 2;
  options.shape = shape;
  options.names = names;
  EXPECT_STATUS(fsdp2_mesh_create_in(job_mesh, &options, &mesh), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("options.ulysses_size: expected 0 beside a shape");
  options.ulysses_size = 0;
  EXPECT_OK(fsdp2_mesh_create_in(job_mesh, &options, &mesh));
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, NULL, &shard), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("its 4 heads cannot be shared by 3 ranks");
  /* Nothing has changed. */
  EXPECT_OK(fsdp2_shard_create(module, job_mesh, NULL, &shard));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}
static void ranks_that_cannot_share_are_refused(void) { on_ranks("refused", 3, 0, refuse); }

int main(void) {
  RUN(steps_are_those_of_ranks_that_do_not_share);
  RUN(a_named_dim_shares_them_too);
  RUN(ranks_that_cannot_share_are_refused);
  return harness_result();
}
