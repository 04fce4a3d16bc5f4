/* One rank of three fails: each of the others gets a status that names it and the collective, soon,
 * and its process goes on with a new mesh. Ranks are threads, then processes. Run with a scenario's
 * name and a rank this program is that rank, otherwise it starts them. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/capi/ranks.h"

extern char** environ;

static enum { kThreads, kProcesses } ranks_are = kThreads;

/* The time-out is longer than a process mostly stands still on a machine that is busy; so late
 * after it, as promised, all have been told. */
enum { kWorld = 3, kTimeoutMs = 6000, kLateMs = 5000, kPatientMs = 60000 };

static fsdp2_mesh join(const char* rendezvous, int32_t backend, int rank, int world_size,
                       int64_t timeout_ms) {
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  options.rendezvous = rendezvous;
  options.backend = backend;
  options.rank = rank;
  options.world_size = world_size;
  options.timeout_ms = timeout_ms;
  EXPECT_OK(fsdp2_mesh_create(&options, &mesh));
  return mesh;
}

static void wait_ms(long ms) {
  struct timespec time;
  time.tv_sec = ms / 1000;
  time.tv_nsec = ms % 1000 * 1000000;
  nanosleep(&time, NULL);
}

static void wait_for_file(const char* path, const char* otherwise) {
  int ms;
  for (ms = 0; access(path, F_OK) != 0; ms += 2) {
    if (!EXPECT(ms < kPatientMs)) {
      fprintf(stderr, "%s\n", otherwise);
      exit(harness_result());
    }
    wait_ms(2);
  }
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* What the other ranks see of a call that is refused, */
static void expect_refusal_told(fsdp2_status status, int culprit, const char* what, double begin) {
  char name[16];
  snprintf(name, sizeof(name), "rank %d", culprit);
  EXPECT(status / 100 == 4);
  EXPECT_MESSAGE(name);
  EXPECT_MESSAGE(what);
  EXPECT(now() - begin < (kTimeoutMs + kLateMs) / 1000.0);
}

/* and of one that fails in a collective. */
static void expect_told(fsdp2_status status, int culprit, const char* what, double begin) {
  expect_refusal_told(status, culprit, what, begin);
  EXPECT_MESSAGE(" of group ");
}

/* Without a loader, whose batch must divide by the ranks that are left. */
static struct job start(fsdp2_mesh mesh) {
  struct job job;
  memset(&job, 0, sizeof(job));
  job.module = tiny_llama();
  job.shard = shard_of(job.module, mesh);
  job.optimizer = golden_adamw(job.shard);
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, NULL, &job.step));
  return job;
}

static fsdp2_status run_step(const struct job* job, int64_t token) {
  const int64_t shape[2] = {1, 4};
  int64_t values[4] = {1, 2, 3, 4};
  fsdp2_tensor batch[2];
  fsdp2_step_result result;
  fsdp2_status status;
  result.struct_size = (uint32_t)sizeof(result);
  batch[1] = int64_tensor(values, shape, 2);
  values[2] = token;
  batch[0] = int64_tensor(values, shape, 2);
  status = fsdp2_step_run(job->step, batch, 2, &result);
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  return status;
}

static void end(const struct job* job) {
  EXPECT_OK(fsdp2_step_destroy(job->step));
  EXPECT_OK(fsdp2_optimizer_destroy(job->optimizer));
  EXPECT_OK(fsdp2_shard_destroy(job->shard));
  EXPECT_OK(fsdp2_module_destroy(job->module));
}

static void forward_fails(fsdp2_mesh mesh, int rank, int culprit) {
  const struct job job = start(mesh);
  const double begin = now();
  fsdp2_status status;
  EXPECT_OK(run_step(&job, 3));
  status = run_step(&job, rank == culprit ? 384 : 3);
  if (rank == culprit) {
    EXPECT(status == FSDP2_E_INVALID_ARGUMENT);
    EXPECT_MESSAGE("384");
  } else {
    expect_refusal_told(status, culprit, "384", begin);
  }
  EXPECT_OK(fsdp2_mesh_barrier(mesh)); /* nothing was sent: the mesh goes on */
  EXPECT_OK(run_step(&job, 3));
  end(&job);
}

