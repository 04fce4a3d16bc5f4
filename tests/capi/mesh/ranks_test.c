/* Training by several ranks, as threads of this process, through the C ABI. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/ranks.h"

static void train(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  fsdp2_parameter_info info;
  fsdp2_shard_stats stats;
  int i;
  for (i = 0; i < 3; ++i) {
    const fsdp2_step_result result = take_step(job.loader, job.step);
    EXPECT(result.n_tokens == 8 * 32);
    EXPECT_NEAR(result.loss, kGoldenLoss[i], 5e-6);
  }
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_shard_get_parameter_info(job.shard, 0, &info));
  EXPECT(info.shard_dim == 0 && info.local_shape[0] == 192 && info.local_offset == 192 * rank);
  stats.struct_size = (uint32_t)sizeof(stats);
  EXPECT_OK(fsdp2_shard_get_stats(job.shard, &stats));
  EXPECT(stats.reduce_scatters == 3 * stats.n_units && stats.all_gather_bytes > 0);
  EXPECT(stats.peak_unsharded_bytes > 0);
  end_job(&job);
}
static void two_ranks_have_the_golden_losses(void) { on_ranks("train", 2, 0, train); }

static void train_replicated(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  fsdp2_parameter_info info;
  int i;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_shard_get_parameter_info(job.shard, 0, &info));
  EXPECT(info.local_shape[0] == 192 && info.local_offset == 192 * (rank % 2));
  for (i = 0; i < 3; ++i) {
    EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[i], 5e-6);
  }
  end_job(&job);
}
static void four_ranks_of_two_replicas_have_the_golden_losses(void) {
  on_ranks("replicated", 4, 2, train_replicated);
}

static void gather(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_llama();
  fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_tensor full = {0}, local = {0};
  static float whole[2][384 * 64], rows[2][192 * 64];
  EXPECT_OK(fsdp2_shard_get_parameter(shard, 0, FSDP2_PARAMETER_FULL, &full));
  EXPECT_OK(fsdp2_shard_get_parameter(shard, 0, FSDP2_PARAMETER_LOCAL, &local));
  EXPECT_OK(fsdp2_tensor_read(full, whole[rank], sizeof(whole[rank])));
  EXPECT_OK(fsdp2_tensor_read(local, rows[rank], sizeof(rows[rank])));
  EXPECT(memcmp(whole[rank] + rank * 192 * 64, rows[rank], sizeof(rows[rank])) == 0);
  EXPECT_OK(fsdp2_tensor_destroy(full));
  EXPECT_OK(fsdp2_tensor_destroy(local));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
}
static void a_full_parameter_is_gathered_from_the_rows(void) { on_ranks("gather", 2, 0, gather); }

static void save(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_llama(), again = {0};
  fsdp2_shard shard = shard_of(module, mesh);
  const char* directory = temporary_path("saved-by-two");
  (void)rank;
  EXPECT_OK(fsdp2_checkpoint_save_pretrained(shard, directory));
  EXPECT_OK(fsdp2_module_from_pretrained(directory, NULL, &again));
  EXPECT_STATUS(fsdp2_checkpoint_save_full(shard, "/no/such/directory/x.safetensors"),
                rank == 0 ? FSDP2_E_NOT_FOUND : FSDP2_E_PEER_FAILED);
  EXPECT_MESSAGE("/no/such/directory");
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_OK(fsdp2_module_destroy(again));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
}
static void saving_ends_alike_on_all_ranks(void) { on_ranks("save", 2, 0, save); }

static void shard_unlike(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_llama();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_shard shard = {5};
  options.reduce_dtype = rank == 0 ? FSDP2_DTYPE_F32 : FSDP2_DTYPE_BF16;
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, &options, &shard), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("reduce_dtype: rank 0 has 1, rank 1 has 4");
  options.reduce_dtype = FSDP2_DTYPE_KEEP;
  options.wrap = rank == 0 ? FSDP2_WRAP_DEFAULT : 9;
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, &options, &shard),
                rank == 0 ? FSDP2_E_PEER_FAILED : FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("options.wrap");
  EXPECT(shard.id == 5);
  shard = shard_of(module, mesh);
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
}
static void different_options_fail_on_all_ranks_and_can_be_put_right(void) {
  on_ranks("shard-unlike", 2, 0, shard_unlike);
}

static void open_unlike(fsdp2_mesh mesh, int rank) {
  fsdp2_loader_options options = FSDP2_LOADER_OPTIONS_INIT;
  fsdp2_loader loader = {5};
  options.sequence_length = 32;
  options.global_batch = 7;
  options.vocab_size = 384;
  EXPECT_STATUS(fsdp2_loader_open(mesh, TINY_LLAMA_TOKENS, &options, &loader),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("7");
  options.global_batch = 8;
  EXPECT_STATUS(
      fsdp2_loader_open(mesh, rank == 0 ? TINY_LLAMA_TOKENS : "/no/such.bin", &options, &loader),
      rank == 0 ? FSDP2_E_PEER_FAILED : FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("/no/such.bin");
  EXPECT(loader.id == 5);
  loader = golden_loader(mesh);
  EXPECT_OK(fsdp2_loader_destroy(loader));
}
static void a_loader_opens_on_all_ranks_or_none(void) { on_ranks("open", 2, 0, open_unlike); }

static void step_fails_on_one(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  fsdp2_step_result result;
  const int64_t shape[2] = {1, 4};
  const int64_t tokens[2][4] = {{1, 2, 3, 4}, {1, 2, 384, 4}};
  fsdp2_tensor batch[2];
  result.struct_size = (uint32_t)sizeof(result);
  batch[0] = batch[1] = int64_tensor(tokens[rank], shape, 2);
  EXPECT_STATUS(fsdp2_step_run(job.step, batch, 2, &result),
                rank == 0 ? FSDP2_E_PEER_FAILED : FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("384");
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  end_job(&job);
}
static void a_step_that_fails_on_one_rank_fails_on_all(void) {
  on_ranks("step-fails", 2, 0, step_fails_on_one);
}

static void generate(fsdp2_mesh mesh, int rank) {
  static int64_t tokens[2][8];
  static size_t n[2];
  fsdp2_module module = tiny_llama();
  fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_generate_options options = FSDP2_GENERATE_OPTIONS_INIT;
  const int64_t prompt[2] = {43, 51};
  options.max_new_tokens = 8;
  EXPECT_OK(fsdp2_module_generate(module, prompt, 2, &options, tokens[rank], 8, &n[rank]));
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT(n[0] == 8 && n[1] == 8 && memcmp(tokens[0], tokens[1], sizeof(tokens[0])) == 0);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
}
static void all_ranks_generate_the_same_tokens(void) { on_ranks("generate", 2, 0, generate); }

static pthread_barrier_t visited;

static void* measure(void* argument) {
  double norm = 0.0;
  fsdp2_status status;
  do { /* the visitor may be inside at this moment */
    status = fsdp2_shard_clip_grad_norm(*(fsdp2_shard*)argument, 0.0, 2.0, &norm);
  } while (status == FSDP2_E_BUSY);
  EXPECT_OK(status);
  return NULL;
}

