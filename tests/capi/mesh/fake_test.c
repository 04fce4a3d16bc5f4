/* Planning in one process: a fake mesh counts what real ranks would. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

#include "tests/capi/ranks.h"

static fsdp2_mesh fake_mesh(int32_t rank, int32_t world_size, int64_t fsdp_size) {
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  options.backend = FSDP2_BACKEND_FAKE;
  options.rank = rank;
  options.world_size = world_size;
  options.fsdp_size = fsdp_size;
  EXPECT_OK(fsdp2_mesh_create(&options, &mesh));
  return mesh;
}

static void many_ranks_come_up_at_once(void) {
  const time_t start = time(NULL);
  int32_t rank;
  for (rank = 0; rank < 1024; rank += 31) {
    const fsdp2_mesh mesh = fake_mesh(rank, 1024, 64);
    fsdp2_mesh_info info;
    double value = rank;
    info.struct_size = (uint32_t)sizeof(info);
    EXPECT_OK(fsdp2_mesh_get_info(mesh, &info));
    EXPECT(info.backend == FSDP2_BACKEND_FAKE && info.rank == rank && info.world_size == 1024);
    EXPECT(info.coordinate[0] == rank / 64 && info.coordinate[1] == rank % 64);
    EXPECT_OK(fsdp2_mesh_barrier(mesh));
    EXPECT_OK(fsdp2_mesh_all_reduce(mesh, &value, 1, FSDP2_REDUCE_MAX));
    EXPECT(value == rank);
    EXPECT_OK(fsdp2_mesh_destroy(mesh));
  }
  EXPECT(time(NULL) - start < 20);
}

static void a_fake_mesh_needs_a_world_size(void) {
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {3};
  options.backend = FSDP2_BACKEND_FAKE;
  EXPECT_STATUS(fsdp2_mesh_create(&options, &mesh), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("world_size");
  options.world_size = 2;
  options.rendezvous = "tcp://somewhere:1";
  EXPECT_STATUS(fsdp2_mesh_create(&options, &mesh), FSDP2_E_INVALID_ARGUMENT);
  EXPECT(mesh.id == 3);
}

/* What two steps of tiny-llama communicate. */
static fsdp2_shard_stats count_steps(fsdp2_mesh mesh, int steps) {
  fsdp2_module module = tiny_llama();
  fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_optimizer optimizer = golden_adamw(shard);
  fsdp2_loader loader = golden_loader(mesh);
  fsdp2_step step = {0};
  fsdp2_shard_stats stats;
  EXPECT_OK(fsdp2_step_create(shard, optimizer, NULL, &step));
  EXPECT_OK(fsdp2_shard_reset_stats(shard));
  for (; steps > 0; --steps) {
    take_step(loader, step);
  }
  memset(&stats, 0, sizeof(stats));
  stats.struct_size = (uint32_t)sizeof(stats);
  EXPECT_OK(fsdp2_shard_get_stats(shard, &stats));
  EXPECT_OK(fsdp2_step_destroy(step));
  EXPECT_OK(fsdp2_loader_destroy(loader));
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
  return stats;
}

static _Atomic int64_t fsdp_size_under_test;

static void compare(fsdp2_mesh mesh, int rank) {
  const fsdp2_shard_stats real = count_steps(mesh, 2);
  const fsdp2_mesh other = fake_mesh(rank, 4, fsdp_size_under_test);
  const fsdp2_shard_stats fake = count_steps(other, 2);
  EXPECT(real.all_gathers > 0 && real.reduce_scatters > 0 && real.all_gather_bytes > 0);
  EXPECT(memcmp(&real, &fake, sizeof(real)) == 0);
  EXPECT_OK(fsdp2_mesh_destroy(other));
}
static void steps_count_what_four_real_ranks_count(void) {
  fsdp_size_under_test = 0;
  on_ranks("compare", 4, 0, compare);
  fsdp_size_under_test = 2;
  on_ranks("compare-replicas", 4, 2, compare);
}

int main(void) {
  RUN(many_ranks_come_up_at_once);
  RUN(a_fake_mesh_needs_a_world_size);
  RUN(steps_count_what_four_real_ranks_count);
  return harness_result();
}
