/* A save in the background that runs out of memory, wherever it does: a status, and the next one is
 * whole. This program's own malloc refuses memory to the library's threads. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>

#include "tests/capi/tiny_model.h"

extern void* __libc_malloc(size_t bytes);
extern void* __libc_memalign(size_t alignment, size_t bytes);

static _Thread_local int is_ours;        /* whether this thread always gets memory */
static _Atomic int64_t left = INT64_MAX; /* allocations before the others get none */

/* Names of files and the like still find room: std::filesystem ends the process without. */
enum { kSmall = 512 };

static int is_refused(size_t bytes) {
  return !is_ours && bytes > kSmall && left != INT64_MAX && --left < 0;
}

void* malloc(size_t bytes) { return is_refused(bytes) ? NULL : __libc_malloc(bytes); }

int posix_memalign(void** out, size_t alignment, size_t bytes) {
  *out = is_refused(bytes) ? NULL : __libc_memalign(alignment, bytes);
  return *out == NULL ? ENOMEM : 0;
}

/* The outcome of a save whose thread gets so many allocations. */
static fsdp2_status save_with(fsdp2_shard shard, const char* path, int64_t allocations) {
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  fsdp2_optimizer none = {0};
  fsdp2_status status;
  options.background = 1;
  left = allocations;
  EXPECT_OK(fsdp2_checkpoint_save(shard, none, (fsdp2_step){0}, (fsdp2_loader){0}, path, &options));
  status = fsdp2_checkpoint_wait(shard);
  left = INT64_MAX;
  return status;
}

static void a_background_save_out_of_memory_is_a_status(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  const char* path = temporary_path("out-of-memory");
  fsdp2_status status;
  int64_t allocations = 0;
  int failures = 0;
  EXPECT_OK(save_with(shard, path, INT64_MAX));
  while ((status = save_with(shard, path, allocations)) != FSDP2_OK) {
    if (!EXPECT_STATUS(status, FSDP2_E_OUT_OF_MEMORY)) {
      break;
    }
    ++failures;
    allocations += 1 + allocations / 50;
  }
  EXPECT(failures > 50);
  EXPECT_OK(fsdp2_checkpoint_load(shard, (fsdp2_optimizer){0}, (fsdp2_step){0}, (fsdp2_loader){0},
                                  path, NULL));
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

int main(void) {
  is_ours = 1;
  RUN(a_background_save_out_of_memory_is_a_status);
  return harness_result();
}
