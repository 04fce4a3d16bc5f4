/* A plan of a shard says what its steps do, whoever is there to do them. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/ranks.h"

static fsdp2_plan_info plan_of(fsdp2_shard shard) {
  fsdp2_plan_info info;
  memset(&info, 0, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_plan_get_info(shard, NULL, &info));
  return info;
}

static fsdp2_plan_info plan_of_module(fsdp2_module module, int rank, int32_t world_size,
                                      int64_t fsdp_size) {
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  fsdp2_shard shard = {0};
  fsdp2_plan_info info;
  place.backend = FSDP2_BACKEND_FAKE;
  place.rank = rank;
  place.world_size = world_size;
  place.fsdp_size = fsdp_size;
  options.defer_values = 1;
  EXPECT_OK(fsdp2_mesh_create(&place, &mesh));
  EXPECT_OK(fsdp2_shard_create(module, mesh, &options, &shard));
  info = plan_of(shard);
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  return info;
}

static fsdp2_plan_info plan_alone(int rank, int32_t world_size, int64_t fsdp_size) {
  return plan_of_module(tiny_llama(), rank, world_size, fsdp_size);
}

static void compare(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_llama();
  fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_optimizer optimizer = golden_adamw(shard);
  fsdp2_loader loader = golden_loader(mesh);
  fsdp2_step step = {0};
  fsdp2_shard_stats stats;
  const fsdp2_plan_info plan = plan_of(shard), alone = plan_alone(rank, 4, 2);
  EXPECT(memcmp(&plan, &alone, sizeof(plan)) == 0);
  EXPECT_OK(fsdp2_step_create(shard, optimizer, NULL, &step));
  EXPECT_OK(fsdp2_shard_reset_stats(shard));
  take_step(loader, step);
  stats.struct_size = (uint32_t)sizeof(stats);
  EXPECT_OK(fsdp2_shard_get_stats(shard, &stats));
  EXPECT(plan.n_units == stats.n_units && plan.numel == 149824);
  EXPECT(plan.all_gathers == stats.all_gathers && plan.all_gather_bytes == stats.all_gather_bytes);
  EXPECT(plan.reduce_scatters == stats.reduce_scatters &&
         plan.reduce_scatter_bytes == stats.reduce_scatter_bytes);
  EXPECT(plan.all_reduces == stats.all_reduces && plan.all_reduce_bytes == stats.all_reduce_bytes);
  EXPECT(plan.peak_unsharded_bytes == stats.peak_unsharded_bytes);
  EXPECT(plan.optimizer_bytes == 2 * plan.gradient_bytes);
  EXPECT_OK(fsdp2_step_destroy(step));
  EXPECT_OK(fsdp2_loader_destroy(loader));
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
}
static void a_plan_is_what_a_step_does(void) { on_ranks("plan", 4, 2, compare); }

static void a_plan_needs_no_other_rank(void) {
  const fsdp2_plan_info few = plan_alone(3, 8, 0), many = plan_alone(3, 64, 0);
  EXPECT(few.numel == many.numel && few.n_units == many.n_units);
  EXPECT(few.shard_bytes > 6 * many.shard_bytes);
  EXPECT(few.all_gather_bytes < many.all_gather_bytes);
}

static void a_frozen_model_reduces_nothing(void) {
  const fsdp2_plan_info trained = plan_alone(0, 4, 2);
  const fsdp2_module module = tiny_llama();
  fsdp2_plan_info frozen;
  EXPECT_OK(fsdp2_module_set_requires_grad(module, NULL, 0, 0));
  frozen = plan_of_module(module, 0, 4, 2);
  EXPECT(frozen.shard_bytes == trained.shard_bytes && frozen.all_gathers > 0);
  EXPECT(frozen.gradient_bytes == 0 && frozen.optimizer_bytes == 0);
  EXPECT(frozen.reduce_scatters == 0 && frozen.all_reduces == 0);
}

static void options_of_a_plan_are_checked(void) {
  struct job job = start_lone_job();
  fsdp2_plan_options options = FSDP2_PLAN_OPTIONS_INIT;
  fsdp2_plan_info info;
  char text[4096];
  size_t needed = 0;
  info.struct_size = (uint32_t)sizeof(info);
  options.optimizer_states = -1;
  EXPECT_STATUS(fsdp2_plan_get_info(job.shard, &options, &info), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("optimizer_states");
  options.optimizer_states = 0.5;
  options.rows = 1 << 16;
  options.sequence_length = 1 << 17;
  EXPECT_STATUS(fsdp2_plan_get_info(job.shard, &options, &info), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("options.rows: expected at most 4294967296 tokens in all rows");
  options.sequence_length = 1 << 16;
  EXPECT_OK(fsdp2_plan_get_info(job.shard, &options, &info));
  options.rows = -1;
  EXPECT_STATUS(fsdp2_plan_get_info(job.shard, &options, &info), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("rows");
  options.rows = 0;
  options.sequence_length = -1;
  EXPECT_STATUS(fsdp2_plan_get_info(job.shard, &options, &info), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("sequence_length");
  options.sequence_length = 0;
  EXPECT_OK(fsdp2_plan_get_info(job.shard, &options, &info));
  EXPECT(info.optimizer_bytes == info.gradient_bytes / 2);
  options.optimizer_bytes = -1;
  EXPECT_STATUS(fsdp2_plan_get_info(job.shard, &options, &info), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("optimizer_bytes");
  options.optimizer_bytes = 12345;
  EXPECT_OK(fsdp2_plan_get_info(job.shard, &options, &info));
  EXPECT(info.optimizer_bytes == 12345);
  EXPECT_OK(fsdp2_plan_describe(job.shard, &options, text, sizeof(text), &needed));
  EXPECT(strstr(text, "memory of this rank") != NULL && strlen(text) + 1 == needed);
  end_lone_job(&job);
}

/* A shard of tiny-llama, of four ranks if nothing else is said, whose tensors have no values. */
struct shapes {
  fsdp2_module module;
  fsdp2_mesh mesh;
  fsdp2_shard shard;
};

