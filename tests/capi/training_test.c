/* Sharding, optimizers, steps, loaders and checkpoints through the C ABI, on one rank. */
#include "tests/capi/harness.h"

static void three_steps_have_the_golden_losses(void) {
  struct job job = start_lone_job();
  int i;
  for (i = 0; i < 3; ++i) {
    const fsdp2_step_result result = take_step(job.loader, job.step);
    EXPECT(result.applied == 1 && result.step == i && result.n_tokens == 8 * 32);
    EXPECT(result.finite == 1 && result.skips_in_row == 0);
    EXPECT(result.lr == 3e-3 && result.seconds > 0.0 && result.tokens_per_second > 0.0);
    EXPECT_NEAR(result.loss, kGoldenLoss[i], 5e-6);
  }
  end_lone_job(&job);
}

/* The same as one fsdp2_step_run, call by call. */
static void the_pieces_of_a_step_are_calls_of_their_own(void) {
  struct job job = start_lone_job();
  int i;
  for (i = 0; i < 2; ++i) {
    fsdp2_tensor batch[2] = {{0}, {0}}, loss = {0};
    size_t n_outputs = 0;
    double value = 0.0, norm = 0.0;
    EXPECT_OK(fsdp2_loader_next(job.loader, &batch[0], &batch[1]));
    EXPECT_OK(fsdp2_module_forward(job.module, batch, 2, 0, &loss, 1, &n_outputs));
    EXPECT_OK(fsdp2_tensor_get_value(loss, &value));
    EXPECT_NEAR(value, kGoldenLoss[i], 5e-6);
    EXPECT_OK(fsdp2_tensor_backward(loss));
    EXPECT_OK(fsdp2_shard_clip_grad_norm(job.shard, 0.0, 2.0, &norm));
    EXPECT_NEAR(norm, i == 0 ? 2.632443428039551 : 2.3114013671875, 2e-5);
    EXPECT_OK(fsdp2_optimizer_run(job.optimizer));
    EXPECT_OK(fsdp2_shard_zero_grad(job.shard));
    EXPECT_OK(fsdp2_tensor_destroy(loss));
    EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
    EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  }
  end_lone_job(&job);
}

static void a_step_tells_where_it_stands(void) {
  struct job job = start_lone_job();
  int64_t next_step = -1;
  EXPECT_OK(fsdp2_step_get_position(job.step, &next_step));
  EXPECT(next_step == 0);
  take_step(job.loader, job.step);
  EXPECT_OK(fsdp2_step_get_position(job.step, &next_step));
  EXPECT(next_step == 1);
  EXPECT_OK(fsdp2_step_set_position(job.step, 41));
  EXPECT(take_step(job.loader, job.step).step == 41);
  EXPECT_OK(fsdp2_step_get_position(job.step, &next_step));
  EXPECT(next_step == 42);
  end_lone_job(&job);
}

/* Mean gradients of this model are far from fp32's limits, so a scale changes no loss. */
static void a_loss_scale_keeps_the_golden_losses(void) {
  struct job job = start_lone_job();
  fsdp2_step_options options = FSDP2_STEP_OPTIONS_INIT;
  int i;
  options.loss_scale = 1024.0;
  options.loss_scale_interval = 2;
  EXPECT_OK(fsdp2_step_destroy(job.step));
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, &options, &job.step));
  for (i = 0; i < 3; ++i) {
    const fsdp2_step_result result = take_step(job.loader, job.step);
    EXPECT(result.applied == 1 && result.loss_scale == (i < 2 ? 1024.0 : 2048.0));
    EXPECT_NEAR(result.loss, kGoldenLoss[i], 5e-6);
  }
  end_lone_job(&job);
}

static void an_overflow_under_a_loss_scale_is_not_applied(void) {
  struct job job = start_lone_job();
  fsdp2_step_options options = FSDP2_STEP_OPTIONS_INIT;
  fsdp2_step_result result;
  options.loss_scale = 1e300; /* infinite in fp32 */
  EXPECT_OK(fsdp2_step_destroy(job.step));
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, &options, &job.step));
  result = take_step(job.loader, job.step);
  EXPECT(result.applied == 0 && result.finite == 0 && result.step == 0);
  EXPECT_NEAR(result.loss, kGoldenLoss[0], 5e-6);
  result = take_step(job.loader, job.step);
  EXPECT(result.applied == 0 && result.step == 1 && result.loss_scale == 5e299);
  end_lone_job(&job);
}

