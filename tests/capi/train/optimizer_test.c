/* Optimizers through the C ABI, on one rank: their groups, state and rates, what they tell, and
 * what of a group can be changed. */
#include "tests/capi/harness.h"

enum { kParameters = 21 };

static const char* const kNorms[2] = {"model.norm.weight", "model.layers.0.input_layernorm.weight"};

static fsdp2_optimizer_info info_of(fsdp2_optimizer optimizer) {
  fsdp2_optimizer_info info;
  memset(&info, 0xa5, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_optimizer_get_info(optimizer, &info));
  return info;
}

static fsdp2_optimizer_group_info group_of(fsdp2_optimizer optimizer, size_t group) {
  fsdp2_optimizer_group_info info;
  memset(&info, 0xa5, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_optimizer_get_group_info(optimizer, group, &info));
  return info;
}

static int64_t elements_of(fsdp2_module module) {
  fsdp2_module_info info;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_module_get_info(module, &info));
  return info.numel;
}

static fsdp2_optimizer sgd_with(fsdp2_shard shard, double momentum) {
  fsdp2_sgd_options options = FSDP2_SGD_OPTIONS_INIT;
  fsdp2_optimizer optimizer = {0};
  options.lr = 0.5;
  options.momentum = momentum;
  options.weight_decay = 0.25;
  options.nesterov = momentum > 0.0;
  EXPECT_OK(fsdp2_optimizer_create_sgd(shard, &options, &optimizer));
  return optimizer;
}

static void add_norms(fsdp2_optimizer optimizer, double lr, double weight_decay) {
  fsdp2_adamw_options options = FSDP2_ADAMW_OPTIONS_INIT;
  options.lr = lr;
  options.beta1 = 0.5;
  options.beta2 = 0.75;
  options.eps = 1e-6;
  options.weight_decay = weight_decay;
  EXPECT_OK(fsdp2_optimizer_add_adamw_group(optimizer, kNorms, 2, &options));
}

/* ---- the whole */

static void an_optimizer_tells_what_it_is_and_holds(void) {
  struct job job = start_lone_job();
  const int64_t numel = elements_of(job.module);
  const fsdp2_optimizer sgd = sgd_with(job.shard, 0.9), plain = sgd_with(job.shard, 0.0);
  fsdp2_optimizer_info info = info_of(job.optimizer);
  EXPECT(info.struct_size == sizeof(info) && info.algorithm == FSDP2_OPTIMIZER_ADAMW);
  EXPECT(info.n_groups == 1 && info.n_parameters == kParameters && info.n_bytes == 0);
  take_step(job.loader, job.step);
  EXPECT(info_of(job.optimizer).n_bytes == 4 * (2 * numel + kParameters)); /* a step for each */
  info = info_of(sgd);
  EXPECT(info.algorithm == FSDP2_OPTIMIZER_SGD && info.n_bytes == 0);
  add_norms(job.optimizer, 1e-3, 0.0);
  EXPECT(info_of(job.optimizer).n_groups == 2 && info_of(sgd).n_groups == 1);
  {
    fsdp2_tensor momentum = {0};
    EXPECT_OK(fsdp2_optimizer_get_state(sgd, 0, "momentum_buffer", 0, &momentum));
    EXPECT(info_of(sgd).n_bytes == 4 * 384 * 64); /* the embedding's alone */
    EXPECT_OK(fsdp2_tensor_destroy(momentum));
  }
  EXPECT_OK(fsdp2_optimizer_run(plain));
  EXPECT(info_of(plain).n_bytes == 0);
  EXPECT_OK(fsdp2_optimizer_destroy(sgd));
  EXPECT_OK(fsdp2_optimizer_destroy(plain));
  end_lone_job(&job);
}

static fsdp2_optimizer adamw_in(fsdp2_shard shard, int32_t state_dtype) {
  fsdp2_adamw_options options = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_optimizer optimizer = {0};
  options.state_dtype = state_dtype;
  EXPECT_OK(fsdp2_optimizer_create_adamw(shard, &options, &optimizer));
  return optimizer;
}