static struct shapes shapes_at(fsdp2_module module, int32_t world_size, int32_t rank) {
  struct shapes made = {module, {0}, {0}};
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  place.backend = FSDP2_BACKEND_FAKE;
  place.world_size = world_size;
  place.rank = rank;
  place.device_type = "meta";
  options.defer_values = 1;
  EXPECT_OK(fsdp2_mesh_create(&place, &made.mesh));
  EXPECT_OK(fsdp2_shard_create(made.module, made.mesh, &options, &made.shard));
  return made;
}

static struct shapes shapes_of(fsdp2_module module) { return shapes_at(module, 4, 0); }

static void end_shapes(struct shapes* made) {
  EXPECT_OK(fsdp2_shard_destroy(made->shard));
  EXPECT_OK(fsdp2_module_destroy(made->module));
  EXPECT_OK(fsdp2_mesh_destroy(made->mesh));
}

static fsdp2_tensor tokens_of(int64_t rows, int64_t length) {
  static const int64_t kZeros[4096];
  const int64_t shape[] = {rows, length};
  return int64_tensor(kZeros, shape, 2);
}

static fsdp2_plan_memory memory_of(fsdp2_shard shard, int64_t rows, int64_t length,
                                   size_t micro_batches) {
  const fsdp2_tensor tokens = tokens_of(rows, length);
  const fsdp2_tensor inputs[] = {tokens, tokens};
  fsdp2_plan_memory memory;
  memset(&memory, 0, sizeof(memory));
  memory.struct_size = (uint32_t)sizeof(memory);
  EXPECT_OK(fsdp2_plan_get_memory(shard, inputs, 2, micro_batches, NULL, &memory));
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  EXPECT(memory.peak_bytes ==
         memory.model_bytes + memory.activation_bytes + memory.optimizer_bytes);
  return memory;
}

static void a_plan_tells_the_memory_of_a_step(void) {
  struct shapes plain = shapes_of(tiny_llama());
  const fsdp2_module module = tiny_llama();
  const fsdp2_plan_memory one = memory_of(plain.shard, 1, 64, 1);
  const fsdp2_plan_memory eight = memory_of(plain.shard, 8, 64, 1);
  struct shapes checkpointed;
  fsdp2_plan_memory less;
  EXPECT(eight.activation_bytes > 4 * one.activation_bytes);
  EXPECT(one.optimizer_bytes == plan_of(plain.shard).optimizer_bytes);
  EXPECT(memory_of(plain.shard, 1, 64, 1).peak_bytes == one.peak_bytes);
  EXPECT(memory_of(plain.shard, 1, 64, 3).peak_bytes < 2 * one.peak_bytes);
  EXPECT_OK(fsdp2_module_checkpoint_activations(module, NULL, 0, 1, 0));
  checkpointed = shapes_of(module);
  less = memory_of(checkpointed.shard, 8, 64, 1);
  EXPECT(less.activation_bytes < eight.activation_bytes);
  end_shapes(&checkpointed);
  end_shapes(&plain);
}

static fsdp2_status choose(fsdp2_shard shard, int64_t budget, fsdp2_plan_reshard* out) {
  const fsdp2_tensor tokens = tokens_of(1, 8);
  const fsdp2_tensor inputs[] = {tokens, tokens};
  fsdp2_status status;
  memset(out, 0, sizeof(*out));
  out->struct_size = (uint32_t)sizeof(*out);
  status = fsdp2_plan_choose_reshard(shard, inputs, 2, 1, NULL, budget, out);
  EXPECT(fsdp2_tensor_destroy(tokens) == FSDP2_OK);
  return status;
}

