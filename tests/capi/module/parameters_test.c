/* Parameters one by one, by several ranks that pass different tokens: what is frozen, what is left
 * alone, and the dtypes in which units compute. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/tiny_model.h"

#define TINY_QWEN "tests/parity/golden/models/tiny-qwen2"
#define BIAS "model.layers.0.self_attn.q_proj.bias"

static fsdp2_module tiny_qwen(void) {
  fsdp2_module module = {0};
  EXPECT_OK(fsdp2_module_from_pretrained(TINY_QWEN, NULL, &module));
  return module;
}

static fsdp2_module_parameter_info in_module(fsdp2_module module, const char* name) {
  fsdp2_module_parameter_info info;
  size_t index = 0;
  memset(&info, 0, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_module_get_parameter_index(module, name, &index));
  EXPECT_OK(fsdp2_module_get_parameter_info(module, index, &info));
  return info;
}

static fsdp2_tensor module_parameter(fsdp2_module module, const char* name, int32_t which,
                                     fsdp2_status expected) {
  fsdp2_tensor tensor = {0};
  size_t index = 0;
  EXPECT_OK(fsdp2_module_get_parameter_index(module, name, &index));
  EXPECT_STATUS(fsdp2_module_get_parameter(module, index, which, &tensor), expected);
  return tensor;
}

enum { kMost = 4096 };

/* The elements, and no tensor any more. */
static size_t read_floats(fsdp2_tensor tensor, float* values) {
  fsdp2_tensor_info info;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(tensor, &info));
  EXPECT((size_t)info.n_bytes <= kMost * sizeof(float) && info.dtype == FSDP2_DTYPE_F32);
  EXPECT_OK(fsdp2_tensor_read(tensor, values, info.n_bytes));
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  return (size_t)info.n_bytes / sizeof(float);
}

static size_t read_full(fsdp2_shard shard, const char* name, int32_t which, float* values) {
  fsdp2_tensor tensor = {0};
  size_t index = 0;
  EXPECT_OK(fsdp2_shard_get_parameter_index(shard, name, &index));
  EXPECT_OK(fsdp2_shard_get_parameter(shard, index, which, &tensor));
  return read_floats(tensor, values);
}

static float largest_difference(const float* a, const float* b, size_t n) {
  float largest = 0.0f;
  size_t i;
  for (i = 0; i < n; ++i) {
    largest = fmaxf(largest, fabsf(a[i] - b[i]));
  }
  return largest;
}

/* ---- frozen */

static fsdp2_shard_stats step_of(fsdp2_module module, fsdp2_shard shard) {
  EXPECT_OK(fsdp2_shard_reset_stats(shard));
  tiny_step(module, shard);
  return stats_of(shard);
}

static void freeze_a_bias(fsdp2_mesh mesh, int rank) {
  static const char* const bias[1] = {BIAS};
  const fsdp2_module whole = tiny_qwen(), frozen = tiny_qwen();
  const fsdp2_shard all = shard_of(whole, mesh);
  fsdp2_shard_stats trained, stats;
  fsdp2_optimizer optimizer;
  fsdp2_shard shard;
  float before[kMost], after[kMost];
  size_t n;
  tiny_turn = rank;
  EXPECT_OK(fsdp2_module_set_requires_grad(frozen, bias, 1, 0));
  EXPECT(in_module(frozen, BIAS).requires_grad == 0);
  shard = shard_of(frozen, mesh);
  EXPECT(parameter_of(shard, BIAS).requires_grad == 0);
  EXPECT(parameter_of(shard, BIAS).unit == parameter_of(all, BIAS).unit);
  trained = step_of(whole, all);
  stats = step_of(frozen, shard);
  EXPECT(stats.reduce_scatters == trained.reduce_scatters);
  EXPECT(stats.reduce_scatter_bytes < trained.reduce_scatter_bytes);
  EXPECT(stats.all_gather_bytes == trained.all_gather_bytes);
  EXPECT(parameter_of(shard, BIAS).has_grad == 0 && parameter_of(all, BIAS).has_grad == 1);
  EXPECT(parameter_of(shard, "model.layers.0.self_attn.q_proj.weight").has_grad == 1);
  optimizer = golden_adamw(shard);
  n = read_full(shard, BIAS, FSDP2_PARAMETER_FULL, before);
  EXPECT_OK(fsdp2_optimizer_run(optimizer));
  EXPECT(read_full(shard, BIAS, FSDP2_PARAMETER_FULL, after) == n);
  EXPECT(largest_difference(before, after, n) == 0.0f);
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  destroy_tiny(frozen, shard);
  destroy_tiny(whole, all);
}
static void a_frozen_bias_is_gathered_but_not_reduced(void) {
  on_ranks("frozen", 2, 0, freeze_a_bias);
}

