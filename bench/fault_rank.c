/* One rank of a small job, or all of them as threads, with a fault of one rank in a phase of its
 * life. faults.py starts such jobs and makes a table of how the other ranks leave.
 *
 *   fault_rank PHASE FAULT TRANSPORT RANKS VICTIM TIMEOUT_MS FOLDER RANK
 *
 * RANK -1: all, as threads. What happens goes to standard output, a line an event, with a time of
 * CLOCK_MONOTONIC: "fault SECONDS", "left RANK SECONDS STATUS MESSAGE". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/capi/tiny_model.h"

enum phase { START, LOAD, GATHER, REDUCE, CLIP, SAVE, BACKGROUND_SAVE, SHUTDOWN, PHASES };
static const char* const kPhases[PHASES] = {"start", "load", "gather",          "reduce",
                                            "clip",  "save", "background-save", "shutdown"};
enum fault { KILL, STOP, SLOW, EXCEPTION, FULL_DISK, NO_THREADS, FAULTS };
static const char* const kFaults[FAULTS] = {"kill",      "stop",      "slow",
                                            "exception", "full-disk", "no-threads"};

/* By how much a slow rank outlasts the time-out. */
enum { kSlowSeconds = 4 };

static struct {
  enum phase phase;
  enum fault fault;
  const char* transport;
  int n_ranks, victim, timeout_ms;
  const char* folder;
} scene;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int index_of(const char* const* names, int count, const char* name) {
  int i = 0;
  while (i < count && strcmp(names[i], name) != 0) {
    ++i;
  }
  if (i == count) {
    fprintf(stderr, "fault_rank: %s: no such phase or fault\n", name);
    exit(2);
  }
  return i;
}

/* ---- the fault */

static void say_fault(void) {
  printf("fault %.3f\n", now());
  fflush(stdout);
}

static _Atomic int lacks_threads;

/* In place of the C library's, also for libfsdp2 and what it uses. */
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*),
                   void* argument) {
  typedef int (*function)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  const function create = (function)dlsym(RTLD_NEXT, "pthread_create");
  return lacks_threads ? EAGAIN : create(thread, attributes, work, argument);
}

/* What happens to the victim; an exception and a full disk are the business of its next call. */
static void suffer(void) {
  const struct timespec nap = {scene.timeout_ms / 1000 + kSlowSeconds, 0};
  say_fault();
  if (scene.fault == KILL) {
    raise(SIGKILL);
  } else if (scene.fault == STOP) {
    raise(SIGSTOP);
  } else if (scene.fault == SLOW) {
    nanosleep(&nap, NULL);
  } else if (scene.fault == NO_THREADS) {
    lacks_threads = 1;
  }
}

/* Before `phase`, on the victim. */
static int is_struck(enum phase phase, int rank) {
  const int struck = phase == scene.phase && rank == scene.victim;
  if (struck) {
    suffer();
  }
  return struck && scene.fault == EXCEPTION;
}

static _Atomic int saving;       /* what the victim writes now is of the save with the fault */
static _Atomic int has_suffered; /* in it */

/* Whether `file` is the victim's part of the checkpoint. */
static int is_victims_part(int file) {
  char link[64], path[4096], part[32];
  ssize_t length;
  snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
  length = readlink(link, path, sizeof(path) - 1);
  path[length > 0 ? length : 0] = '\0';
  snprintf(part, sizeof(part), "/__%d_", scene.victim);
  return strstr(path, part) != NULL;
}

/* 0, or the error with which a write to `file` is to end. */
static int error_of_write(int file) {
  if (!saving || !is_victims_part(file)) {
    return 0;
  }
  if (!atomic_exchange(&has_suffered, 1)) {
    suffer();
  }
  return scene.fault == EXCEPTION ? EIO : scene.fault == FULL_DISK ? ENOSPC : 0;
}

/* In place of the C library's, also for libfsdp2: the fault comes in the middle of a save. */
ssize_t write(int file, const void* data, size_t count) {
  const int error = error_of_write(file);
  if (error != 0) {
    errno = error;
    return -1;
  }
  return syscall(SYS_write, file, data, count);
}

/* ---- the rank */

struct job_rank {
  int number;
  fsdp2_mesh mesh;
  fsdp2_module module;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_status status;
  char message[2048];
};

/* Keeps the first error. */
static int well(struct job_rank* rank, fsdp2_status status) {
  if (status != FSDP2_OK && rank->status == FSDP2_OK) {
    rank->status = status;
    snprintf(rank->message, sizeof(rank->message), "%s", fsdp2_error_message());
  }
  return status == FSDP2_OK;
}

static int join(struct job_rank* rank) {
  static const char* const names[1] = {"dp"};
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  const int as_threads = strcmp(scene.transport, "threads") == 0;
  char rendezvous[4096];
  snprintf(rendezvous, sizeof(rendezvous), "%s%s", as_threads ? "thread://" : "file://",
           as_threads ? "faults" : scene.folder);
  strcat(rendezvous, "/meeting");
  options.rendezvous = rendezvous;
  options.backend = strcmp(scene.transport, "gloo") == 0 ? FSDP2_BACKEND_GLOO : FSDP2_BACKEND_AUTO;
  options.rank = rank->number;
  options.world_size = scene.n_ranks;
  options.timeout_ms = scene.timeout_ms;
  if (is_struck(START, rank->number)) {
    options.names = names; /* without a shape: refused before it meets anybody */
  }
  return well(rank, fsdp2_mesh_create(&options, &rank->mesh));
}