static void wrong_loss_scales_are_refused(void) {
  struct job job = start_lone_job();
  fsdp2_step_options options = FSDP2_STEP_OPTIONS_INIT;
  fsdp2_step step = {0};
  options.loss_scale = -1.0;
  EXPECT_STATUS(fsdp2_step_create(job.shard, job.optimizer, &options, &step),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("options.loss_scale");
  options.loss_scale = 1.0;
  options.loss_scale_interval = 0;
  EXPECT_STATUS(fsdp2_step_create(job.shard, job.optimizer, &options, &step),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("options.loss_scale_interval");
  end_lone_job(&job);
}

/* Two micro batches of one and of three labels that count: the mean over labels is that of all four
 * in one batch, the mean over micro batches is not. */
static void a_loss_is_the_mean_over_labels_if_asked_for(void) {
  static const int64_t kShape[2] = {1, 4}, kBoth[2] = {2, 4};
  const int64_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int64_t labels[8] = {9, -100, -100, -100, 11, 12, 13, -100};
  struct job job = start_lone_job();
  fsdp2_step_options options = FSDP2_STEP_OPTIONS_INIT;
  fsdp2_step_result result = {.struct_size = sizeof(result)};
  fsdp2_tensor both[2], micro[4], loss = {0};
  double expected = 0.0;
  size_t n = 0;
  int i;
  both[0] = int64_tensor(tokens, kBoth, 2);
  both[1] = int64_tensor(labels, kBoth, 2);
  for (i = 0; i < 4; ++i) {
    micro[i] = int64_tensor((i % 2 == 0 ? tokens : labels) + 4 * (i / 2), kShape, 2);
  }
  EXPECT_OK(fsdp2_module_forward(job.module, both, 2, FSDP2_FORWARD_NO_GRAD, &loss, 1, &n));
  EXPECT_OK(fsdp2_tensor_get_value(loss, &expected));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  options.accumulate = 2;
  options.loss_mean = FSDP2_LOSS_MEAN_LABELS;
  EXPECT_OK(fsdp2_step_destroy(job.step));
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, &options, &job.step));
  EXPECT_OK(fsdp2_step_run(job.step, micro, 4, &result));
  EXPECT_NEAR(result.loss, expected, 1e-6);
  EXPECT(result.n_labels == 4 && result.n_tokens == 8);
  for (i = 0; i < 4; ++i) {
    EXPECT_OK(fsdp2_tensor_destroy(micro[i]));
  }
  EXPECT_OK(fsdp2_tensor_destroy(both[0]));
  EXPECT_OK(fsdp2_tensor_destroy(both[1]));
  end_lone_job(&job);
}

/* {0} for positions, with a mask behind it that lets everything be seen. */
static void a_step_takes_inputs_that_are_left_out(void) {
  int64_t ones[256];
  const int64_t shape[2] = {8, 32};
  struct job job = start_lone_job();
  fsdp2_step_result result = {.struct_size = sizeof(result)};
  fsdp2_tensor batch[4] = {{0}, {0}, {0}, {0}};
  int i;
  for (i = 0; i < 256; ++i) {
    ones[i] = 1;
  }
  EXPECT_OK(fsdp2_loader_next(job.loader, &batch[0], &batch[1]));
  batch[3] = int64_tensor(ones, shape, 2);
  EXPECT_OK(fsdp2_step_run(job.step, batch, 4, &result));
  EXPECT_NEAR(result.loss, kGoldenLoss[0], 5e-6);
  EXPECT(result.n_labels == 0);
  EXPECT_STATUS(fsdp2_step_run(job.step, (fsdp2_tensor[2]){{0}, batch[1]}, 2, &result),
                FSDP2_E_INVALID_HANDLE);
  EXPECT_STATUS(fsdp2_step_run(job.step, batch, 5, &result), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("batch: expected 1 to 4 inputs");
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[3]));
  end_lone_job(&job);
}

static void a_module_has_a_training_and_an_evaluation_mode(void) {
  fsdp2_module module = tiny_llama();
  int32_t training = -1;
  EXPECT_OK(fsdp2_module_is_training(module, &training));
  EXPECT(training == 1);
  EXPECT_OK(fsdp2_module_train(module, 0));
  EXPECT_OK(fsdp2_module_is_training(module, &training));
  EXPECT(training == 0);
  EXPECT_STATUS(fsdp2_module_train(module, 2), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_module_is_training(module, NULL), FSDP2_E_NULL_ARGUMENT);
  EXPECT_OK(fsdp2_module_destroy(module));
}

