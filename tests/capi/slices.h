/* Pipeline stages for tests of meshes that are slices of a job: each has a model, a pace and a
 * checkpoint of its own. */
#ifndef TESTS_CAPI_SLICES_H_
#define TESTS_CAPI_SLICES_H_

#include <time.h>
#include <unistd.h>

#include "tests/capi/tiny_model.h"

enum { kSteps = 4, kMaxStages = 4 };

static inline void sleep_ms(long ms) {
  struct timespec time;
  time.tv_sec = ms / 1000;
  time.tv_nsec = ms % 1000 * 1000000;
  nanosleep(&time, NULL);
}

/* A mesh of the job, of dims "pp" and "dp". */
static inline fsdp2_mesh grid_in(fsdp2_mesh job, int64_t stages, int64_t ranks) {
  static const char* const kNames[2] = {"pp", "dp"};
  const int64_t shape[2] = {stages, ranks};
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  options.n_dims = 2;
  options.shape = shape;
  options.names = kNames;
  options.device_type = test_device();
  EXPECT_OK(fsdp2_mesh_create_in(job, &options, &mesh));
  return mesh;
}

static inline fsdp2_mesh line_of(fsdp2_mesh mesh, const char* name) {
  fsdp2_mesh line = {0};
  EXPECT_OK(fsdp2_mesh_get_submesh(mesh, &name, 1, &line));
  return line;
}

/* Different parameters for each stage. */
static inline fsdp2_module stage_model(int stage) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_module module = {0};
  options.seed = (uint64_t)(11 + stage);
  EXPECT_OK(fsdp2_module_from_config(stage % 2 == 0 ? TINY_CONFIG("false") : TINY_CONFIG("true"),
                                     &options, &module));
  return module;
}

struct stage {
  fsdp2_module module;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_step step;
};

static inline struct stage start_stage(fsdp2_mesh mesh, int number) {
  struct stage stage;
  stage.module = stage_model(number);
  stage.shard = shard_of(stage.module, mesh);
  stage.optimizer = golden_adamw(stage.shard);
  EXPECT_OK(fsdp2_step_create(stage.shard, stage.optimizer, NULL, &stage.step));
  return stage;
}

static inline void end_stage(struct stage* stage) {
  EXPECT_OK(fsdp2_step_destroy(stage->step));
  EXPECT_OK(fsdp2_optimizer_destroy(stage->optimizer));
  destroy_tiny(stage->module, stage->shard);
}

/* On tokens that differ between the ranks of the mesh. */
static inline fsdp2_status run_stage(const struct stage* stage, int rank, double* loss) {
  static const int64_t shape[2] = {2, 4};
  int64_t values[2][8];
  fsdp2_tensor batch[2];
  fsdp2_step_result result;
  fsdp2_status status;
  int i;
  for (i = 0; i < 8; ++i) {
    values[0][i] = (3 + i + 5 * rank) % kTinyVocabulary;
    values[1][i] = (4 + i + 5 * rank) % kTinyVocabulary;
  }
  batch[0] = int64_tensor(values[0], shape, 2);
  batch[1] = int64_tensor(values[1], shape, 2);
  memset(&result, 0, sizeof(result));
  result.struct_size = (uint32_t)sizeof(result);
  status = fsdp2_step_run(stage->step, batch, 2, &result);
  *loss = result.loss;
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  return status;
}

/* Trains, saves to `path` half-way, goes back to there at the end, and takes one more step. */
static inline void train_stage(fsdp2_mesh mesh, int number, int rank, const char* path,
                               double losses[kSteps + 1]) {
  struct stage stage = start_stage(mesh, number);
  int i;
  for (i = 0; i < kSteps; ++i) {
    if (i == kSteps / 2) {
      EXPECT_OK(fsdp2_checkpoint_save(stage.shard, stage.optimizer, stage.step, (fsdp2_loader){0},
                                      path, NULL));
    }
    EXPECT_OK(run_stage(&stage, rank, &losses[i]));
  }
  EXPECT_OK(fsdp2_checkpoint_load(stage.shard, stage.optimizer, stage.step, (fsdp2_loader){0}, path,
                                  NULL));
  EXPECT_OK(run_stage(&stage, rank, &losses[kSteps]));
  EXPECT(losses[kSteps] == losses[kSteps / 2]);
  end_stage(&stage);
}

#endif /* TESTS_CAPI_SLICES_H_ */