static int prepare(struct job_rank* rank) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_shard_options how = FSDP2_SHARD_OPTIONS_INIT;
  options.seed = 7;
  how.reshard_after_forward = FSDP2_RESHARD_NEVER; /* the backward only reduces */
  return well(rank, fsdp2_module_from_config(TINY_CONFIG("false"), &options, &rank->module)) &&
         well(rank, fsdp2_shard_create(rank->module, rank->mesh, &how, &rank->shard)) &&
         well(rank, fsdp2_optimizer_create_adamw(rank->shard, NULL, &rank->optimizer));
}

/* A program's own error, which it tells the others. */
static int fail_itself(struct job_rank* rank) {
  rank->status = FSDP2_E_CALLBACK;
  snprintf(rank->message, sizeof(rank->message), "an exception of the program's own");
  EXPECT_OK(fsdp2_mesh_fail(rank->mesh, rank->message));
  return 0;
}

static int train(struct job_rank* rank, int with_fault) {
  const int number = with_fault ? rank->number : -1;
  const int64_t shape[2] = {1, 4};
  int64_t values[4] = {1, 2, 3, 4};
  fsdp2_tensor batch[2], loss = {0};
  double norm = 0.0;
  size_t n = 0;
  int good = 1;
  batch[1] = int64_tensor(values, shape, 2);
  values[2] = is_struck(GATHER, number) ? kTinyVocabulary : 3;
  batch[0] = int64_tensor(values, shape, 2);
  good = well(rank, fsdp2_module_forward(rank->module, batch, 2, 0, &loss, 1, &n));
  if (good && is_struck(REDUCE, number)) {
    good = fail_itself(rank);
  }
  good = good && well(rank, fsdp2_tensor_backward(loss));
  if (good && is_struck(CLIP, number)) {
    good = fail_itself(rank);
  }
  good = good && well(rank, fsdp2_shard_clip_grad_norm(rank->shard, 1.0, 2.0, &norm)) &&
         well(rank, fsdp2_optimizer_run(rank->optimizer)) &&
         well(rank, fsdp2_shard_zero_grad(rank->shard));
  fsdp2_tensor_destroy(batch[0]);
  fsdp2_tensor_destroy(batch[1]);
  fsdp2_tensor_destroy(loss);
  return good;
}

static int save(struct job_rank* rank, const char* name, int background) {
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  const fsdp2_step step = {0};
  const fsdp2_loader loader = {0};
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s", scene.folder, name);
  options.background = background;
  return well(rank,
              fsdp2_checkpoint_save(rank->shard, rank->optimizer, step, loader, path, &options)) &&
         well(rank, fsdp2_checkpoint_wait(rank->shard));
}

static int load(struct job_rank* rank) {
  const fsdp2_step step = {0};
  const fsdp2_loader loader = {0};
  char path[4096];
  const int struck = is_struck(LOAD, rank->number);
  snprintf(path, sizeof(path), "%s/%s", scene.folder, struck ? "nothing" : "saved");
  return well(rank, fsdp2_checkpoint_load(rank->shard, rank->optimizer, step, loader, path, NULL));
}

static int live(struct job_rank* rank) {
  if (!join(rank) || !prepare(rank) || !train(rank, 0) || !save(rank, "saved", 0) ||
      !well(rank, fsdp2_mesh_barrier(rank->mesh))) {
    return 0;
  }
  if (scene.phase == SAVE || scene.phase == BACKGROUND_SAVE) {
    if (scene.fault == NO_THREADS) {
      is_struck(scene.phase, rank->number);
    } else {
      saving = 1;
    }
    return save(rank, "again", scene.phase == BACKGROUND_SAVE);
  }
  if (!load(rank) || !train(rank, 1)) {
    return 0;
  }
  return is_struck(SHUTDOWN, rank->number) ? fail_itself(rank) : 1;
}

static void* be_a_rank(void* argument) {
  struct job_rank* rank = (struct job_rank*)argument;
  if (well(rank, fsdp2_runtime_set_threads(1))) {
    live(rank);
  }
  fsdp2_optimizer_destroy(rank->optimizer);
  fsdp2_shard_destroy(rank->shard);
  fsdp2_module_destroy(rank->module);
  fsdp2_mesh_destroy(rank->mesh);
  printf("left %d %.3f %s %s\n", rank->number, now(), fsdp2_status_name(rank->status),
         rank->message);
  fflush(stdout);
  return NULL;
}

int main(int argc, char** argv) {
  struct job_rank ranks[kMaxRanks];
  pthread_t threads[kMaxRanks];
  int i, number;
  if (argc != 9) {
    fprintf(stderr, "usage: see the top of fault_rank.c\n");
    return 2;
  }
  scene.phase = (enum phase)index_of(kPhases, PHASES, argv[1]);
  scene.fault = (enum fault)index_of(kFaults, FAULTS, argv[2]);
  scene.transport = argv[3];
  scene.n_ranks = atoi(argv[4]);
  scene.victim = atoi(argv[5]);
  scene.timeout_ms = atoi(argv[6]);
  scene.folder = argv[7];
  number = atoi(argv[8]);
  memset(ranks, 0, sizeof(ranks));
  if (scene.n_ranks < 1 || scene.n_ranks > kMaxRanks || number >= scene.n_ranks) {
    fprintf(stderr, "fault_rank: expected 1 to %d ranks\n", kMaxRanks);
    return 2;
  }
  for (i = 0; i < scene.n_ranks; ++i) {
    ranks[i].number = i;
  }
  if (number >= 0) {
    be_a_rank(&ranks[number]);
    return ranks[number].status != FSDP2_OK;
  }
  for (i = 0; i < scene.n_ranks; ++i) {
    pthread_create(&threads[i], NULL, be_a_rank, &ranks[i]);
  }
  for (i = 0; i < scene.n_ranks; ++i) {
    pthread_join(threads[i], NULL);
  }
  return 0;
}
