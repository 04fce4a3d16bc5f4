/* What a sharded module tells and does through the C ABI, on one rank. */
#include "tests/capi/harness.h"

static void parameters_are_told_by_name_shape_and_place(void) {
  struct job job = start_lone_job();
  fsdp2_parameter_info info;
  size_t count = 0, needed = 0;
  char name[64];
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_shard_get_parameter_count(job.shard, &count));
  EXPECT(count == 21);
  EXPECT_OK(fsdp2_shard_get_parameter_name(job.shard, 0, 0, name, sizeof(name), &needed));
  EXPECT(strcmp(name, "model.embed_tokens.weight") == 0);
  EXPECT_OK(fsdp2_shard_get_parameter_info(job.shard, 0, &info));
  EXPECT(info.n_dims == 2 && info.shape[0] == 384 && info.shape[1] == 64);
  EXPECT(info.local_shape[0] == 384 && info.local_offset == 0 && info.shard_dim == -1);
  EXPECT(info.dtype == FSDP2_DTYPE_F32 && info.compute_dtype == FSDP2_DTYPE_F32);
  EXPECT(info.requires_grad == 1 && info.has_grad == 0 && info.n_names == 1);
  end_lone_job(&job);
}

static void a_local_parameter_shares_its_memory_and_a_full_one_is_a_copy(void) {
  struct job job = start_lone_job();
  fsdp2_tensor local = {0}, full = {0}, grad = {0};
  static float before[384 * 64], local_after[384 * 64], full_after[384 * 64];
  EXPECT_OK(fsdp2_shard_get_parameter(job.shard, 0, FSDP2_PARAMETER_LOCAL, &local));
  EXPECT_OK(fsdp2_shard_get_parameter(job.shard, 0, FSDP2_PARAMETER_FULL, &full));
  EXPECT_STATUS(fsdp2_shard_get_parameter(job.shard, 0, FSDP2_PARAMETER_LOCAL_GRAD, &grad),
                FSDP2_E_NOT_FOUND);
  EXPECT_OK(fsdp2_tensor_read(local, before, sizeof(before)));
  take_step(job.loader, job.step);
  EXPECT_OK(fsdp2_tensor_read(local, local_after, sizeof(before)));
  EXPECT_OK(fsdp2_tensor_read(full, full_after, sizeof(before)));
  EXPECT(memcmp(before, local_after, sizeof(before)) != 0);
  EXPECT(memcmp(before, full_after, sizeof(before)) == 0);
  EXPECT_OK(fsdp2_tensor_destroy(local));
  EXPECT_OK(fsdp2_tensor_destroy(full));
  end_lone_job(&job);
}

static void a_module_is_sharded_once(void) {
  struct job job = start_lone_job();
  fsdp2_shard second = {5};
  EXPECT_STATUS(fsdp2_shard_create(job.module, job.mesh, NULL, &second), FSDP2_E_WRONG_STATE);
  EXPECT(second.id == 5);
  end_lone_job(&job);
}

