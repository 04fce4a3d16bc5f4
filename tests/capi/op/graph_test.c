/* Graphs that callers build: gradients of inputs, backwards from several outputs with gradients of
 * their own, modules inside a model by their path. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/tiny_model.h"

enum { kTokens = 2 };
static const int64_t kHiddenShape[3] = {1, kTokens, kTinyWidth};
static const int64_t kLogitsShape[3] = {1, kTokens, kTinyVocabulary};

static fsdp2_tensor on_host(const int64_t* shape, float value) {
  float values[kTokens * kTinyVocabulary];
  const size_t n = (size_t)(shape[0] * shape[1] * shape[2]);
  fsdp2_tensor tensor = {0};
  size_t i;
  for (i = 0; i < n; ++i) {
    values[i] = value * (float)(i % 7 + 1);
  }
  EXPECT_OK(
      fsdp2_tensor_from_buffer(values, n * sizeof(float), FSDP2_DTYPE_F32, shape, 3, &tensor));
  return tensor;
}

/* Where a sharded module computes. */
static fsdp2_tensor filled(const int64_t* shape, float value) {
  return on_test_device(on_host(shape, value));
}

static fsdp2_tensor run(fsdp2_module module, const char* path, fsdp2_tensor input) {
  fsdp2_tensor output = {0};
  size_t n = 0;
  EXPECT_OK(fsdp2_module_forward_submodule(module, path, &input, 1, 0, &output, 1, &n));
  EXPECT(n == 1);
  return output;
}

/* The first element of the gradient. */
static double gradient_of(fsdp2_tensor tensor) {
  fsdp2_tensor gradient = {0};
  float values[kTokens * kTinyWidth] = {0};
  EXPECT_OK(fsdp2_tensor_get_grad(tensor, &gradient));
  EXPECT_OK(fsdp2_tensor_read(gradient, values, sizeof(values)));
  EXPECT_OK(fsdp2_tensor_destroy(gradient));
  return values[0];
}

/* What backward with ones leaves on the input of the head: the sum of each column of its weight. */
static double sum_of_first_column(fsdp2_shard shard) {
  static _Thread_local float values[kTinyVocabulary * kTinyWidth];
  fsdp2_tensor whole = {0};
  double sum = 0.0;
  size_t index = 0;
  int i;
  EXPECT_OK(fsdp2_shard_get_parameter_index(shard, "lm_head.weight", &index));
  EXPECT_OK(fsdp2_shard_get_parameter(shard, index, FSDP2_PARAMETER_FULL, &whole));
  EXPECT_OK(fsdp2_tensor_read(whole, values, sizeof(values)));
  EXPECT_OK(fsdp2_tensor_destroy(whole));
  for (i = 0; i < kTinyVocabulary; ++i) {
    sum += values[i * kTinyWidth];
  }
  return sum;
}

static fsdp2_tensor ones(void) {
  float values[kTokens * kTinyVocabulary];
  fsdp2_tensor tensor = {0};
  int i;
  for (i = 0; i < kTokens * kTinyVocabulary; ++i) {
    values[i] = 1.0f;
  }
  EXPECT_OK(
      fsdp2_tensor_from_buffer(values, sizeof(values), FSDP2_DTYPE_F32, kLogitsShape, 3, &tensor));
  return on_test_device(tensor);
}

static void differentiate_inputs(fsdp2_mesh mesh, int rank) {
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_tensor input = filled(kHiddenShape, 0.1f), gradient = ones();
  fsdp2_tensor outputs[2], gradients[2], none = {5};
  fsdp2_shard shard;
  double expected;
  (void)rank;
  options.wrap_head = 1;
  shard = shard_with(module, mesh, &options);
  expected = sum_of_first_column(shard);
  EXPECT_STATUS(fsdp2_tensor_get_grad(input, &none), FSDP2_E_NOT_FOUND);
  EXPECT(none.id == 5);
  EXPECT_OK(fsdp2_tensor_set_requires_grad(input, 1));
  /* One output, its graph kept for a second backward. */
  outputs[0] = run(module, "lm_head", input);
  EXPECT_OK(fsdp2_tensor_run_backward(outputs, 1, &gradient, 1));
  EXPECT_NEAR(gradient_of(input), expected, 1e-5);
  EXPECT_OK(fsdp2_tensor_run_backward(outputs, 1, &gradient, 0));
  EXPECT_NEAR(gradient_of(input), 2 * expected, 1e-5);
  EXPECT_OK(fsdp2_tensor_destroy(outputs[0]));
  /* Two forwards in flight, one backward through both. */
  outputs[0] = run(module, "lm_head", input);
  outputs[1] = run(module, "lm_head", input);
  gradients[0] = gradients[1] = gradient;
  EXPECT_OK(fsdp2_tensor_run_backward(outputs, 2, gradients, 0));
  EXPECT_NEAR(gradient_of(input), 4 * expected, 1e-5);
  EXPECT_OK(fsdp2_tensor_destroy(outputs[0]));
  EXPECT_OK(fsdp2_tensor_destroy(outputs[1]));
  EXPECT_OK(fsdp2_tensor_destroy(input));
  EXPECT_OK(fsdp2_tensor_destroy(gradient));
  destroy_tiny(module, shard);
}
static void inputs_get_gradients(void) {
  on_ranks("inputs-1", 1, 0, differentiate_inputs);
  on_ranks("inputs-2", 2, 0, differentiate_inputs);
}