/* A group that does not learn, and the moments that the others get. */
static void parameter_groups_and_state_are_told(void) {
  const char* const names[1] = {"model.norm.weight"};
  const char* const unknown[1] = {"model.norm.bias"};
  struct job job = start_lone_job();
  fsdp2_adamw_options frozen = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_tensor moment = {0}, full = {0};
  fsdp2_tensor_info info;
  size_t norm = 0, head = 0;
  double value = 0.0;
  frozen.lr = 0.0;
  EXPECT_STATUS(fsdp2_optimizer_add_adamw_group(job.optimizer, unknown, 1, &frozen),
                FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("model.norm.bias");
  EXPECT_STATUS(fsdp2_optimizer_add_sgd_group(job.optimizer, names, 1, NULL),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_OK(fsdp2_optimizer_add_adamw_group(job.optimizer, names, 1, &frozen));
  EXPECT_STATUS(fsdp2_optimizer_add_adamw_group(job.optimizer, names, 1, &frozen),
                FSDP2_E_INVALID_ARGUMENT);
  take_step(job.loader, job.step);
  EXPECT_OK(fsdp2_shard_get_parameter_index(job.shard, names[0], &norm));
  EXPECT_OK(fsdp2_shard_get_parameter_index(job.shard, "lm_head.weight", &head));
  EXPECT_OK(fsdp2_optimizer_get_state(job.optimizer, norm, "step", FSDP2_PARAMETER_LOCAL, &moment));
  EXPECT_OK(fsdp2_tensor_get_value(moment, &value));
  EXPECT(value == 1.0);
  EXPECT_OK(fsdp2_tensor_destroy(moment));
  EXPECT_OK(
      fsdp2_optimizer_get_state(job.optimizer, head, "exp_avg", FSDP2_PARAMETER_LOCAL, &moment));
  EXPECT_OK(fsdp2_optimizer_get_state(job.optimizer, head, "exp_avg", FSDP2_PARAMETER_FULL, &full));
  memset(&info, 0, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(full, &info));
  EXPECT(info.n_dims == 2);
  EXPECT_OK(fsdp2_tensor_destroy(moment));
  EXPECT_OK(fsdp2_tensor_destroy(full));
  EXPECT_STATUS(
      fsdp2_optimizer_get_state(job.optimizer, head, "momentum", FSDP2_PARAMETER_FULL, &full),
      FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("expected one of [step, exp_avg, exp_avg_sq], found momentum");
  EXPECT_STATUS(fsdp2_optimizer_get_state(job.optimizer, 1000, "step", FSDP2_PARAMETER_FULL, &full),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_optimizer_get_state(job.optimizer, head, "step", 1, &full),
                FSDP2_E_INVALID_ARGUMENT);
  end_lone_job(&job);
}

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

static void a_step_of_two_micro_batches_is_the_same_step(void) {
  struct job job = start_lone_job();
  fsdp2_loader_options loading = FSDP2_LOADER_OPTIONS_INIT;
  fsdp2_step_options stepping = FSDP2_STEP_OPTIONS_INIT;
  fsdp2_tensor batch[4];
  fsdp2_step_result result;
  int64_t position = -1;
  int i;
  EXPECT_OK(fsdp2_loader_destroy(job.loader));
  EXPECT_OK(fsdp2_step_destroy(job.step));
  loading.sequence_length = 32;
  loading.global_batch = 8;
  loading.vocab_size = 384;
  loading.accumulate = 2;
  stepping.accumulate = 2;
  stepping.accumulate_last = 1;
  EXPECT_OK(fsdp2_loader_open(job.mesh, TINY_LLAMA_TOKENS, &loading, &job.loader));
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, &stepping, &job.step));
  EXPECT_OK(fsdp2_loader_next(job.loader, &batch[0], &batch[1]));
  EXPECT_OK(fsdp2_loader_get_position(job.loader, &position));
  EXPECT(position == 0);
  EXPECT_OK(fsdp2_loader_next(job.loader, &batch[2], &batch[3]));
  EXPECT_OK(fsdp2_loader_get_position(job.loader, &position));
  EXPECT(position == 1);
  result.struct_size = (uint32_t)sizeof(result);
  EXPECT_OK(fsdp2_step_run(job.step, batch, 4, &result));
  EXPECT_NEAR(result.loss, kGoldenLoss[0], 5e-6);
  for (i = 0; i < 4; ++i) {
    EXPECT_OK(fsdp2_tensor_destroy(batch[i]));
  }
  end_lone_job(&job);
}

static void a_loader_goes_on_where_it_is_told(void) {
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_loader loader = golden_loader(mesh);
  fsdp2_tensor first[2], again[2];
  int64_t tokens[2][8 * 32];
  int64_t position = -1;
  int i;
  EXPECT_OK(fsdp2_loader_set_position(loader, 1));
  EXPECT_OK(fsdp2_loader_next(loader, &first[0], &first[1]));
  EXPECT_OK(fsdp2_loader_get_position(loader, &position));
  EXPECT(position == 2);
  EXPECT_OK(fsdp2_loader_set_position(loader, 1));
  EXPECT_OK(fsdp2_loader_next(loader, &again[0], &again[1]));
  EXPECT_OK(fsdp2_tensor_read(first[0], tokens[0], sizeof(tokens[0])));
  EXPECT_OK(fsdp2_tensor_read(again[0], tokens[1], sizeof(tokens[1])));
  EXPECT(memcmp(tokens[0], tokens[1], sizeof(tokens[0])) == 0);
  for (i = 0; i < 2; ++i) {
    EXPECT_OK(fsdp2_tensor_destroy(first[i]));
    EXPECT_OK(fsdp2_tensor_destroy(again[i]));
  }
  EXPECT_OK(fsdp2_loader_destroy(loader));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

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

static void what_is_not_provided_yet_says_so(void) {
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  place.rank = 0;
  place.world_size = 1;
  place.backend = FSDP2_BACKEND_NCCL;
  EXPECT_STATUS(fsdp2_mesh_create(&place, &mesh), FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("nccl");
}

static void an_optimizer_of_another_shard_is_refused(void) {
  struct job one = start_lone_job(), other = start_lone_job();
  fsdp2_step step = {5};
  EXPECT_STATUS(fsdp2_step_create(one.shard, other.optimizer, NULL, &step),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT(step.id == 5);
  end_lone_job(&one);
  end_lone_job(&other);
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

static void learning_rates_can_be_changed(void) {
  struct job job = start_lone_job();
  fsdp2_sgd_options options = FSDP2_SGD_OPTIONS_INIT;
  fsdp2_optimizer sgd = {0};
  double lr = 0.0;
  options.momentum = 0.9;
  options.nesterov = 1;
  EXPECT_OK(fsdp2_optimizer_sgd(job.shard, &options, &sgd));
  EXPECT_OK(fsdp2_optimizer_set_lr(sgd, 0.25));
  EXPECT_OK(fsdp2_optimizer_get_lr(sgd, &lr));
  EXPECT(lr == 0.25);
  EXPECT_OK(fsdp2_optimizer_destroy(sgd));
  end_lone_job(&job);
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
  RUN(three_steps_have_the_golden_losses);
  RUN(the_pieces_of_a_step_are_calls_of_their_own);
  RUN(parameter_groups_and_state_are_told);
  RUN(a_step_tells_where_it_stands);
  RUN(a_loss_scale_keeps_the_golden_losses);
  RUN(an_overflow_under_a_loss_scale_is_not_applied);
  RUN(wrong_loss_scales_are_refused);
  RUN(a_loss_is_the_mean_over_labels_if_asked_for);
  RUN(a_step_takes_inputs_that_are_left_out);
  RUN(a_module_has_a_training_and_an_evaluation_mode);
  RUN(layers_checkpointed_before_sharding_have_the_golden_losses);
  RUN(layers_checkpointed_after_sharding_have_the_golden_losses);
  RUN(layers_that_run_again_to_their_end_have_the_golden_losses);
  RUN(mistakes_in_checkpointing_are_named);
  RUN(a_step_of_two_micro_batches_is_the_same_step);
  RUN(a_loader_goes_on_where_it_is_told);
  RUN(parameters_are_told_by_name_shape_and_place);
  RUN(a_local_parameter_shares_its_memory_and_a_full_one_is_a_copy);
  RUN(a_module_is_sharded_once);
  RUN(what_is_not_provided_yet_says_so);
  RUN(an_optimizer_of_another_shard_is_refused);
  RUN(precision_and_units_are_options_of_a_shard);
  RUN(learning_rates_can_be_changed);
  RUN(a_saved_model_is_read_back);
  RUN(statistics_count_units_and_can_be_reset);
  return harness_result();
}
