/* Steps and loaders through the C ABI, on one rank. */
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
  options.loss_scale = 0x1p127; /* gradients of 2 are infinite, of 1 not */
  EXPECT_OK(fsdp2_step_destroy(job.step));
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, &options, &job.step));
  result = take_step(job.loader, job.step);
  EXPECT(result.applied == 0 && result.finite == 0 && result.step == 0);
  EXPECT_NEAR(result.loss, kGoldenLoss[0], 5e-6);
  result = take_step(job.loader, job.step);
  EXPECT(result.applied == 1 && result.step == 1 && result.loss_scale == 0x1p126);
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
  EXPECT(result.loss == result.mean_over_labels && result.loss != result.mean_over_micro_batches);
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
  EXPECT(result.n_labels == result.n_tokens);
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

static void a_step_may_update_in_backward(void) {
  struct job job = start_lone_job();
  fsdp2_step_options stepping = FSDP2_STEP_OPTIONS_INIT;
  fsdp2_optimizer muon = {0};
  fsdp2_step step = {0};
  int i;
  EXPECT_OK(fsdp2_step_destroy(job.step));
  stepping.update_in_backward = 1;
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, &stepping, &job.step));
  for (i = 0; i < 3; ++i) {
    EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[i], 5e-6);
  }
  stepping.max_grad_norm = 1.0;
  EXPECT_STATUS(fsdp2_step_create(job.shard, job.optimizer, &stepping, &step),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("update_in_backward: expected max_grad_norm 0");
  stepping.max_grad_norm = 0.0;
  stepping.loss_scale = 65536.0;
  EXPECT_STATUS(fsdp2_step_create(job.shard, job.optimizer, &stepping, &step),
                FSDP2_E_INVALID_ARGUMENT);
  stepping.loss_scale = 0.0;
  stepping.not_finite = FSDP2_NOT_FINITE_SKIP;
  EXPECT_STATUS(fsdp2_step_create(job.shard, job.optimizer, &stepping, &step),
                FSDP2_E_INVALID_ARGUMENT);
  stepping.not_finite = FSDP2_NOT_FINITE_ERROR;
  EXPECT_OK(fsdp2_optimizer_create_muon(job.shard, NULL, &muon));
  EXPECT_STATUS(fsdp2_step_create(job.shard, muon, &stepping, &step), FSDP2_E_UNSUPPORTED);
  EXPECT_OK(fsdp2_optimizer_destroy(muon));
  end_lone_job(&job);
}

/* The root's gradients come last: the layers are updated by then. */
static fsdp2_status refuse_those_of_the_root(const fsdp2_gradient_info* info, fsdp2_tensor gradient,
                                             void* user_data) {
  (void)gradient;
  (void)user_data;
  return info->unit_index == 0 ? FSDP2_E_INVALID_ARGUMENT : FSDP2_OK;
}

static void what_is_half_updated_is_not_updated_by_hand_either(void) {
  struct job job = start_lone_job();
  fsdp2_step_options stepping = FSDP2_STEP_OPTIONS_INIT;
  fsdp2_step_result result = {.struct_size = sizeof(result)};
  fsdp2_tensor batch[2];
  EXPECT_OK(fsdp2_step_destroy(job.step));
  stepping.update_in_backward = 1;
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, &stepping, &job.step));
  EXPECT_OK(fsdp2_optimizer_run(job.optimizer)); /* without gradients it does nothing */
  EXPECT_OK(
      fsdp2_shard_set_gradient_ready(job.shard, NULL, 1, refuse_those_of_the_root, NULL, NULL));
  EXPECT_OK(fsdp2_loader_next(job.loader, &batch[0], &batch[1]));
  EXPECT_STATUS(fsdp2_step_run(job.step, batch, 2, &result), FSDP2_E_CALLBACK);
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  EXPECT_STATUS(fsdp2_optimizer_run(job.optimizer), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("the parameters are half updated, since step 0 failed amid its updates");
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

static void nccl_without_a_gpu_says_what_is_missing(void) {
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  place.rank = 0;
  place.world_size = 1;
  place.backend = FSDP2_BACKEND_NCCL;
  if (fsdp2_mesh_create(&place, &mesh) == FSDP2_OK) {
    EXPECT_OK(fsdp2_mesh_destroy(mesh)); /* there is one */
    return;
  }
  EXPECT_STATUS(fsdp2_mesh_create(&place, &mesh), FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("mesh: cuda: ");
}

int main(void) {
  RUN(three_steps_have_the_golden_losses);
  RUN(the_pieces_of_a_step_are_calls_of_their_own);
  RUN(a_step_tells_where_it_stands);
  RUN(a_step_may_update_in_backward);
  RUN(what_is_half_updated_is_not_updated_by_hand_either);
  RUN(a_loss_scale_keeps_the_golden_losses);
  RUN(an_overflow_under_a_loss_scale_is_not_applied);
  RUN(wrong_loss_scales_are_refused);
  RUN(a_loss_is_the_mean_over_labels_if_asked_for);
  RUN(a_step_takes_inputs_that_are_left_out);
  RUN(a_module_has_a_training_and_an_evaluation_mode);
  RUN(a_step_of_two_micro_batches_is_the_same_step);
  RUN(a_loader_goes_on_where_it_is_told);
  RUN(nccl_without_a_gpu_says_what_is_missing);
  return harness_result();
}