/* Rank 1 comes to the collective only after rank 0's second thread has been turned away. */
static void visit(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_llama();
  fsdp2_shard shard = shard_of(module, mesh);
  if (rank == 0) {
    pthread_t inside;
    fsdp2_status status = FSDP2_OK;
    EXPECT(pthread_create(&inside, NULL, measure, &shard) == 0);
    while (status == FSDP2_OK) {
      status = fsdp2_shard_zero_grad(shard);
    }
    EXPECT_STATUS(status, FSDP2_E_BUSY);
    EXPECT_MESSAGE("another is inside fsdp2_shard_clip_grad_norm");
    EXPECT_OK(fsdp2_shard_destroy(shard));
    pthread_barrier_wait(&visited);
    EXPECT(pthread_join(inside, NULL) == 0);
  } else {
    pthread_barrier_wait(&visited);
    measure(&shard);
    EXPECT_OK(fsdp2_shard_destroy(shard));
  }
  EXPECT_OK(fsdp2_module_destroy(module));
}
static void a_second_thread_is_refused_and_may_destroy(void) {
  EXPECT(pthread_barrier_init(&visited, NULL, 2) == 0);
  on_ranks("visit", 2, 0, visit);
  EXPECT(pthread_barrier_destroy(&visited) == 0);
}

/* A learning rate that one step suffices to ruin the model with. */
static struct job ruined_job(fsdp2_mesh mesh, int32_t not_finite, int32_t max_skips_in_row) {
  struct job job = start_job(mesh);
  fsdp2_step_options options = FSDP2_STEP_OPTIONS_INIT;
  options.not_finite = not_finite;
  options.max_skips_in_row = max_skips_in_row;
  EXPECT_OK(fsdp2_step_destroy(job.step));
  EXPECT_OK(fsdp2_optimizer_set_lr(job.optimizer, 1e38));
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, &options, &job.step));
  EXPECT(take_step(job.loader, job.step).finite == 1);
  return job;
}

/* The next step fails with a message that has this part. The mesh goes on working. */
static void expect_not_finite(const struct job* job, int rank, const char* part) {
  fsdp2_error_info info;
  fsdp2_step_result result;
  fsdp2_tensor batch[2] = {{0}, {0}};
  memset(&result, 0, sizeof(result));
  result.struct_size = (uint32_t)sizeof(result);
  result.step = 77;
  EXPECT_OK(fsdp2_loader_next(job->loader, &batch[0], &batch[1]));
  EXPECT_STATUS(fsdp2_step_run(job->step, batch, 2, &result), FSDP2_E_NOT_FINITE);
  EXPECT_MESSAGE(part);
  info.struct_size = (uint32_t)sizeof(info);
  fsdp2_error_last(&info);
  EXPECT(info.rank == rank && result.step == 77);
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  EXPECT_OK(fsdp2_mesh_barrier(job->mesh));
}