static void precision_and_units_are_options_of_a_shard(void) {
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_module module = tiny_llama();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_shard shard = {0};
  fsdp2_loader loader = golden_loader(mesh);
  fsdp2_optimizer optimizer;
  fsdp2_step step = {0};
  fsdp2_parameter_info info;
  fsdp2_shard_stats stats;
  options.param_dtype = FSDP2_DTYPE_BF16;
  options.reduce_dtype = FSDP2_DTYPE_F32;
  options.output_dtype = FSDP2_DTYPE_F32;
  options.wrap = FSDP2_WRAP_NONE;
  EXPECT_OK(fsdp2_shard_create(module, mesh, &options, &shard));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_shard_get_parameter_info(shard, 0, &info));
  EXPECT(info.dtype == FSDP2_DTYPE_F32 && info.compute_dtype == FSDP2_DTYPE_BF16);
  stats.struct_size = (uint32_t)sizeof(stats);
  EXPECT_OK(fsdp2_shard_get_stats(shard, &stats));
  EXPECT(stats.n_units == 1);
  optimizer = golden_adamw(shard);
  EXPECT_OK(fsdp2_step_create(shard, optimizer, NULL, &step));
  EXPECT_NEAR(take_step(loader, step).loss, kGoldenLoss[0], 3e-3);
  EXPECT_OK(fsdp2_step_destroy(step));
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  EXPECT_OK(fsdp2_loader_destroy(loader));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void a_saved_model_is_read_back(void) {
  struct job job = start_lone_job();
  const char* directory = temporary_path("saved");
  const char* file = temporary_path("full.safetensors");
  fsdp2_module module = {0};
  fsdp2_tensor before = {0}, after = {0}, batch[2];
  double values[2] = {0.0, 1.0};
  size_t n = 0;
  take_step(job.loader, job.step);
  EXPECT_OK(fsdp2_checkpoint_save_full(job.shard, file));
  EXPECT_OK(fsdp2_checkpoint_save_pretrained(job.shard, directory));
  EXPECT_OK(fsdp2_module_from_pretrained(directory, NULL, &module));
  EXPECT_OK(fsdp2_loader_next(job.loader, &batch[0], &batch[1]));
  EXPECT_OK(fsdp2_module_forward(job.module, batch, 2, FSDP2_FORWARD_NO_GRAD, &before, 1, &n));
  EXPECT_OK(fsdp2_module_forward(module, batch, 2, FSDP2_FORWARD_NO_GRAD, &after, 1, &n));
  EXPECT_OK(fsdp2_tensor_get_value(before, &values[0]));
  EXPECT_OK(fsdp2_tensor_get_value(after, &values[1]));
  EXPECT(values[0] == values[1]);
  EXPECT_OK(fsdp2_tensor_destroy(after));
  take_step(job.loader, job.step);
  EXPECT_OK(fsdp2_checkpoint_load_full(job.shard, file));
  EXPECT_OK(fsdp2_module_forward(job.module, batch, 2, FSDP2_FORWARD_NO_GRAD, &after, 1, &n));
  EXPECT_OK(fsdp2_tensor_get_value(after, &values[1]));
  EXPECT(values[0] == values[1]);
  EXPECT_OK(fsdp2_tensor_destroy(before));
  EXPECT_OK(fsdp2_tensor_destroy(after));
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  EXPECT_OK(fsdp2_module_destroy(module));
  end_lone_job(&job);
}

static void statistics_count_units_and_can_be_reset(void) {
  struct job job = start_lone_job();
  fsdp2_shard_stats stats;
  char text[4096];
  size_t needed = 0;
  stats.struct_size = (uint32_t)sizeof(stats);
  take_step(job.loader, job.step);
  EXPECT_OK(fsdp2_shard_get_stats(job.shard, &stats));
  EXPECT(stats.n_units == 3); /* two layers and the rest */
  EXPECT(stats.all_gather_bytes == 0);
  EXPECT_OK(fsdp2_shard_reset_stats(job.shard));
  EXPECT_OK(fsdp2_shard_get_stats(job.shard, &stats));
  EXPECT(stats.all_gathers == 0 && stats.reduce_scatters == 0);
  EXPECT_OK(fsdp2_shard_describe(job.shard, text, sizeof(text), &needed));
  EXPECT(strstr(text, "model.layers.1") != NULL);
  end_lone_job(&job);
}

int main(void) {
  RUN(parameters_are_told_by_name_shape_and_place);
  RUN(a_local_parameter_shares_its_memory_and_a_full_one_is_a_copy);
  RUN(a_module_is_sharded_once);
  RUN(precision_and_units_are_options_of_a_shard);
  RUN(a_saved_model_is_read_back);
  RUN(statistics_count_units_and_can_be_reset);
  return harness_result();
}
