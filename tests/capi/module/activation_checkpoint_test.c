/* Layers that run again in backward, on one rank: the golden losses stay. */
#include "tests/capi/harness.h"

static void train_to_golden_losses(struct job* job) {
  int i;
  for (i = 0; i < 3; ++i) {
    EXPECT_NEAR(take_step(job->loader, job->step).loss, kGoldenLoss[i], 5e-6);
  }
  end_lone_job(job);
}

static void layers_checkpointed_before_sharding_have_the_golden_losses(void) {
  struct job job;
  job.mesh = lone_mesh();
  job.module = tiny_llama();
  EXPECT_OK(fsdp2_module_checkpoint_activations(job.module, NULL, 0, 1, 0));
  job.shard = shard_of(job.module, job.mesh);
  job.optimizer = golden_adamw(job.shard);
  job.loader = golden_loader(job.mesh);
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, NULL, &job.step));
  train_to_golden_losses(&job);
}

static void layers_checkpointed_after_sharding_have_the_golden_losses(void) {
  const char* const kinds[2] = {"LlamaMLP", "LlamaAttention"};
  struct job job = start_lone_job();
  EXPECT_OK(fsdp2_module_checkpoint_activations(job.module, kinds, 2, 2, 0));
  train_to_golden_losses(&job);
}

static void layers_that_run_again_to_their_end_have_the_golden_losses(void) {
  struct job job = start_lone_job();
  EXPECT_OK(
      fsdp2_module_checkpoint_activations(job.module, NULL, 0, 1, FSDP2_ACTIVATIONS_NO_EARLY_STOP));
  train_to_golden_losses(&job);
}

static void layers_chosen_by_path_have_the_golden_losses(void) {
  const char* const paths[3] = {"model.layers.1.mlp", "lm_head", "model.layers.0"};
  struct job job = start_lone_job();
  EXPECT_OK(fsdp2_module_checkpoint_activations(
      job.module, paths, 3, 2, FSDP2_ACTIVATIONS_BY_PATH | FSDP2_ACTIVATIONS_NO_EARLY_STOP));
  EXPECT_OK(
      fsdp2_module_checkpoint_activations(job.module, paths + 1, 2, 1, FSDP2_ACTIVATIONS_BY_PATH));
  train_to_golden_losses(&job);
}

static void mlps_in_tiles_have_the_golden_losses_within_layers_that_run_again(void) {
  size_t mlps = 0;
  struct job job = start_lone_job();
  EXPECT_OK(fsdp2_module_tile_mlps(job.module, 1, NULL));
  EXPECT_OK(fsdp2_module_tile_mlps(job.module, 3, &mlps));
  EXPECT(mlps == 2);
  EXPECT_OK(fsdp2_module_checkpoint_activations(job.module, NULL, 0, 1, 0));
  train_to_golden_losses(&job);
}

static void mistakes_in_tiles_are_named(void) {
  size_t mlps = 7;
  fsdp2_module module = tiny_llama();
  fsdp2_module norm;
  EXPECT_STATUS(fsdp2_module_tile_mlps(module, 0, &mlps), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("tiles");
  EXPECT_OK(fsdp2_module_create_layer("RMSNorm", "{\"normalized_shape\": 4}", NULL, &norm));
  EXPECT_STATUS(fsdp2_module_tile_mlps(norm, 4, &mlps), FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("expected a model with gated MLPs");
  EXPECT(mlps == 7);
  EXPECT_OK(fsdp2_module_destroy(norm));
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void mistakes_in_paths_are_named(void) {
  const char* const paths[2] = {"model.layers.0", "model.layers.9"};
  const char* const list[1] = {"model.layers"};
  fsdp2_module module = tiny_llama();
  EXPECT_STATUS(fsdp2_module_checkpoint_activations(module, paths, 2, 1, FSDP2_ACTIVATIONS_BY_PATH),
                FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("there is no module 'model.layers.9'");
  EXPECT_STATUS(fsdp2_module_checkpoint_activations(module, list, 1, 1, FSDP2_ACTIVATIONS_BY_PATH),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("a container has no forward");
  EXPECT_STATUS(fsdp2_module_checkpoint_activations(module, NULL, 0, 1, FSDP2_ACTIVATIONS_BY_PATH),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_module_checkpoint_activations(module, paths, 1, 1, 4),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_OK(fsdp2_module_checkpoint_activations(module, paths, 1, 1, FSDP2_ACTIVATIONS_BY_PATH));
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void mistakes_in_checkpointing_are_named(void) {
  const char* const kinds[2] = {"LlamaDecoderLayer", "Qwen3DecoderLayer"};
  fsdp2_module module = tiny_llama();
  EXPECT_STATUS(fsdp2_module_checkpoint_activations(module, kinds, 2, 1, 0), FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("no module of class Qwen3DecoderLayer; it has Embedding, Linear");
  EXPECT_OK(fsdp2_module_checkpoint_activations(module, kinds, 1, 2, 0));
  EXPECT_STATUS(fsdp2_module_checkpoint_activations(module, kinds, 1, 1, 0), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("model.layers.1 (LlamaDecoderLayer): the module is checkpointed already");
  EXPECT_OK(fsdp2_module_destroy(module));
}

int main(void) {
  RUN(layers_checkpointed_before_sharding_have_the_golden_losses);
  RUN(layers_checkpointed_after_sharding_have_the_golden_losses);
  RUN(layers_that_run_again_to_their_end_have_the_golden_losses);
  RUN(layers_chosen_by_path_have_the_golden_losses);
  RUN(mlps_in_tiles_have_the_golden_losses_within_layers_that_run_again);
  RUN(mistakes_in_tiles_are_named);
  RUN(mistakes_in_paths_are_named);
  RUN(mistakes_in_checkpointing_are_named);
  return harness_result();
}