static void shapes_differ(fsdp2_mesh mesh, int rank, int culprit) {
  const int64_t values[4] = {1, 2, 3, 4}, shape[2] = {2, rank == culprit ? 2 : 1};
  const fsdp2_tensor tensor = int64_tensor(values, shape, 2);
  fsdp2_tensor out = {0};
  EXPECT_STATUS(fsdp2_mesh_all_gather(mesh, 0, tensor, 0, &out), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE(
      "all_gather in group world/gather: rank 0 has Long (2, 1), rank 1 has Long (2, 2)");
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  EXPECT_OK(fsdp2_mesh_barrier(mesh)); /* nothing was sent: the mesh goes on */
}

/* What rank 0 writes once it has been told. */
static const char* told_file(void) {
  return temporary_path(ranks_are == kProcesses ? "told-process" : "told-thread");
}

/* The culprit comes once rank 0 has given up. */
static void comes_late(fsdp2_mesh mesh, int rank, int culprit) {
  const struct job job = start(mesh);
  fsdp2_status status;
  double begin;
  EXPECT_OK(run_step(&job, 3));
  if (rank == culprit) {
    wait_for_file(told_file(), "rank 0 has not been told");
  }
  begin = now();
  status = run_step(&job, 3);
  expect_told(status, culprit, "is in no collective", begin);
  if (rank == 0) {
    write_file(told_file(), "", 0);
  }
  end(&job);
}

static void is_killed(fsdp2_mesh mesh, int rank, int culprit) {
  const struct job job = start(mesh);
  double begin;
  EXPECT_OK(run_step(&job, 3));
  if (rank == culprit) {
    raise(SIGKILL);
  }
  begin = now();
  expect_told(run_step(&job, 3), culprit, "has ended", begin);
  end(&job);
}

/* Rank 0 keeps the store that the others meet at, which does not answer then. */
static void is_stopped(fsdp2_mesh mesh, int rank, int culprit) {
  const struct job job = start(mesh);
  double begin;
  EXPECT_OK(run_step(&job, 3));
  if (rank == culprit) {
    raise(SIGSTOP);
  }
  begin = now();
  expect_told(run_step(&job, 3), culprit, "does not answer", begin);
  end(&job);
}

static const struct scenario {
  const char* name;
  void (*body)(fsdp2_mesh mesh, int rank, int culprit);
  int culprit, by_threads;
  int signal;      /* that ends the culprit, which is not in the next mesh */
  int32_t backend; /* of processes */
} kScenarios[] = {
    {"forward_fails", forward_fails, 1, 1, 0, FSDP2_BACKEND_AUTO},
    {"forward_fails_on_rank_0", forward_fails, 0, 1, 0, FSDP2_BACKEND_AUTO},
    {"shapes_differ", shapes_differ, 1, 1, 0, FSDP2_BACKEND_AUTO},
    {"shapes_differ_over_gloo", shapes_differ, 1, 0, 0, FSDP2_BACKEND_GLOO},
    {"comes_late", comes_late, 1, 1, 0, FSDP2_BACKEND_AUTO},
    {"is_killed", is_killed, 1, 0, SIGKILL, FSDP2_BACKEND_AUTO},
    {"is_killed_over_gloo", is_killed, 1, 0, SIGKILL, FSDP2_BACKEND_GLOO},
    {"rank_0_is_killed", is_killed, 0, 0, SIGKILL, FSDP2_BACKEND_AUTO},
    {"is_stopped_over_gloo", is_stopped, 1, 0, SIGSTOP, FSDP2_BACKEND_GLOO},
    {"rank_0_is_stopped", is_stopped, 0, 0, SIGSTOP, FSDP2_BACKEND_AUTO},
};
enum { kScenarioCount = sizeof(kScenarios) / sizeof(kScenarios[0]) };

/* Time-outs are for ranks that wait for each other, and not for programs that a busy machine is
 * slow to start. */
static void wait_until_all_have_started(const char* scenario, int rank) {
  int other;
  for (other = 0; other < kWorld; ++other) {
    const int number = (rank + other) % kWorld; /* its own first */
    char name[64], otherwise[96];
    snprintf(name, sizeof(name), "started-%s-%d", scenario, number);
    if (number == rank) {
      write_file(temporary_path(name), "", 0);
    }
    snprintf(otherwise, sizeof(otherwise), "rank %d of %s has not started", number, scenario);
    wait_for_file(temporary_path(name), otherwise);
  }
}

/* Rank 0 keeps the store, and stays until the others have been told, too: one that stands still
 * meanwhile would hear no more than that the store is lost. */
static void leave_last(const struct scenario* scenario, int rank) {
  int other;
  for (other = 0; other < kWorld; ++other) {
    char name[64];
    snprintf(name, sizeof(name), "done-%s-%d", scenario->name, other);
    if (other == rank) {
      write_file(temporary_path(name), "", 0);
    } else if (rank == 0 && (scenario->signal == 0 || other != scenario->culprit)) {
      wait_for_file(temporary_path(name), "a rank has not been told");
    }
  }
}

/* The scenario, then a step on a new mesh of those that are left. */
static void be_a_rank(const struct scenario* scenario, const char* scheme, int rank) {
  char first[1100], second[1200];
  fsdp2_mesh mesh;
  struct job job;
  const int gone = scenario->signal != 0 ? 1 : 0;
  const int32_t backend = scheme[0] == 't' ? FSDP2_BACKEND_AUTO : scenario->backend;
  snprintf(first, sizeof(first), "%s-%s", scheme, scenario->name);
  snprintf(second, sizeof(second), "%s-again", first);
  mesh = join(first, backend, rank, kWorld, kTimeoutMs);
  scenario->body(mesh, rank, scenario->culprit);
  if (ranks_are == kProcesses) {
    leave_last(scenario, rank);
  }
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  /* They come one after the other, as they were told. */
  mesh = join(second, backend, rank > scenario->culprit ? rank - gone : rank, kWorld - gone,
              kPatientMs);
  job = start(mesh);
  EXPECT_OK(run_step(&job, 3));
  end(&job);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

struct thread_rank {
  int scenario, number;
};

static void* run_thread(void* argument) {
  const struct thread_rank* rank = (const struct thread_rank*)argument;
  EXPECT_OK(fsdp2_runtime_set_threads(1));
  be_a_rank(&kScenarios[rank->scenario], "thread://failures", rank->number);
  return NULL;
}

static void by_threads(void) {
  int i, rank;
  for (i = 0; i < kScenarioCount; ++i) {
    pthread_t threads[kWorld];
    struct thread_rank ranks[kWorld];
    for (rank = 0; kScenarios[i].by_threads && rank < kWorld; ++rank) {
      ranks[rank].scenario = i;
      ranks[rank].number = rank;
      EXPECT(pthread_create(&threads[rank], NULL, run_thread, &ranks[rank]) == 0);
    }
    for (rank = 0; kScenarios[i].by_threads && rank < kWorld; ++rank) {
      EXPECT(pthread_join(threads[rank], NULL) == 0);
    }
  }
}

static void expect_end(const struct scenario* scenario, int rank, pid_t pid) {
  int status = -1;
  EXPECT(waitpid(pid, &status, 0) == pid);
  fprintf(stderr, "[ end ] %s, rank %d: %d\n", scenario->name, rank, status);
  if (scenario->signal != 0 && rank == scenario->culprit) {
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  } else {
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

static void by_processes(const char* program) {
  int i, rank;
  for (i = 0; i < kScenarioCount; ++i) {
    pid_t pids[kWorld];
    for (rank = 0; rank < kWorld; ++rank) {
      char scenario[2] = {(char)('0' + i), '\0'}, number[2] = {(char)('0' + rank), '\0'};
      char* arguments[4];
      arguments[0] = (char*)program;
      arguments[1] = scenario;
      arguments[2] = number;
      arguments[3] = NULL;
      EXPECT(posix_spawn(&pids[rank], program, NULL, NULL, arguments, environ) == 0);
    }
    for (rank = 0; rank < kWorld; ++rank) {
      if (rank != kScenarios[i].culprit) {
        expect_end(&kScenarios[i], rank, pids[rank]);
      }
    }
    if (kScenarios[i].signal == SIGSTOP) {
      EXPECT(kill(pids[kScenarios[i].culprit], SIGKILL) == 0);
    }
    expect_end(&kScenarios[i], kScenarios[i].culprit, pids[kScenarios[i].culprit]);
  }
}

int main(int argc, char** argv) {
  if (argc == 3) {
    char scheme[1100];
    ranks_are = kProcesses;
    snprintf(scheme, sizeof(scheme), "file://%s", temporary_path("failures"));
    EXPECT_OK(fsdp2_runtime_set_threads(1));
    wait_until_all_have_started(kScenarios[atoi(argv[1])].name, atoi(argv[2]));
    be_a_rank(&kScenarios[atoi(argv[1])], scheme, atoi(argv[2]));
    EXPECT(fsdp2_live_handles() == 0);
    return harness_result();
  }
  RUN(by_threads);
  by_processes(argv[0]);
  return harness_result();
}