static int32_t reshard_of(fsdp2_shard shard, const char* unit) {
  fsdp2_unit_settings settings;
  settings.struct_size = (uint32_t)sizeof(settings);
  EXPECT_OK(fsdp2_shard_get_unit_settings(shard, unit, &settings));
  return settings.reshard_after_forward;
}

enum { kLayers = 6 };

static fsdp2_module wide_llama(void) {
  fsdp2_module module = {0};
  EXPECT_OK(fsdp2_module_from_config(
      "{\"model_type\": \"llama\", \"hidden_size\": 128, \"intermediate_size\": 352, "
      "\"num_hidden_layers\": 6, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
      "\"vocab_size\": 384, \"max_position_embeddings\": 64}",
      NULL, &module));
  return module;
}

/* The last of them, of `kept` that stay gathered. */
static void expect_last_layers_kept(fsdp2_shard shard, int32_t kept) {
  char layer[32];
  int i;
  for (i = 0; i < kLayers; ++i) {
    snprintf(layer, sizeof(layer), "model.layers.%d", i);
    EXPECT(reshard_of(shard, layer) ==
           (i >= kLayers - kept ? FSDP2_RESHARD_NEVER : FSDP2_RESHARD_ALWAYS));
  }
}

static void the_more_memory_the_more_units_stay_gathered(void) {
  struct shapes made = shapes_of(wide_llama());
  const int64_t resharded = memory_of(made.shard, 1, 8, 1).peak_bytes;
  fsdp2_plan_reshard all, out, again;
  int64_t budget = INT64_MAX, least = 0;
  int32_t kept = kLayers;
  int choices = 0;
  char expected[80];
  EXPECT_OK(choose(made.shard, budget, &all));
  EXPECT(all.n_candidates == kLayers && all.n_kept == kLayers);
  EXPECT(all.resharded_peak_bytes == resharded && all.peak_bytes > resharded);
  while (choose(made.shard, budget, &out) == FSDP2_OK) {
    EXPECT(out.peak_bytes <= budget && out.n_kept <= kept);
    EXPECT(out.resharded_peak_bytes == resharded);
    EXPECT(out.peak_bytes == memory_of(made.shard, 1, 8, 1).peak_bytes);
    expect_last_layers_kept(made.shard, out.n_kept);
    kept = out.n_kept;
    least = out.peak_bytes;
    budget = least - 1;
    ++choices;
  }
  EXPECT(choices >= 3 && kept < kLayers);
  EXPECT_STATUS(choose(made.shard, budget, &out), FSDP2_E_OUT_OF_MEMORY);
  snprintf(expected, sizeof(expected), "a step takes at least %lld bytes", (long long)least);
  EXPECT_MESSAGE(expected);
  expect_last_layers_kept(made.shard, kept);
  EXPECT_OK(choose(made.shard, all.peak_bytes, &again));
  EXPECT(memcmp(&again, &all, sizeof(all)) == 0);
  end_shapes(&made);
}

