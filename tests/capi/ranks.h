/* Ranks that are threads of this process. A file that includes this defines _POSIX_C_SOURCE. */
#ifndef TESTS_CAPI_RANKS_H_
#define TESTS_CAPI_RANKS_H_

#include <pthread.h>

#include "tests/capi/harness.h"

enum { kMaxRanks = 8 };

typedef void (*rank_body)(fsdp2_mesh mesh, int rank);

struct rank {
  int number, world_size;
  int64_t fsdp_size;
  const char* job;
  rank_body body;
};

static inline void* run_rank(void* argument) {
  const struct rank* rank = (const struct rank*)argument;
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  char rendezvous[128];
  fsdp2_mesh mesh = {0};
  snprintf(rendezvous, sizeof(rendezvous), "thread://%s", rank->job);
  options.rendezvous = rendezvous;
  options.rank = rank->number;
  options.world_size = rank->world_size;
  options.fsdp_size = rank->fsdp_size;
  options.timeout_ms = 60000;
  options.device_type = test_device();
  EXPECT_OK(fsdp2_runtime_set_threads(1));
  EXPECT_OK(fsdp2_mesh_create(&options, &mesh));
  rank->body(mesh, rank->number);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  return NULL;
}

/* Runs `body` on every rank of a mesh of its own: (world_size / fsdp_size, fsdp_size), or 1-D for
 * fsdp_size 0. */
static inline void on_ranks(const char* job, int world_size, int64_t fsdp_size, rank_body body) {
  pthread_t threads[kMaxRanks];
  struct rank ranks[kMaxRanks];
  int i;
  for (i = 0; i < world_size; ++i) {
    ranks[i].number = i;
    ranks[i].world_size = world_size;
    ranks[i].fsdp_size = fsdp_size;
    ranks[i].job = job;
    ranks[i].body = body;
    EXPECT(pthread_create(&threads[i], NULL, run_rank, &ranks[i]) == 0);
  }
  for (i = 0; i < world_size; ++i) {
    EXPECT(pthread_join(threads[i], NULL) == 0);
  }
}

#endif /* TESTS_CAPI_RANKS_H_ */
