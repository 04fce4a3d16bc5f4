/* Parameters that sharding leaves alone are part of the model: every way to save and load it has
 * them. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/tiny_model.h"

#define NORM "model.norm.weight"

/* Reads the parameter, and then writes `next` into all of it unless that is 0. */
static float value_of(fsdp2_module module, const char* name, size_t count, float next) {
  float values[kTinyWidth] = {0.0f}, first;
  fsdp2_tensor tensor = {0};
  size_t index = 0, i;
  EXPECT_OK(fsdp2_module_get_parameter_index(module, name, &index));
  EXPECT_OK(fsdp2_module_get_parameter(module, index, FSDP2_PARAMETER_LOCAL, &tensor));
  EXPECT_OK(fsdp2_tensor_read(tensor, values, count * sizeof(float)));
  first = values[0];
  for (i = 0; i < count; ++i) {
    EXPECT(values[i] == first);
    values[i] = next;
  }
  if (next != 0.0f) {
    EXPECT_OK(fsdp2_tensor_write(tensor, values, count * sizeof(float)));
  }
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  return first;
}

static float norm_of(fsdp2_module module, float next) {
  return value_of(module, NORM, kTinyWidth, next);
}

static fsdp2_shard shard_without(const char* name, fsdp2_module module, fsdp2_mesh mesh,
                                 int defer_values) {
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  options.ignored_names = &name;
  options.n_ignored_names = 1;
  options.defer_values = defer_values;
  return shard_with(module, mesh, &options);
}

enum { kSharded, kPerRank, kPth, kSafetensors, kModelDirectory, kWays };
static char saved[kWays][1100];

static void save(fsdp2_shard shard, int format, const char* path) {
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  options.format = format;
  EXPECT_OK(fsdp2_checkpoint_save(shard, (fsdp2_optimizer){0}, (fsdp2_step){0}, (fsdp2_loader){0},
                                  path, &options));
}

static void save_all_ways(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_without(NORM, module, mesh, 0);
  (void)rank;
  EXPECT(norm_of(module, 3.0f) == 1.0f);
  save(shard, FSDP2_CHECKPOINT_SHARDED, saved[kSharded]);
  save(shard, FSDP2_CHECKPOINT_PTH_PER_RANK, saved[kPerRank]);
  save(shard, FSDP2_CHECKPOINT_PTH, saved[kPth]);
  EXPECT_OK(fsdp2_checkpoint_save_full(shard, saved[kSafetensors]));
  save(shard, FSDP2_CHECKPOINT_MODEL_DIRECTORY, saved[kModelDirectory]);
  destroy_tiny(module, shard);
}

static void load_both_ways(fsdp2_mesh mesh, int rank) {
  int way, turn;
  (void)rank;
  for (way = 0; way < kWays; ++way) {
    for (turn = 0; turn < 3; ++turn) { /* all of it; the model; the model as its first values */
      const fsdp2_module module = tiny_model();
      const fsdp2_shard shard = shard_without(NORM, module, mesh, turn == 2);
      EXPECT_OK(turn == 0 ? fsdp2_checkpoint_load(shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                                  (fsdp2_loader){0}, saved[way], NULL)
                          : fsdp2_checkpoint_load_full(shard, saved[way]));
      EXPECT(norm_of(module, 0.0f) == 3.0f);
      destroy_tiny(module, shard);
    }
  }
}

static void every_checkpoint_holds_ignored_parameters(void) {
  static const char* const kEnds[kWays] = {"", "-ranks", ".pth", ".safetensors", "-model"};
  char stem[1024];
  int way;
  snprintf(stem, sizeof(stem), "%s", temporary_path("ignored"));
  for (way = 0; way < kWays; ++way) {
    snprintf(saved[way], sizeof(saved[way]), "%s%s", stem, kEnds[way]);
  }
  on_ranks("ignored-2", 2, 0, save_all_ways);
  on_ranks("ignored-1", 1, 0, load_both_ways);
  on_ranks("ignored-3", 3, 0, load_both_ways);
}

static void a_saved_model_has_them_for_others(void) {
  fsdp2_module module = {0};
  EXPECT_OK(fsdp2_module_from_pretrained(saved[kModelDirectory], NULL, &module));
  EXPECT_OK(fsdp2_tensor_destroy(tiny_loss(module, FSDP2_FORWARD_NO_GRAD))); /* gives it values */
  EXPECT(norm_of(module, 0.0f) == 3.0f);
  EXPECT_OK(fsdp2_module_destroy(module));
}

static fsdp2_status hand_on(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                            size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                            void* user_data) {
  (void)info;
  (void)n_inputs;
  (void)cap;
  (void)user_data;
  outputs[0] = inputs[0];
  *n_outputs = 1;
  return FSDP2_OK;
}

/* What has no dims cannot be sharded, only ignored. */
static fsdp2_module scaled_module(void) {
  static const int64_t shape[2] = {4, 4};
  fsdp2_module module = {0};
  EXPECT_OK(fsdp2_module_create_custom("Scaled", NULL, hand_on, NULL, NULL, &module));
  EXPECT_OK(fsdp2_module_add_parameter(module, "weight", shape, 2, NULL));
  EXPECT_OK(fsdp2_module_add_parameter(module, "scale", NULL, 0, NULL));
  return module;
}

static void a_number_is_loaded_as_its_first_value(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const char* path = temporary_path("scale.safetensors");
  int defers;
  for (defers = 0; defers < 2; ++defers) {
    const fsdp2_module module = scaled_module();
    const fsdp2_shard shard = shard_without("scale", module, mesh, defers);
    if (defers) {
      EXPECT_OK(fsdp2_checkpoint_load_full(shard, path));
      EXPECT(value_of(module, "scale", 1, 0.0f) == 3.0f);
    } else {
      value_of(module, "scale", 1, 3.0f);
      EXPECT_OK(fsdp2_checkpoint_save_full(shard, path));
    }
    destroy_tiny(module, shard);
  }
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

int main(void) {
  RUN(every_checkpoint_holds_ignored_parameters);
  RUN(a_saved_model_has_them_for_others);
  RUN(a_number_is_loaded_as_its_first_value);
  return harness_result();
}