static void a_budget_that_no_step_fits_in_changes_nothing(void) {
  struct shapes made = shapes_of(tiny_llama());
  fsdp2_plan_reshard out;
  EXPECT_OK(fsdp2_shard_set_reshard_after_forward(made.shard, "model.layers.0", 0, 0));
  EXPECT_STATUS(choose(made.shard, 1, &out), FSDP2_E_OUT_OF_MEMORY);
  EXPECT_MESSAGE("whichever units reshard after forward, expected at most 1:");
  EXPECT(reshard_of(made.shard, "model.layers.0") == FSDP2_RESHARD_NEVER);
  EXPECT(reshard_of(made.shard, "model.layers.1") == FSDP2_RESHARD_AUTO);
  EXPECT_STATUS(choose(made.shard, 0, &out), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("budget_bytes");
  end_shapes(&made);
}

/* Another rank than the first might choose otherwise; alone, a rank has nothing to gather. */
static void all_ranks_choose_alike(void) {
  struct job job = start_lone_job();
  struct shapes second = shapes_at(tiny_llama(), 4, 1), lone = shapes_at(tiny_llama(), 1, 0);
  fsdp2_plan_reshard out;
  EXPECT_STATUS(choose(second.shard, INT64_MAX, &out), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("expected the plan of rank 0");
  EXPECT_OK(choose(lone.shard, INT64_MAX, &out));
  EXPECT(out.n_candidates == 0 && out.n_kept == 0 && out.peak_bytes == out.resharded_peak_bytes);
  EXPECT_STATUS(choose(job.shard, INT64_MAX, &out), FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("expected a mesh of device type meta, found c");
  end_shapes(&lone);
  end_shapes(&second);
  end_lone_job(&job);
}

/* A step on four ranks, whose units follow the plan's choice. */
static void take_planned_step(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = wide_llama();
  const fsdp2_shard shard = shard_of(module, mesh);
  const fsdp2_optimizer optimizer = golden_adamw(shard);
  const fsdp2_tensor tokens = tokens_of(1, 8);
  const fsdp2_tensor inputs[] = {tokens, tokens};
  fsdp2_step step = {0};
  fsdp2_step_result result;
  fsdp2_shard_stats stats;
  struct shapes made = shapes_of(wide_llama());
  fsdp2_plan_reshard all, some;
  fsdp2_plan_info plan;
  char layer[32];
  int i;
  (void)rank;
  EXPECT_OK(choose(made.shard, INT64_MAX, &all));
  EXPECT_OK(choose(made.shard, (all.peak_bytes + all.resharded_peak_bytes) / 2, &some));
  EXPECT(some.n_kept > 0 && some.n_kept < all.n_kept);
  plan = plan_of(made.shard);
  for (i = 0; i < kLayers; ++i) {
    snprintf(layer, sizeof(layer), "model.layers.%d", i);
    if (reshard_of(made.shard, layer) == FSDP2_RESHARD_NEVER) {
      EXPECT_OK(fsdp2_shard_set_reshard_after_forward(shard, layer, 0, 0));
    }
  }
  EXPECT_OK(fsdp2_step_create(shard, optimizer, NULL, &step));
  EXPECT_OK(fsdp2_shard_reset_stats(shard));
  result.struct_size = (uint32_t)sizeof(result);
  EXPECT_OK(fsdp2_step_run(step, inputs, 2, &result));
  stats.struct_size = (uint32_t)sizeof(stats);
  EXPECT_OK(fsdp2_shard_get_stats(shard, &stats));
  EXPECT(plan.all_gathers == stats.all_gathers);
  EXPECT(plan.all_gathers == 2 * kLayers + 1 - some.n_kept);
  EXPECT(plan.peak_unsharded_bytes == stats.peak_unsharded_bytes);
  EXPECT(stats.peak_unsharded_bytes <= some.peak_bytes);
  EXPECT_OK(fsdp2_step_destroy(step));
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
  end_shapes(&made);
}
static void a_step_by_the_choice_holds_and_gathers_what_is_planned(void) {
  on_ranks("choice", 4, 0, take_planned_step);
}

static void what_has_no_values_is_refused(void) {
  struct job job = start_lone_job();
  struct shapes made = shapes_of(tiny_llama());
  const fsdp2_tensor tokens = tokens_of(1, 8);
  const fsdp2_tensor inputs[] = {tokens, tokens};
  fsdp2_plan_memory memory;
  fsdp2_mesh_options place = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_tensor out[1];
  fsdp2_mesh mesh = {0};
  size_t needed = 0;
  memory.struct_size = (uint32_t)sizeof(memory);
  EXPECT_STATUS(fsdp2_plan_get_memory(job.shard, inputs, 2, 1, NULL, &memory), FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("expected a mesh of device type meta, found c");
  EXPECT_STATUS(fsdp2_plan_get_memory(made.shard, inputs, 1, 1, NULL, &memory),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_plan_get_memory(made.shard, inputs, 2, 0, NULL, &memory),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("micro_batches");
  EXPECT_OK(fsdp2_plan_get_memory(made.shard, inputs, 2, 1, NULL, &memory));
  EXPECT_STATUS(fsdp2_module_forward(made.module, inputs, 2, 0, out, 1, &needed),
                FSDP2_E_WRONG_STATE);
  EXPECT_STATUS(fsdp2_shard_get_parameter(made.shard, 0, FSDP2_PARAMETER_LOCAL, out),
                FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("the mesh's device is meta");
  place.device_type = "meta";
  EXPECT_STATUS(fsdp2_mesh_create_in(job.mesh, &place, &mesh), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  end_shapes(&made);
  end_lone_job(&job);
}

int main(void) {
  RUN(a_plan_is_what_a_step_does);
  RUN(a_plan_needs_no_other_rank);
  RUN(a_frozen_model_reduces_nothing);
  RUN(options_of_a_plan_are_checked);
  RUN(a_plan_tells_the_memory_of_a_step);
  RUN(the_more_memory_the_more_units_stay_gathered);
  RUN(a_budget_that_no_step_fits_in_changes_nothing);
  RUN(all_ranks_choose_alike);
  RUN(a_step_by_the_choice_holds_and_gathers_what_is_planned);
  RUN(what_has_no_values_is_refused);
  return harness_result();
}
