/* A process may make and drop shards and meshes without end: no memory, file, thread or shared
 * memory is left behind. Run with a rank this program is that rank of two, otherwise it starts
 * them. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/capi/tiny_model.h"

extern char** environ;

enum { kWarmUp = 300, kCycles = 1000, kMeshWarmUp = 5, kMeshCycles = 25 };

static int64_t resident_bytes(void) {
  long pages[2] = {0, 0};
  FILE* file = fopen("/proc/self/statm", "r");
  if (EXPECT(file != NULL)) {
    EXPECT(fscanf(file, "%ld %ld", &pages[0], &pages[1]) == 2);
    fclose(file);
  }
  return (int64_t)pages[1] * sysconf(_SC_PAGESIZE);
}

/* The entries of a directory of /proc, one for each file or thread. */
static int64_t entries_of(const char* directory) {
  DIR* open = opendir(directory);
  int64_t count = 0;
  if (EXPECT(open != NULL)) {
    while (readdir(open) != NULL) {
      ++count;
    }
    closedir(open);
  }
  return count;
}

enum { kMostSegments = 64 };
struct segments {
  int n;
  char paths[kMostSegments][256];
};

/* The files of /dev/shm that this process has mapped. */
static struct segments mapped_segments(void) {
  struct segments found = {0, {{0}}};
  char line[512];
  FILE* file = fopen("/proc/self/maps", "r");
  EXPECT(file != NULL);
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    const char* path = strstr(line, "/dev/shm/");
    if (path != NULL && EXPECT(found.n < kMostSegments)) {
      snprintf(found.paths[found.n], sizeof(found.paths[0]), "%.*s", (int)strcspn(path, " \n"),
               path);
      ++found.n;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return found;
}

static void cycle_with(fsdp2_mesh mesh, const fsdp2_shard_options* options) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_with(module, mesh, options);
  const fsdp2_optimizer optimizer = golden_adamw(shard);
  tiny_backward(module);
  EXPECT_OK(fsdp2_optimizer_run(optimizer));
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  destroy_tiny(module, shard);
}
static void cycle(fsdp2_mesh mesh) { cycle_with(mesh, NULL); }

static void a_thousand_cycles_leave_nothing(void) {
  int64_t before = 0, growth;
  int i;
  for (i = 0; i < kCycles; ++i) {
    const fsdp2_mesh mesh = lone_mesh();
    if (i == kWarmUp) {
      before = resident_bytes();
    }
    cycle(mesh);
    EXPECT_OK(fsdp2_mesh_destroy(mesh));
    EXPECT(fsdp2_live_handles() == 0);
  }
  growth = resident_bytes() - before;
  fprintf(stderr, "  grew by %lld KiB over %d cycles\n", (long long)growth / 1024,
          kCycles - kWarmUp);
  EXPECT(growth < 4 << 20);
}

static int64_t grown_by;

static void cycle_on_two(fsdp2_mesh mesh, int rank) {
  int64_t before = 0;
  int i;
  for (i = 0; i < kCycles / 2; ++i) {
    if (i == kWarmUp / 2 && rank == 0) {
      before = resident_bytes();
    }
    cycle(mesh);
  }
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  if (rank == 0) {
    grown_by = resident_bytes() - before;
  }
}
static void nor_do_five_hundred_on_two_ranks(void) {
  on_ranks("cycles", 2, 0, cycle_on_two);
  fprintf(stderr, "  grew by %lld KiB\n", (long long)grown_by / 1024);
  EXPECT(grown_by < 4 << 20);
}

/* Slices have groups of their own. */
static void cycle_with_slices(fsdp2_mesh mesh, int rank) {
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  int64_t before = 0, threads = 0, files = 0;
  int i;
  options.reshard_after_forward = 2;
  for (i = 0; i < kCycles / 5; ++i) {
    if (i == kWarmUp / 5) {
      EXPECT_OK(fsdp2_mesh_barrier(mesh));
      before = resident_bytes();
      threads = entries_of("/proc/self/task");
      files = entries_of("/proc/self/fd");
      EXPECT_OK(fsdp2_mesh_barrier(mesh));
    }
    cycle_with(mesh, &options);
  }
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  if (rank == 0) {
    grown_by = resident_bytes() - before;
    EXPECT(entries_of("/proc/self/task") == threads);
  }
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT(entries_of("/proc/self/fd") - files < 4 + 4); /* the ranks look at them at once */
}
static void nor_do_slices_on_four_ranks(void) {
  on_ranks("slices", 4, 0, cycle_with_slices);
  fprintf(stderr, "  grew by %lld KiB\n", (long long)grown_by / 1024);
  EXPECT(grown_by < 4 << 20);
}

/* ---- meshes of two processes */

static void be_a_rank(int rank) {
  int64_t memory = 0, threads = 0, files = 0;
  struct segments during = {0, {{0}}};
  int i;
  EXPECT_OK(fsdp2_runtime_set_threads(1));
  for (i = 0; i < kMeshWarmUp + kMeshCycles; ++i) {
    fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
    fsdp2_mesh mesh = {0};
    char rendezvous[1200];
    if (i == kMeshWarmUp) {
      memory = resident_bytes();
      threads = entries_of("/proc/self/task");
      files = entries_of("/proc/self/fd");
    }
    snprintf(rendezvous, sizeof(rendezvous), "file://%s-%d", temporary_path("cycles"), i);
    options.rendezvous = rendezvous;
    options.rank = rank;
    options.world_size = 2;
    EXPECT_OK(fsdp2_mesh_create(&options, &mesh));
    cycle(mesh);
    EXPECT_OK(fsdp2_mesh_barrier(mesh));
    during = mapped_segments();
    EXPECT_OK(fsdp2_mesh_destroy(mesh));
    EXPECT(fsdp2_live_handles() == 0);
  }
  threads = entries_of("/proc/self/task") - threads;
  files = entries_of("/proc/self/fd") - files;
  memory = resident_bytes() - memory;
  fprintf(stderr, "  rank %d: %lld threads, %lld files, %lld KiB more; %d segments of /dev/shm\n",
          rank, (long long)threads, (long long)files, (long long)memory / 1024, during.n);
  EXPECT(threads < kMeshCycles / 2 && files < kMeshCycles / 2 && memory < 16 << 20);
  EXPECT(mapped_segments().n == 0);
  for (i = 0; i < during.n; ++i) {
    EXPECT(access(during.paths[i], F_OK) != 0);
  }
}

static void run_two_processes(const char* program) {
  pid_t pids[2];
  int rank;
  for (rank = 0; rank < 2; ++rank) {
    char number[2] = {(char)('0' + rank), '\0'};
    char* arguments[3];
    arguments[0] = (char*)program;
    arguments[1] = number;
    arguments[2] = NULL;
    EXPECT(posix_spawn(&pids[rank], program, NULL, NULL, arguments, environ) == 0);
  }
  for (rank = 0; rank < 2; ++rank) {
    int status = -1;
    EXPECT(waitpid(pids[rank], &status, 0) == pids[rank]);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

int main(int argc, char** argv) {
  if (argc == 2) {
    be_a_rank(atoi(argv[1]));
    return harness_result();
  }
  EXPECT_OK(fsdp2_runtime_set_threads(1));
  RUN(a_thousand_cycles_leave_nothing);
  RUN(nor_do_five_hundred_on_two_ranks);
  RUN(nor_do_slices_on_four_ranks);
  run_two_processes(argv[0]);
  return harness_result();
}