/* A graph through two modules, each sharded for itself. */
static void a_graph_may_run_through_several_modules(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module first = tiny_model(), second = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_tensor input = filled(kHiddenShape, 0.1f), gradient = ones();
  fsdp2_tensor middle, output;
  fsdp2_shard shards[2];
  options.wrap_head = 1;
  shards[0] = shard_with(first, mesh, &options);
  shards[1] = shard_with(second, mesh, &options);
  middle = run(first, "model.norm", input);
  output = run(second, "lm_head", middle);
  EXPECT_OK(fsdp2_tensor_run_backward(&output, 1, &gradient, 0));
  EXPECT(parameter_of(shards[0], "model.norm.weight").has_grad == 1);
  EXPECT(parameter_of(shards[1], "lm_head.weight").has_grad == 1);
  EXPECT(parameter_of(shards[0], "lm_head.weight").has_grad == 0);
  EXPECT_STATUS(fsdp2_tensor_run_backward(&output, 1, &gradient, 0), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("keep_graph");
  EXPECT_OK(fsdp2_tensor_destroy(input));
  EXPECT_OK(fsdp2_tensor_destroy(gradient));
  EXPECT_OK(fsdp2_tensor_destroy(middle));
  EXPECT_OK(fsdp2_tensor_destroy(output));
  destroy_tiny(first, shards[0]);
  destroy_tiny(second, shards[1]);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void backwards_that_cannot_be_are_told(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_tensor input = on_host(kHiddenShape, 0.1f);
  const fsdp2_tensor normed = run(module, "model.norm", input);
  const fsdp2_tensor logits = run(module, "lm_head", normed);
  const fsdp2_tensor gradient = on_host(kLogitsShape, 1.0f);
  const fsdp2_tensor hidden = on_host(kHiddenShape, 1.0f);
  fsdp2_tensor none[2] = {{0}, {7}};
  fsdp2_tensor_info info;
  size_t n = 9;
  EXPECT_STATUS(fsdp2_tensor_backward(input), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("without a graph");
  EXPECT_STATUS(fsdp2_tensor_run_backward(&logits, 1, NULL, 0), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("outputs[0]: expected a scalar");
  EXPECT_STATUS(fsdp2_tensor_run_backward(&logits, 1, none, 0), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_tensor_run_backward(&logits, 1, &hidden, 0), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("[1, 2, 32]");
  EXPECT_STATUS(fsdp2_tensor_set_requires_grad(logits, 1), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_module_forward_submodule(module, "head", &hidden, 1, 0, none, 2, &n),
                FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("holds model, lm_head");
  EXPECT_STATUS(fsdp2_module_forward_submodule(module, "lm_head", &hidden, 1, 0, none, 0, &n),
                FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(n == 1 && none[1].id == 7);
  /* A part of a graph that another backward has freed. */
  EXPECT_OK(fsdp2_tensor_run_backward(&logits, 1, &gradient, 0));
  EXPECT_STATUS(fsdp2_tensor_run_backward(&normed, 1, &hidden, 0), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("keep_graph");
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(logits, &info));
  EXPECT(info.requires_grad == 1);
  EXPECT_OK(fsdp2_tensor_destroy(gradient));
  EXPECT_OK(fsdp2_tensor_destroy(hidden));
  EXPECT_OK(fsdp2_tensor_destroy(input));
  EXPECT_OK(fsdp2_tensor_destroy(normed));
  EXPECT_OK(fsdp2_tensor_destroy(logits));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void tensors_can_be_overwritten(void) {
  const int64_t shape[3] = {1, 1, 2};
  const float values[2] = {3.0f, -1.0f};
  float found[2] = {0};
  const fsdp2_tensor tensor = filled(shape, 1.0f);
  EXPECT_OK(fsdp2_tensor_write(tensor, values, sizeof(values)));
  EXPECT_OK(fsdp2_tensor_read(tensor, found, sizeof(found)));
  EXPECT(found[0] == 3.0f && found[1] == -1.0f);
  EXPECT_STATUS(fsdp2_tensor_write(tensor, values, 4), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("8 bytes");
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
}

int main(void) {
  RUN(inputs_get_gradients);
  RUN(a_graph_may_run_through_several_modules);
  RUN(backwards_that_cannot_be_are_told);
  RUN(tensors_can_be_overwritten);
  return harness_result();
}
