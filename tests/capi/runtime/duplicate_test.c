/* Several handles to one object: each is as good as the others, and the object ends with the last.
 */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "tests/capi/ranks.h"

static struct job duplicate_job(const struct job* job) {
  struct job copy;
  EXPECT_OK(fsdp2_mesh_duplicate(job->mesh, &copy.mesh));
  EXPECT_OK(fsdp2_module_duplicate(job->module, &copy.module));
  EXPECT_OK(fsdp2_shard_duplicate(job->shard, &copy.shard));
  EXPECT_OK(fsdp2_optimizer_duplicate(job->optimizer, &copy.optimizer));
  EXPECT_OK(fsdp2_loader_duplicate(job->loader, &copy.loader));
  EXPECT_OK(fsdp2_step_duplicate(job->step, &copy.step));
  return copy;
}

static void a_duplicate_stands_for_the_same_object(void) {
  struct job job = start_lone_job();
  struct job copy = duplicate_job(&job);
  int64_t position = 0;
  double lr = 0.0;
  int32_t equal = 0, mode = 1;
  EXPECT(fsdp2_live_handles() == 12);
  EXPECT(copy.mesh.id != job.mesh.id && copy.shard.id != job.shard.id);
  EXPECT_NEAR(take_step(job.loader, copy.step).loss, kGoldenLoss[0], 5e-6);
  EXPECT_NEAR(take_step(copy.loader, job.step).loss, kGoldenLoss[1], 5e-6);
  EXPECT_OK(fsdp2_loader_get_position(job.loader, &position));
  EXPECT(position == 2);
  EXPECT_OK(fsdp2_optimizer_set_lr(copy.optimizer, 0.25));
  EXPECT_OK(fsdp2_optimizer_get_lr(job.optimizer, &lr));
  EXPECT(lr == 0.25);
  EXPECT_OK(fsdp2_module_train(copy.module, 0));
  EXPECT_OK(fsdp2_module_is_training(job.module, &mode));
  EXPECT(mode == 0);
  EXPECT_OK(fsdp2_mesh_is_equal(copy.mesh, job.mesh, &equal));
  EXPECT(equal == 1);
  end_lone_job(&copy);
  EXPECT(fsdp2_live_handles() == 6);
  end_lone_job(&job);
}

static void an_object_outlives_all_its_handles_but_one(void) {
  struct job job = start_lone_job();
  struct job copy = duplicate_job(&job);
  struct job again;
  end_lone_job(&job);
  EXPECT_STATUS(fsdp2_step_duplicate(job.step, &again.step), FSDP2_E_STALE_HANDLE);
  EXPECT_STATUS(fsdp2_step_destroy(job.step), FSDP2_E_STALE_HANDLE);
  again = duplicate_job(&copy); /* of a duplicate */
  end_lone_job(&copy);
  EXPECT_NEAR(take_step(again.loader, again.step).loss, kGoldenLoss[0], 5e-6);
  end_lone_job(&again);
}

static void tensors_and_states_share_what_they_hold(void) {
  const int64_t shape = 1;
  int64_t value = 7;
  const fsdp2_mesh mesh = lone_mesh();
  fsdp2_tensor tensor = int64_tensor(&value, &shape, 1), same = {0};
  fsdp2_state state = {0}, other = {0};
  size_t count = 0;
  double found = 0.0;
  EXPECT_OK(fsdp2_tensor_duplicate(tensor, &same));
  value = 8;
  EXPECT_OK(fsdp2_tensor_write(tensor, &value, sizeof(value)));
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  EXPECT_OK(fsdp2_tensor_get_value(same, &found));
  EXPECT(found == 8.0);
  EXPECT_OK(fsdp2_state_create(mesh, &state));
  EXPECT_OK(fsdp2_state_duplicate(state, &other));
  EXPECT_OK(fsdp2_state_add_tensor(state, "a", NULL, NULL, 0, same));
  EXPECT_OK(fsdp2_state_destroy(state));
  EXPECT_OK(fsdp2_state_get_count(other, &count));
  EXPECT(count == 1);
  EXPECT_OK(fsdp2_state_destroy(other));
  EXPECT_OK(fsdp2_tensor_destroy(same));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void one_backward_uses_a_loss_up_for_all_its_handles(void) {
  static const int64_t kShape[2] = {1, 4}, kTokens[4] = {1, 2, 3, 4};
  struct job job = start_lone_job();
  const fsdp2_tensor tokens = int64_tensor(kTokens, kShape, 2);
  fsdp2_tensor batch[2], loss = {0}, same = {0};
  size_t n = 0;
  batch[0] = batch[1] = tokens;
  EXPECT_OK(fsdp2_module_forward(job.module, batch, 2, 0, &loss, 1, &n));
  EXPECT_OK(fsdp2_tensor_duplicate(loss, &same));
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT_STATUS(fsdp2_tensor_backward(same), FSDP2_E_WRONG_STATE);
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  EXPECT_OK(fsdp2_tensor_destroy(same));
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  end_lone_job(&job);
}

/* The lock on a series is the shard's. */
static void a_shard_keeps_its_series_until_it_ends(void) {
  struct job job = start_lone_job();
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  fsdp2_shard shard = {0};
  char lock[1024];
  int32_t done = 0;
  snprintf(lock, sizeof(lock), "%s/.fsdp2-series", temporary_path("duplicates"));
  options.background = 1;
  EXPECT_OK(fsdp2_shard_duplicate(job.shard, &shard));
  EXPECT_OK(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader,
                                  temporary_path("duplicates/step-00000001"), &options));
  end_lone_job(&job);
  EXPECT_OK(fsdp2_checkpoint_wait(shard));
  EXPECT_OK(fsdp2_checkpoint_poll(shard, &done));
  EXPECT(done == 1);
  EXPECT(access(lock, F_OK) == 0);
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT(access(lock, F_OK) != 0);
}

/* Ranks may have different numbers of handles: none of this communicates. */
static void duplicate_on_one_rank(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh), copy;
  if (rank == 0) {
    copy = duplicate_job(&job);
  }
  take_step(job.loader, job.step);
  end_job(&job);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  if (rank == 0) {
    end_lone_job(&copy);
  }
}
static void one_rank_may_have_more_handles_than_another(void) {
  on_ranks("duplicates", 2, 0, duplicate_on_one_rank);
}

static void* duplicate_and_destroy(void* shard) {
  int i;
  for (i = 0; i < 2000; ++i) {
    fsdp2_shard same = {0};
    EXPECT_OK(fsdp2_shard_duplicate(*(fsdp2_shard*)shard, &same));
    EXPECT_OK(fsdp2_shard_destroy(same));
  }
  return NULL;
}

/* A collector's thread and the one that trains. */
static void handles_come_and_go_while_an_object_is_in_use(void) {
  struct job job = start_lone_job();
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, duplicate_and_destroy, &job.shard) == 0);
  EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[0], 5e-6);
  EXPECT(pthread_join(thread, NULL) == 0);
  end_lone_job(&job);
}

int main(void) {
  RUN(a_duplicate_stands_for_the_same_object);
  RUN(an_object_outlives_all_its_handles_but_one);
  RUN(tensors_and_states_share_what_they_hold);
  RUN(one_backward_uses_a_loss_up_for_all_its_handles);
  RUN(a_shard_keeps_its_series_until_it_ends);
  RUN(one_rank_may_have_more_handles_than_another);
  RUN(handles_come_and_go_while_an_object_is_in_use);
  return harness_result();
}