static void ruin(fsdp2_mesh mesh, int rank) {
  struct job job = ruined_job(mesh, FSDP2_NOT_FINITE_ERROR, 100);
  expect_not_finite(&job, rank, "step 1: the loss of rank 0 is ");
  expect_not_finite(&job, rank, "step 1: the loss of rank 0 is ");
  end_job(&job);
}
static void a_step_that_is_not_finite_fails_on_all_and_leaves_the_mesh(void) {
  on_ranks("ruin1", 1, 0, ruin);
  on_ranks("ruin2", 2, 0, ruin);
}

static void ruin_and_skip(fsdp2_mesh mesh, int rank) {
  struct job job = ruined_job(mesh, FSDP2_NOT_FINITE_SKIP, 2);
  int i;
  for (i = 1; i < 3; ++i) {
    const fsdp2_step_result result = take_step(job.loader, job.step);
    EXPECT(result.applied == 0 && result.finite == 0 && result.skips_in_row == i);
    EXPECT(result.step == i);
  }
  expect_not_finite(&job, rank, "after 2 steps in a row");
  end_job(&job);
}
static void steps_that_are_not_finite_are_skipped_up_to_a_limit(void) {
  on_ranks("ruin3", 2, 0, ruin_and_skip);
}

static void ruin_and_apply(fsdp2_mesh mesh, int rank) {
  struct job job = ruined_job(mesh, FSDP2_NOT_FINITE_APPLY, 1);
  const fsdp2_step_result result = take_step(job.loader, job.step);
  (void)rank;
  EXPECT(result.applied == 1 && result.finite == 0 && result.skips_in_row == 0);
  end_job(&job);
}
static void steps_that_are_not_finite_are_applied_if_asked_for(void) {
  on_ranks("ruin4", 2, 0, ruin_and_apply);
}

static fsdp2_status save_step(const struct job* job, const char* name, int32_t allow_not_finite) {
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  options.keep_last = 1;
  options.allow_not_finite = allow_not_finite;
  return fsdp2_checkpoint_save(job->shard, job->optimizer, job->step, job->loader,
                               temporary_path(name), &options);
}

static void ruin_and_save(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  char found[256];
  size_t needed = 0;
  (void)rank;
  EXPECT_OK(save_step(&job, "ruined/step-00000001", 0));
  end_job(&job);
  job = ruined_job(mesh, FSDP2_NOT_FINITE_APPLY, 1);
  EXPECT(take_step(job.loader, job.step).applied == 1);
  EXPECT_STATUS(save_step(&job, "ruined/step-00000002", 0), FSDP2_E_NOT_FINITE);
  EXPECT_MESSAGE("has been infinite or NaN since step 0, whose learning rate is 1e+38");
  EXPECT_STATUS(fsdp2_checkpoint_save_full(job.shard, temporary_path("ruined.safetensors")),
                FSDP2_E_NOT_FINITE);
  EXPECT_OK(fsdp2_checkpoint_find(temporary_path("ruined"), found, sizeof(found), &needed));
  EXPECT(strstr(found, "step-00000001") != NULL);
  EXPECT_OK(save_step(&job, "asked_for", 1));
  EXPECT_OK(fsdp2_checkpoint_load(job.shard, job.optimizer, job.step, job.loader, found, NULL));
  EXPECT_OK(save_step(&job, "ruined/step-00000002", 0));
  end_job(&job);
}
static void what_is_not_finite_is_saved_only_if_asked_for(void) {
  on_ranks("ruin5", 2, 0, ruin_and_save);
}

int main(void) {
  RUN(two_ranks_have_the_golden_losses);
  RUN(four_ranks_of_two_replicas_have_the_golden_losses);
  RUN(a_full_parameter_is_gathered_from_the_rows);
  RUN(saving_ends_alike_on_all_ranks);
  RUN(different_options_fail_on_all_ranks_and_can_be_put_right);
  RUN(a_loader_opens_on_all_ranks_or_none);
  RUN(a_step_that_fails_on_one_rank_fails_on_all);
  RUN(all_ranks_generate_the_same_tokens);
  RUN(a_second_thread_is_refused_and_may_destroy);
  RUN(a_step_that_is_not_finite_fails_on_all_and_leaves_the_mesh);
  RUN(steps_that_are_not_finite_are_skipped_up_to_a_limit);
  RUN(steps_that_are_not_finite_are_applied_if_asked_for);
  RUN(what_is_not_finite_is_saved_only_if_asked_for);
  return harness_result();
}