static void moments_in_bf16_take_half_the_memory(void) {
  struct job job = start_lone_job();
  const int64_t numel = elements_of(job.module);
  const fsdp2_optimizer bf16 = adamw_in(job.shard, FSDP2_DTYPE_BF16),
                        f32 = adamw_in(job.shard, FSDP2_DTYPE_F32);
  fsdp2_adamw_options options = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_optimizer none = {0};
  fsdp2_tensor state = {0};
  fsdp2_tensor_info info;
  EXPECT(info_of(bf16).n_bytes == 0);
  EXPECT(info_of(bf16).n_full_bytes == 2 * 2 * numel + 4 * kParameters);
  EXPECT(info_of(f32).n_full_bytes == info_of(job.optimizer).n_full_bytes);
  EXPECT(info_of(f32).n_full_bytes == 2 * 4 * numel + 4 * kParameters);
  take_step(job.loader, job.step);
  EXPECT(info_of(job.optimizer).n_bytes == info_of(job.optimizer).n_full_bytes);
  EXPECT_OK(fsdp2_optimizer_get_state(bf16, 0, "exp_avg_sq", FSDP2_PARAMETER_LOCAL, &state));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(state, &info));
  EXPECT(info.dtype == FSDP2_DTYPE_BF16);
  EXPECT_OK(fsdp2_tensor_destroy(state));
  options.state_dtype = FSDP2_DTYPE_F32;
  EXPECT_STATUS(fsdp2_optimizer_add_adamw_group(bf16, kNorms, 2, &options),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("state_dtype");
  options.state_dtype = FSDP2_DTYPE_KEEP;
  EXPECT_OK(fsdp2_optimizer_add_adamw_group(bf16, kNorms, 2, &options));
  EXPECT(info_of(bf16).n_full_bytes == 2 * 2 * numel + 4 * kParameters);
  options.state_dtype = FSDP2_DTYPE_F16;
  EXPECT_STATUS(fsdp2_optimizer_create_adamw(job.shard, &options, &none), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("state_dtype");
  EXPECT_OK(fsdp2_shard_cast_parameters(job.shard, FSDP2_DTYPE_BF16));
  options.state_dtype = FSDP2_DTYPE_BF16;
  EXPECT_STATUS(fsdp2_optimizer_create_adamw(job.shard, &options, &none), FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("needs parameters in Float");
  EXPECT_OK(fsdp2_optimizer_destroy(bf16));
  EXPECT_OK(fsdp2_optimizer_destroy(f32));
  end_lone_job(&job);
}

/* ---- groups */

static void a_group_tells_its_options(void) {
  struct job job = start_lone_job();
  const fsdp2_optimizer sgd = sgd_with(job.shard, 0.9);
  fsdp2_optimizer_group_info group;
  add_norms(job.optimizer, 6e-3, 0.0);
  group = group_of(job.optimizer, 0);
  EXPECT(group.struct_size == sizeof(group) && group.n_parameters == kParameters - 2);
  EXPECT(group.lr == 3e-3 && group.beta1 == 0.9 && group.beta2 == 0.95 && group.eps == 1e-8);
  EXPECT(group.weight_decay == 0.1 && group.momentum == 0.0 && group.nesterov == 0);
  group = group_of(job.optimizer, 1);
  EXPECT(group.n_parameters == 2 && group.lr == 6e-3 && group.beta1 == 0.5);
  EXPECT(group.beta2 == 0.75 && group.eps == 1e-6 && group.weight_decay == 0.0);
  group = group_of(sgd, 0);
  EXPECT(group.n_parameters == kParameters && group.lr == 0.5 && group.momentum == 0.9);
  EXPECT(group.weight_decay == 0.25 && group.nesterov == 1 && group.reserved == 0);
  EXPECT(group.beta1 == 0.0 && group.beta2 == 0.0 && group.eps == 0.0);
  EXPECT_OK(fsdp2_optimizer_destroy(sgd));
  end_lone_job(&job);
}

static void a_group_lists_its_parameters(void) {
  struct job job = start_lone_job();
  size_t first[kParameters], second[2] = {77, 77}, names[2], needed = 0, i;
  add_norms(job.optimizer, 1e-3, 0.0);
  for (i = 0; i < 2; ++i) {
    EXPECT_OK(fsdp2_shard_get_parameter_index(job.shard, kNorms[i], &names[i]));
  }
  EXPECT_STATUS(fsdp2_optimizer_get_group_parameters(job.optimizer, 1, second, 1, &needed),
                FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(needed == 2 && second[0] == 77);
  EXPECT_OK(fsdp2_optimizer_get_group_parameters(job.optimizer, 1, second, 2, &needed));
  EXPECT(second[0] == names[1] && second[1] == names[0]); /* ascending */
  EXPECT_OK(fsdp2_optimizer_get_group_parameters(job.optimizer, 0, NULL, 0, &needed));
  EXPECT(needed == kParameters - 2);
  EXPECT_OK(fsdp2_optimizer_get_group_parameters(job.optimizer, 0, first, kParameters, &needed));
  for (i = 0; i < needed; ++i) {
    EXPECT(first[i] != names[0] && first[i] != names[1] && (i == 0 || first[i] > first[i - 1]));
  }
  end_lone_job(&job);
}

static void frozen_parameters_are_in_no_group(void) {
  static const char* const kHead[1] = {"lm_head"};
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_llama();
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  size_t indices[kParameters], head = 0, needed = 0, i;
  EXPECT_OK(fsdp2_module_set_requires_grad(module, kHead, 1, 0));
  shard = shard_of(module, mesh);
  optimizer = golden_adamw(shard);
  EXPECT(info_of(optimizer).n_parameters == kParameters - 1);
  EXPECT_OK(fsdp2_shard_get_parameter_index(shard, "lm_head.weight", &head));
  EXPECT_OK(fsdp2_optimizer_get_group_parameters(optimizer, 0, indices, kParameters, &needed));
  EXPECT(needed == kParameters - 1);
  for (i = 0; i < needed; ++i) {
    EXPECT(indices[i] != head);
  }
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

/* ---- changes */

static void a_groups_rate_follows_the_first_ones_in_its_new_ratio(void) {
  struct job job = start_lone_job();
  fsdp2_step_options options = FSDP2_STEP_OPTIONS_INIT;
  fsdp2_step step = {0};
  add_norms(job.optimizer, 3e-3, 0.0);
  EXPECT_OK(fsdp2_optimizer_set_group_lr(job.optimizer, 1, 6e-3));
  EXPECT(group_of(job.optimizer, 0).lr == 3e-3);
  EXPECT_NEAR(group_of(job.optimizer, 1).lr, 6e-3, 1e-12);
  EXPECT_OK(fsdp2_optimizer_set_group_lr(job.optimizer, 0, 1e-3));
  EXPECT(group_of(job.optimizer, 0).lr == 1e-3);
  EXPECT_NEAR(group_of(job.optimizer, 1).lr, 2e-3, 1e-12);
  options.schedule = FSDP2_SCHEDULE_LINEAR;
  options.total_steps = 4;
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, &options, &step));
  EXPECT_OK(fsdp2_step_set_position(step, 2));
  EXPECT_NEAR(take_step(job.loader, step).lr, 5e-4, 1e-12);
  EXPECT_NEAR(group_of(job.optimizer, 1).lr, 1e-3, 1e-12);
  EXPECT_OK(fsdp2_optimizer_set_group_lr(job.optimizer, 1, 0.0)); /* stays, and can come back */
  EXPECT_NEAR(take_step(job.loader, step).lr, 2.5e-4, 1e-12);
  EXPECT(group_of(job.optimizer, 1).lr == 0.0);
  EXPECT_OK(fsdp2_optimizer_set_group_lr(job.optimizer, 1, 1.0));
  EXPECT_NEAR(group_of(job.optimizer, 1).lr, 1.0, 1e-12);
  EXPECT_OK(fsdp2_optimizer_set_lr(job.optimizer, 0.0));
  EXPECT_STATUS(fsdp2_optimizer_set_group_lr(job.optimizer, 1, 1.0), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("expected the optimizer's to be above 0");
  EXPECT_OK(fsdp2_step_destroy(step));
  end_lone_job(&job);
}

static void read_parameters(fsdp2_shard shard, float* values, size_t cap) {
  size_t count = 0, i;
  EXPECT_OK(fsdp2_shard_get_parameter_count(shard, &count));
  for (i = 0; i < count; ++i) {
    fsdp2_tensor tensor = {0};
    fsdp2_tensor_info info;
    info.struct_size = (uint32_t)sizeof(info);
    EXPECT_OK(fsdp2_shard_get_parameter(shard, i, FSDP2_PARAMETER_LOCAL, &tensor));
    EXPECT_OK(fsdp2_tensor_get_info(tensor, &info));
    if (EXPECT((size_t)info.n_bytes / sizeof(float) <= cap)) {
      EXPECT_OK(fsdp2_tensor_read(tensor, values, (size_t)info.n_bytes));
      values += (size_t)info.n_bytes / sizeof(float);
      cap -= (size_t)info.n_bytes / sizeof(float);
    }
    EXPECT_OK(fsdp2_tensor_destroy(tensor));
  }
}

static void a_changed_group_trains_as_one_that_was_made_so(void) {
  struct job made = start_lone_job(), changed = start_lone_job();
  const size_t numel = (size_t)elements_of(made.module);
  float* values[2];
  int i;
  add_norms(made.optimizer, 1e-2, 0.5);
  add_norms(changed.optimizer, 1e-3, 0.0);
  EXPECT_OK(fsdp2_optimizer_set_group_lr(changed.optimizer, 1, 1e-2));
  EXPECT_OK(fsdp2_optimizer_set_group_weight_decay(changed.optimizer, 1, 0.5));
  EXPECT(group_of(changed.optimizer, 1).weight_decay == 0.5);
  EXPECT(group_of(changed.optimizer, 0).weight_decay == 0.1);
  for (i = 0; i < 2; ++i) {
    const struct job* job = i == 0 ? &made : &changed;
    take_step(job->loader, job->step);
    take_step(job->loader, job->step);
    values[i] = (float*)calloc(numel, sizeof(float));
    read_parameters(job->shard, values[i], numel);
  }
  EXPECT(memcmp(values[0], values[1], numel * sizeof(float)) == 0);
  free(values[0]);
  free(values[1]);
  end_lone_job(&made);
  end_lone_job(&changed);
}

static void groups_can_be_kept_and_restored(void) {
  struct job job = start_lone_job();
  fsdp2_optimizer_group_info kept[2];
  size_t i;
  add_norms(job.optimizer, 6e-3, 0.25);
  for (i = 0; i < 2; ++i) {
    kept[i] = group_of(job.optimizer, i);
    EXPECT_OK(fsdp2_optimizer_set_group_lr(job.optimizer, i, 1.0));
    EXPECT_OK(fsdp2_optimizer_set_group_weight_decay(job.optimizer, i, 0.0));
  }
  for (i = 0; i < 2; ++i) {
    EXPECT_OK(fsdp2_optimizer_set_group_lr(job.optimizer, i, kept[i].lr));
    EXPECT_OK(fsdp2_optimizer_set_group_weight_decay(job.optimizer, i, kept[i].weight_decay));
  }
  for (i = 0; i < 2; ++i) {
    EXPECT_NEAR(group_of(job.optimizer, i).lr, kept[i].lr, 1e-12);
    EXPECT(group_of(job.optimizer, i).weight_decay == kept[i].weight_decay);
  }
  end_lone_job(&job);
}

/* tiny_llama has 5 norms, and no biases. */
static void groups_are_made_by_rule(void) {
  struct job job = start_lone_job();
  EXPECT_OK(fsdp2_optimizer_exempt_from_decay(job.optimizer,
                                              FSDP2_NO_DECAY_NORMS | FSDP2_NO_DECAY_BIASES));
  EXPECT(info_of(job.optimizer).n_groups == 2);
  EXPECT(group_of(job.optimizer, 0).weight_decay == 0.1);
  EXPECT(group_of(job.optimizer, 1).weight_decay == 0.0);
  EXPECT(group_of(job.optimizer, 1).n_parameters == 5 && group_of(job.optimizer, 1).lr == 3e-3);
  EXPECT(group_of(job.optimizer, 1).beta2 == 0.95);
  EXPECT_OK(fsdp2_optimizer_scale_lr(job.optimizer, "model.layers.0.*", 0.5));
  EXPECT(info_of(job.optimizer).n_groups == 4);
  EXPECT(group_of(job.optimizer, 2).n_parameters == 7 && group_of(job.optimizer, 2).lr == 1.5e-3);
  EXPECT(group_of(job.optimizer, 2).weight_decay == 0.1);
  EXPECT(group_of(job.optimizer, 3).n_parameters == 2 && group_of(job.optimizer, 3).lr == 1.5e-3);
  EXPECT(group_of(job.optimizer, 3).weight_decay == 0.0);
  EXPECT_STATUS(fsdp2_optimizer_scale_lr(job.optimizer, "lm_head", 0.5), FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("pattern 'lm_head': matches the name of no parameter");
  end_lone_job(&job);
}

/* tiny_llama has 2 layers of 7 matrices, an embedding and a head. */
static void groups_are_made_by_names_and_classes(void) {
  const char* const heads[2] = {"lm_head.*", "model.embed_tokens.weight"};
  const char* const classes[1] = {"LlamaMLP"};
  const char* const unknown[2] = {"lm_head.weight", "NoSuchClass"};
  struct job job = start_lone_job();
  EXPECT_OK(fsdp2_optimizer_exempt_named_from_decay(job.optimizer, heads, 2, 0));
  EXPECT(group_of(job.optimizer, 1).n_parameters == 2);
  EXPECT(group_of(job.optimizer, 1).weight_decay == 0.0);
  EXPECT_OK(
      fsdp2_optimizer_exempt_named_from_decay(job.optimizer, classes, 1, FSDP2_NO_DECAY_BY_CLASS));
  EXPECT(group_of(job.optimizer, 2).n_parameters == 6);
  EXPECT(group_of(job.optimizer, 2).weight_decay == 0.0);
  EXPECT(group_of(job.optimizer, 0).weight_decay == 0.1);
  EXPECT_OK(fsdp2_optimizer_scale_named_lr(job.optimizer, heads, 2, 0.5));
  EXPECT(info_of(job.optimizer).n_groups == 3 && group_of(job.optimizer, 1).lr == 1.5e-3);
  EXPECT_STATUS(fsdp2_optimizer_exempt_named_from_decay(job.optimizer, unknown, 2, 0),
                FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("pattern 'NoSuchClass': matches the name of no parameter");
  EXPECT_STATUS(fsdp2_optimizer_exempt_named_from_decay(job.optimizer, unknown + 1, 1,
                                                        FSDP2_NO_DECAY_BY_CLASS),
                FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("class 'NoSuchClass': no module of it has a parameter");
  EXPECT(info_of(job.optimizer).n_groups == 3);
  end_lone_job(&job);
}

static void muon_has_matrices_and_leaves_the_rest_to_adamw(void) {
  const char* const square[1] = {"model.layers.0.self_attn.q_proj.weight"};
  struct job job = start_lone_job();
  fsdp2_optimizer muon = {0};
  fsdp2_step step = {0};
  fsdp2_optimizer_group_info group;
  double first = 0.0;
  int i;
  EXPECT_OK(fsdp2_optimizer_create_muon(job.shard, NULL, &muon));
  EXPECT(info_of(muon).algorithm == FSDP2_OPTIMIZER_MUON && info_of(muon).n_groups == 2);
  group = group_of(muon, 0);
  EXPECT(group.n_parameters == 14 && group.newton_schulz_steps == 5 && group.momentum == 0.95);
  EXPECT(group.matched_adamw_rms == 0.2 && group.nesterov == 1 && group.beta2 == 0.0);
  group = group_of(muon, 1);
  EXPECT(group.n_parameters == 7 && group.newton_schulz_steps == 0 && group.beta2 == 0.999);
  EXPECT_OK(fsdp2_optimizer_add_adamw_group(muon, square, 1, NULL));
  EXPECT(group_of(muon, 0).n_parameters == 13);
  EXPECT_OK(fsdp2_step_create(job.shard, muon, NULL, &step));
  first = take_step(job.loader, step).loss;
  for (i = 0; i < 5; ++i) {
    take_step(job.loader, step);
  }
  EXPECT(take_step(job.loader, step).loss < first);
  EXPECT(info_of(muon).n_received_bytes == 0); /* one rank */
  EXPECT_OK(fsdp2_optimizer_run(muon));
  EXPECT_OK(fsdp2_step_destroy(step));
  EXPECT_OK(fsdp2_optimizer_destroy(muon));
  end_lone_job(&job);
}

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

static void an_optimizer_of_another_shard_is_refused(void) {
  struct job one = start_lone_job(), other = start_lone_job();
  fsdp2_step step = {5};
  EXPECT_STATUS(fsdp2_step_create(one.shard, other.optimizer, NULL, &step),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT(step.id == 5);
  end_lone_job(&one);
  end_lone_job(&other);
}

static void learning_rates_can_be_changed(void) {
  struct job job = start_lone_job();
  const fsdp2_optimizer sgd = sgd_with(job.shard, 0.9);
  double lr = 0.0;
  EXPECT_OK(fsdp2_optimizer_set_lr(sgd, 0.25));
  EXPECT_OK(fsdp2_optimizer_get_lr(sgd, &lr));
  EXPECT(lr == 0.25);
  EXPECT_OK(fsdp2_optimizer_destroy(sgd));
  end_lone_job(&job);
}

int main(void) {
  RUN(groups_are_made_by_rule);
  RUN(groups_are_made_by_names_and_classes);
  RUN(muon_has_matrices_and_leaves_the_rest_to_adamw);
  RUN(parameter_groups_and_state_are_told);
  RUN(an_optimizer_of_another_shard_is_refused);
  RUN(learning_rates_can_be_changed);
  RUN(an_optimizer_tells_what_it_is_and_holds);
  RUN(moments_in_bf16_take_half_the_memory);
  RUN(a_group_tells_its_options);
  RUN(a_group_lists_its_parameters);
  RUN(frozen_parameters_are_in_no_group);
  RUN(a_groups_rate_follows_the_first_ones_in_its_new_ratio);
  RUN(a_changed_group_trains_as_one_that_was_made_so);
  RUN(groups_can_be_kept_and_restored);
  return harness_result();
}