static void modules_are_frozen_by_their_paths(void) {
  static const char *const layers[1] = {"model.layers"}, *const some[2] = {"lm_head", "nothing"};
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  fsdp2_shard shard;
  EXPECT_OK(fsdp2_module_set_requires_grad(module, NULL, 0, 0));
  EXPECT(in_module(module, "lm_head.weight").requires_grad == 0);
  EXPECT_OK(fsdp2_module_set_requires_grad(module, NULL, 0, 1));
  EXPECT_OK(fsdp2_module_set_requires_grad(module, layers, 1, 0));
  EXPECT(in_module(module, "model.layers.2.mlp.up_proj.weight").requires_grad == 0);
  EXPECT(in_module(module, "model.norm.weight").requires_grad == 1);
  EXPECT_STATUS(fsdp2_module_set_requires_grad(module, some, 2, 0), FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("'nothing' is no parameter");
  EXPECT(in_module(module, "lm_head.weight").requires_grad == 1); /* nothing was changed */
  shard = shard_of(module, mesh);
  EXPECT_STATUS(fsdp2_module_set_requires_grad(module, layers, 1, 1), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("nothing is sharded yet");
  EXPECT(isfinite(tiny_step(module, shard).loss));
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void freeze_on_one_rank(fsdp2_mesh mesh, int rank) {
  static const char* const head[1] = {"lm_head"};
  const fsdp2_module module = tiny_model();
  fsdp2_shard shard = {0};
  EXPECT_OK(fsdp2_module_set_requires_grad(module, head, 1, rank));
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, NULL, &shard), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("lm_head.weight: rank 0 has Float 32x16 frozen, rank 1 has Float 32x16");
  EXPECT_OK(fsdp2_module_destroy(module));
}
static void ranks_must_freeze_the_same(void) { on_ranks("unlike", 2, 0, freeze_on_one_rank); }

/* ---- by index */

static void a_module_tells_its_parameters(void) {
  const fsdp2_mesh mesh = lone_mesh();
  fsdp2_module module = {0};
  fsdp2_shard shard;
  fsdp2_module_parameter_info info;
  size_t count = 0, index = 0, again = 0, needed = 0;
  char name[64];
  EXPECT_OK(fsdp2_module_from_config(TINY_CONFIG("true"), NULL, &module));
  EXPECT_OK(fsdp2_module_get_parameter_count(module, &count));
  EXPECT(count == kTinyParameters - 1);
  EXPECT_OK(fsdp2_module_get_parameter_index(module, "lm_head.weight", &index));
  EXPECT_OK(fsdp2_module_get_parameter_name(module, index, 0, name, sizeof(name), &needed));
  EXPECT(strcmp(name, "model.embed_tokens.weight") == 0);
  EXPECT_OK(fsdp2_module_get_parameter_name(module, index, 1, name, sizeof(name), &needed));
  EXPECT(strcmp(name, "lm_head.weight") == 0);
  EXPECT_STATUS(fsdp2_module_get_parameter_index(module, "lm_head", &again), FSDP2_E_NOT_FOUND);
  info = in_module(module, "lm_head.weight");
  EXPECT(info.n_dims == 2 && info.shape[0] == kTinyVocabulary && info.shape[1] == kTinyWidth);
  EXPECT(info.dtype == FSDP2_DTYPE_F32 && info.n_names == 2 && info.requires_grad == 1);
  EXPECT(info.is_sharded == 0 && info.has_grad == 0);
  module_parameter(module, "lm_head.weight", FSDP2_PARAMETER_LOCAL, FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("no values yet");
  shard = shard_of(module, mesh);
  EXPECT_OK(fsdp2_module_get_parameter_index(module, "lm_head.weight", &again));
  EXPECT(again == index && in_module(module, "lm_head.weight").is_sharded == 1);
  module_parameter(module, "lm_head.weight", FSDP2_PARAMETER_LOCAL, FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("fsdp2_shard_get_parameter");
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

/* ---- ignored */

#define NORM "model.norm.weight"

static fsdp2_tensor ignored_gradient(fsdp2_module module, fsdp2_status expected) {
  return module_parameter(module, NORM, FSDP2_PARAMETER_LOCAL_GRAD, expected);
}

static void reduce_an_ignored_one(fsdp2_mesh mesh, int rank) {
  static const char* const names[1] = {NORM};
  const fsdp2_module whole = tiny_model(), module = tiny_model();
  const fsdp2_shard all = shard_of(whole, mesh);
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_shard shard;
  fsdp2_tensor gradient;
  float expected[kMost], alone[kMost], reduced[kMost];
  size_t n;
  tiny_turn = rank;
  options.ignored_names = names;
  options.n_ignored_names = 1;
  shard = shard_with(module, mesh, &options);
  EXPECT(in_module(module, NORM).is_sharded == 0 && in_module(module, NORM).has_grad == 0);
  ignored_gradient(module, FSDP2_E_NOT_FOUND);
  EXPECT_NEAR(tiny_step(module, shard).loss, tiny_step(whole, all).loss, 1e-6);
  n = read_full(all, NORM, FSDP2_PARAMETER_FULL_GRAD, expected);
  EXPECT(n == kTinyWidth && in_module(module, NORM).has_grad == 1);
  EXPECT(read_floats(ignored_gradient(module, FSDP2_OK), alone) == n);
  EXPECT(largest_difference(alone, expected, n) > 1e-4f); /* it is this rank's alone */
  gradient = ignored_gradient(module, FSDP2_OK);
  EXPECT_OK(fsdp2_mesh_all_reduce_tensor(mesh, 0, gradient, FSDP2_REDUCE_AVERAGE));
  EXPECT_OK(fsdp2_tensor_destroy(gradient));
  EXPECT(read_floats(ignored_gradient(module, FSDP2_OK), reduced) == n);
  EXPECT(largest_difference(reduced, expected, n) < 1e-6f);
  EXPECT_OK(fsdp2_shard_zero_grad(shard));
  EXPECT(in_module(module, NORM).has_grad == 1);
  EXPECT_OK(fsdp2_module_zero_grad(module));
  EXPECT(in_module(module, NORM).has_grad == 0);
  EXPECT(parameter_of(shard, "lm_head.weight").has_grad == 0);
  destroy_tiny(module, shard);
  destroy_tiny(whole, all);
}
static void an_ignored_gradient_is_the_programs_to_reduce(void) {
  on_ranks("ignored", 2, 0, reduce_an_ignored_one);
}

/* ---- dtypes */

static int32_t dtype_of(fsdp2_tensor tensor) {
  fsdp2_tensor_info info;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(tensor, &info));
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  return info.dtype;
}

/* The dtype of the final norm's output, from inputs in fp32. The options are of its group alone.
 * A part of a model takes its inputs where they are. */
static int32_t norm_dtype(fsdp2_mesh mesh, const fsdp2_shard_options* options) {
  static const char* const norm[1] = {"model.norm"};
  static const int64_t shape[3] = {1, 2, kTinyWidth};
  float values[2 * kTinyWidth] = {1.0f, 2.0f};
  const fsdp2_module module = tiny_model();
  fsdp2_tensor in = {0}, out = {0};
  fsdp2_shard shard;
  size_t n = 0;
  EXPECT_OK(fsdp2_shard_make_unit(module, mesh, norm, 1, options));
  shard = shard_of(module, mesh);
  EXPECT_OK(fsdp2_tensor_from_buffer(values, sizeof(values), FSDP2_DTYPE_F32, shape, 3, &in));
  in = on_test_device(in);
  EXPECT_OK(fsdp2_module_forward_submodule(module, "model.norm", &in, 1, FSDP2_FORWARD_NO_GRAD,
                                           &out, 1, &n));
  EXPECT_OK(fsdp2_tensor_destroy(in));
  destroy_tiny(module, shard);
  return dtype_of(out);
}

static int32_t logits_dtype(fsdp2_mesh mesh, const fsdp2_shard_options* options) {
  static const int64_t shape[2] = {1, 2}, values[2] = {1, 2};
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_with(module, mesh, options);
  const fsdp2_tensor tokens = int64_tensor(values, shape, 2);
  fsdp2_tensor out = {0};
  size_t n = 0;
  EXPECT_OK(fsdp2_module_forward(module, &tokens, 1, FSDP2_FORWARD_NO_GRAD, &out, 1, &n));
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  destroy_tiny(module, shard);
  return dtype_of(out);
}

static void compute_in_other_dtypes(fsdp2_mesh mesh, int rank) {
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  (void)rank;
  options.param_dtype = FSDP2_DTYPE_BF16;
  EXPECT(logits_dtype(mesh, &options) == FSDP2_DTYPE_BF16);
  options.output_dtype = FSDP2_DTYPE_F32;
  EXPECT(logits_dtype(mesh, &options) == FSDP2_DTYPE_F32);
  options.param_dtype = options.output_dtype = FSDP2_DTYPE_KEEP;
  EXPECT(norm_dtype(mesh, &options) == FSDP2_DTYPE_F32);
  options.param_dtype = FSDP2_DTYPE_BF16;
  EXPECT(norm_dtype(mesh, &options) == FSDP2_DTYPE_BF16);
  options.no_cast_forward_inputs = 1;
  EXPECT(norm_dtype(mesh, &options) == FSDP2_DTYPE_F32); /* of fp32 inputs and bf16 weights */
  options.output_dtype = FSDP2_DTYPE_F16;
  EXPECT(norm_dtype(mesh, &options) == FSDP2_DTYPE_F16);
  options.no_cast_forward_inputs = 0;
  EXPECT(norm_dtype(mesh, &options) == FSDP2_DTYPE_F16);
}
static void inputs_and_outputs_are_cast_as_the_options_say(void) {
  on_ranks("dtypes", 2, 0, compute_in_other_dtypes);
}

static void mix_by_group(fsdp2_mesh mesh, int rank) {
  static const char* const first[1] = {"model.layers.0"};
  const fsdp2_module module = tiny_model(), plain = tiny_model();
  const fsdp2_shard exact = shard_of(plain, mesh);
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  struct tiny_result found, expected;
  fsdp2_shard shard;
  tiny_turn = rank;
  options.param_dtype = FSDP2_DTYPE_BF16;
  options.reduce_dtype = FSDP2_DTYPE_F32;
  options.output_dtype = FSDP2_DTYPE_F32;
  EXPECT_OK(fsdp2_shard_make_unit(module, mesh, first, 1, &options));
  shard = shard_of(module, mesh);
  EXPECT(unit_of(shard, "model.layers.0").compute_dtype == FSDP2_DTYPE_BF16);
  EXPECT(unit_of(shard, "model.layers.0").dtype == FSDP2_DTYPE_F32);
  EXPECT(unit_of(shard, "model.layers.1").compute_dtype == FSDP2_DTYPE_F32);
  EXPECT(unit_of(shard, "model.layers.0").unsharded_bytes * 2 ==
         unit_of(shard, "model.layers.1").unsharded_bytes);
  expected = tiny_step(plain, exact);
  found = tiny_step(module, shard);
  EXPECT_NEAR(found.loss, expected.loss, 1e-2);
  EXPECT_NEAR(found.norm, expected.norm, 5e-2);
  EXPECT(found.loss != expected.loss);
  destroy_tiny(module, shard);
  destroy_tiny(plain, exact);
}
static void each_group_has_a_precision_of_its_own(void) { on_ranks("mixed", 2, 0, mix_by_group); }

int main(void) {
  RUN(a_frozen_bias_is_gathered_but_not_reduced);
  RUN(modules_are_frozen_by_their_paths);
  RUN(ranks_must_freeze_the_same);
  RUN(a_module_tells_its_parameters);
  RUN(an_ignored_gradient_is_the_programs_to_reduce);
  RUN(inputs_and_outputs_are_cast_as_the_options_say);
  RUN(each_group_has_a_precision_of_its_own);
  return harness_result();
}
