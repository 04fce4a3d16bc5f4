/* A process may make and drop shards without end: nothing is left behind. */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "tests/capi/tiny_model.h"

enum { kWarmUp = 300, kCycles = 1000 };

static int64_t resident_bytes(void) {
  long pages[2] = {0, 0};
  FILE* file = fopen("/proc/self/statm", "r");
  if (EXPECT(file != NULL)) {
    EXPECT(fscanf(file, "%ld %ld", &pages[0], &pages[1]) == 2);
    fclose(file);
  }
  return (int64_t)pages[1] * sysconf(_SC_PAGESIZE);
}

static void cycle(fsdp2_mesh mesh) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  const fsdp2_optimizer optimizer = golden_adamw(shard);
  tiny_backward(module);
  EXPECT_OK(fsdp2_optimizer_run(optimizer));
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  destroy_tiny(module, shard);
}

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

int main(void) {
  EXPECT_OK(fsdp2_runtime_set_threads(1));
  RUN(a_thousand_cycles_leave_nothing);
  RUN(nor_do_five_hundred_on_two_ranks);
  return harness_result();
}
