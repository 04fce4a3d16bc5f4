/* Two stages of two processes each: they train different modules, then a process of one stage dies.
 * Its neighbour hears of it soon, and the other stage goes on. Run with a rendezvous and a rank
 * this program is that rank, otherwise it starts them. */
#define _POSIX_C_SOURCE 200809L
#include <spawn.h>
#include <sys/wait.h>

#include "tests/capi/slices.h"

extern char** environ;

enum { kWorld = 4, kDeadly = 3 };

static void die_or_go_on(fsdp2_mesh row, int rank) {
  struct stage stage = start_stage(row, rank / 2);
  const time_t start = time(NULL);
  double loss = 0.0;
  EXPECT_OK(run_stage(&stage, rank % 2, &loss));
  if (rank == kDeadly) {
    _exit(harness_failures != 0);
  }
  if (rank / 2 == kDeadly / 2) {
    EXPECT(run_stage(&stage, rank % 2, &loss) / 100 == 4);
    EXPECT_MESSAGE("rank 3");
    EXPECT(time(NULL) - start < 30); /* long before the time-out */
    EXPECT_STATUS(fsdp2_mesh_barrier(row), FSDP2_E_PEER_FAILED);
  } else {
    int i;
    for (i = 0; i < 5; ++i) {
      sleep_ms(500); /* the others have failed meanwhile */
      EXPECT_OK(run_stage(&stage, rank % 2, &loss));
    }
    EXPECT_OK(fsdp2_checkpoint_save(stage.shard, stage.optimizer, stage.step, (fsdp2_loader){0},
                                    temporary_path("survivors"), NULL));
  }
  end_stage(&stage);
}

static int run_as_rank(const char* rendezvous, int rank) {
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh job = {0}, grid, row;
  double losses[kSteps + 1];
  char name[32];
  EXPECT_OK(fsdp2_runtime_set_threads(1));
  options.rendezvous = rendezvous;
  options.rank = rank;
  options.world_size = kWorld;
  options.timeout_ms = 60000;
  options.device_type = test_device();
  if (options.device_type != NULL) {
    options.backend = FSDP2_BACKEND_GLOO; /* NCCL takes one rank of a GPU */
  }
  EXPECT_OK(fsdp2_mesh_create(&options, &job));
  grid = grid_in(job, 2, 2);
  row = line_of(grid, "dp");
  snprintf(name, sizeof(name), "process-stage-%d", rank / 2);
  train_stage(row, rank / 2, rank % 2, temporary_path(name), losses);
  EXPECT_OK(fsdp2_mesh_barrier(grid));
  die_or_go_on(row, rank);
  EXPECT_STATUS(fsdp2_mesh_barrier(grid), FSDP2_E_PEER_FAILED);
  EXPECT_MESSAGE("rank 3");
  EXPECT_OK(fsdp2_mesh_destroy(row));
  EXPECT_OK(fsdp2_mesh_destroy(grid));
  EXPECT_OK(fsdp2_mesh_destroy(job));
  EXPECT(fsdp2_live_handles() == 0);
  return harness_result();
}

int main(int argc, char** argv) {
  char rendezvous[1100];
  pid_t pids[kWorld];
  int rank;
  if (argc == 3) {
    return run_as_rank(argv[1], atoi(argv[2]));
  }
  snprintf(rendezvous, sizeof(rendezvous), "file://%s", temporary_path("meeting"));
  for (rank = 0; rank < kWorld; ++rank) {
    char number[2] = {(char)('0' + rank), '\0'};
    char* arguments[4];
    arguments[0] = argv[0];
    arguments[1] = rendezvous;
    arguments[2] = number;
    arguments[3] = NULL;
    EXPECT(posix_spawn(&pids[rank], argv[0], NULL, NULL, arguments, environ) == 0);
  }
  for (rank = 0; rank < kWorld; ++rank) {
    int status = -1;
    fprintf(stderr, "[ run ] rank %d\n", rank);
    EXPECT(waitpid(pids[rank], &status, 0) == pids[rank]);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  return harness_result();
}
