/* Modules whose forward is a function of the program: alone, sharded, checkpointed, trained, saved.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/net.h"

/* A copy of a parameter's values that no module knows. */
static fsdp2_tensor leaf_of(fsdp2_module module, const char* name) {
  const fsdp2_scope none = {0};
  fsdp2_tensor own = {0}, copy = {0};
  fsdp2_value input = FSDP2_NONE;
  size_t index = 0;
  fsdp2_status status = FSDP2_OK;
  EXPECT_OK(fsdp2_module_get_parameter_index(module, name, &index));
  EXPECT_OK(fsdp2_module_get_parameter(module, index, FSDP2_PARAMETER_LOCAL, &own));
  input.kind = FSDP2_VALUE_TENSOR;
  input.tensor = own;
  copy = one_of(&status, "aten::clone", &input, 1, none);
  EXPECT_OK(status);
  EXPECT_OK(fsdp2_tensor_set_requires_grad(copy, 1));
  EXPECT_OK(fsdp2_tensor_destroy(own));
  return copy;
}

static double square_norm_of_grad(fsdp2_tensor leaf) {
  float values[kWidth * kWidth];
  fsdp2_tensor gradient = {0};
  fsdp2_tensor_info info;
  double sum = 0.0;
  int64_t i;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_grad(leaf, &gradient));
  EXPECT_OK(fsdp2_tensor_get_info(gradient, &info));
  EXPECT_OK(fsdp2_tensor_read(gradient, values, (size_t)info.n_bytes));
  for (i = 0; i < info.n_bytes / (int64_t)sizeof(float); ++i) {
    sum += (double)values[i] * values[i];
  }
  EXPECT_OK(fsdp2_tensor_destroy(gradient));
  return sum;
}

/* The net's loss by operators alone, and the norm of all its gradients. */
static struct tiny_result by_operators(void) {
  static const char* const kNames[kParameters] = {"first.weight", "first.bias", "second.weight",
                                                  "second.bias", "head"};
  struct net net;
  struct tiny_result result = {0.0, 0.0};
  const fsdp2_module module = make_net(&net);
  fsdp2_tensor batch[2], leaves[kParameters], loss;
  fsdp2_scope scope = {0};
  fsdp2_status status = FSDP2_OK;
  double own;
  int i;
  make_batch(batch);
  own = backward_of(module, batch); /* gives the parameters values */
  for (i = 0; i < kParameters; ++i) {
    leaves[i] = leaf_of(module, kNames[i]);
  }
  EXPECT_OK(fsdp2_scope_create(&scope));
  loss = block_of(&status, batch[0], leaves[0], leaves[1], scope);
  loss = block_of(&status, loss, leaves[2], leaves[3], scope);
  loss = head_of(&status, loss, leaves[4], batch[1], scope);
  EXPECT_OK(status);
  result.loss = value_of(loss);
  EXPECT(own == result.loss);
  EXPECT_OK(fsdp2_tensor_backward(loss));
  for (i = 0; i < kParameters; ++i) {
    result.norm += square_norm_of_grad(leaves[i]);
    EXPECT_OK(fsdp2_tensor_destroy(leaves[i]));
  }
  result.norm = sqrt(result.norm);
  EXPECT_OK(fsdp2_scope_destroy(scope));
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  destroy_net(module, &net);
  return result;
}

static struct tiny_result expected;

static void compare_with_operators(fsdp2_mesh mesh, const char* kind, int recomputes) {
  static const char* const kBlock[] = {"Block"};
  struct net net;
  const fsdp2_module module = make_net(&net);
  const fsdp2_shard shard = shard_net(module, mesh, kind);
  fsdp2_tensor batch[2];
  double norm = 0.0;
  if (recomputes) {
    EXPECT_STATUS(fsdp2_module_checkpoint_activations(module, NULL, 0, 1, 0), FSDP2_E_NOT_FOUND);
    EXPECT_MESSAGE("of which it has Block");
    EXPECT_OK(fsdp2_module_checkpoint_activations(module, kBlock, 1, 1, 0));
  }
  make_batch(batch);
  EXPECT_NEAR(backward_of(module, batch), expected.loss, 1e-6);
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &norm));
  EXPECT_NEAR(norm, expected.norm, 1e-5);
  EXPECT(net.forwards == 1 && net.block_forwards == (recomputes ? 4 : 2));
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  destroy_net(module, &net);
}

static void compare_ways(fsdp2_mesh mesh, int rank) {
  (void)rank;
  compare_with_operators(mesh, NULL, 0);
  compare_with_operators(mesh, "Block", 0);
  compare_with_operators(mesh, "Block", 1);
}

static void a_custom_model_is_what_its_operators_are(void) {
  expected = by_operators();
  EXPECT(expected.loss > 0.0 && expected.norm > 0.0);
  on_ranks("custom-1", 1, 0, compare_ways);
  on_ranks("custom-2", 2, 0, compare_ways);
  on_ranks("custom-hsdp", 4, 2, compare_ways);
}

/* ---- training */

enum { kSteps = 4 };
static double losses[kSteps];

static void train(fsdp2_mesh mesh, int first, int last, const char* from, const char* to) {
  struct net net;
  const fsdp2_module module = make_net(&net);
  const fsdp2_shard shard = shard_net(module, mesh, "Block");
  const fsdp2_optimizer optimizer = golden_adamw(shard);
  fsdp2_step step = {0};
  fsdp2_tensor batch[2];
  int i;
  EXPECT_OK(fsdp2_step_create(shard, optimizer, NULL, &step));
  if (from != NULL) {
    const fsdp2_loader none = {0};
    EXPECT_OK(fsdp2_checkpoint_load(shard, optimizer, step, none, from, NULL));
  }
  make_batch(batch);
  for (i = first; i < last; ++i) {
    fsdp2_step_result result;
    result.struct_size = (uint32_t)sizeof(result);
    EXPECT_OK(fsdp2_step_run(step, batch, 2, &result));
    if (losses[i] == 0.0) {
      losses[i] = result.loss;
    }
    EXPECT_NEAR(result.loss, losses[i], 1e-5);
  }
  if (to != NULL) {
    const fsdp2_loader none = {0};
    EXPECT_OK(fsdp2_checkpoint_save(shard, optimizer, step, none, to, NULL));
  }
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  EXPECT_OK(fsdp2_step_destroy(step));
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  destroy_net(module, &net);
}

static char saved[1024];
static void train_whole(fsdp2_mesh mesh, int rank) {
  (void)rank;
  train(mesh, 0, kSteps, NULL, NULL);
}
static void train_first_half(fsdp2_mesh mesh, int rank) {
  (void)rank;
  train(mesh, 0, kSteps / 2, NULL, saved);
}
static void train_second_half(fsdp2_mesh mesh, int rank) {
  (void)rank;
  train(mesh, kSteps / 2, kSteps, saved, NULL);
}

static void it_trains_and_resumes_at_another_world_size(void) {
  snprintf(saved, sizeof(saved), "%s", temporary_path("custom"));
  on_ranks("train-1", 1, 0, train_whole);
  EXPECT(losses[kSteps - 1] < losses[0]);
  on_ranks("train-2", 2, 0, train_first_half);
  on_ranks("train-1b", 1, 0, train_second_half);
}

/* ---- a parameter that a forward also reads without gradients */

static fsdp2_value of_one(fsdp2_status* status, const char* name, fsdp2_value input,
                          fsdp2_scope scope) {
  const fsdp2_value output = FSDP2_TENSOR(one_of(status, name, &input, 1, scope));
  return output;
}

/* tanh(tanh(x * detach(w))) + tanh(x * w), whose backward comes to w before detach(w). */
static fsdp2_status run_aside(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                              size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                              void* user_data) {
  fsdp2_value pair[2] = {FSDP2_TENSOR(inputs[0]), FSDP2_TENSOR(info->parameters[0])};
  fsdp2_value sum[2] = {FSDP2_NONE, FSDP2_NONE}, product = FSDP2_NONE;
  fsdp2_scope scope = {0};
  fsdp2_status status = fsdp2_scope_create(&scope);
  fsdp2_tensor output;
  (void)n_inputs, (void)cap, (void)user_data;
  product.kind = FSDP2_VALUE_TENSOR;
  product.tensor = one_of(&status, "aten::mul.Tensor", pair, 2, scope);
  sum[1] = of_one(&status, "aten::tanh", product, scope);
  pair[1] = of_one(&status, "aten::detach", pair[1], scope);
  product.tensor = one_of(&status, "aten::mul.Tensor", pair, 2, scope);
  sum[0] = of_one(&status, "aten::tanh", of_one(&status, "aten::tanh", product, scope), scope);
  output = one_of(&status, "aten::add.Tensor", sum, 2, scope);
  return end_scope(scope, status, output, outputs, n_outputs);
}

static double norm_of_aside;
static void backward_of_aside(fsdp2_mesh mesh, int rank) {
  static const int64_t kRow[1] = {kWidth};
  struct net net;
  const fsdp2_module module = make_net(&net);
  fsdp2_module aside = {0};
  fsdp2_shard shard;
  fsdp2_tensor batch[2];
  double norm = 0.0;
  (void)rank;
  EXPECT_OK(fsdp2_module_create_custom("Block", NULL, run_aside, NULL, NULL, &aside));
  EXPECT_OK(fsdp2_module_add_parameter(aside, "weight", kRow, 1, NULL));
  EXPECT_OK(fsdp2_module_add_child(module, "aside", aside));
  EXPECT_OK(fsdp2_module_destroy(net.blocks[1]));
  net.blocks[1] = aside;
  shard = shard_net(module, mesh, "Block");
  make_batch(batch);
  backward_of(module, batch);
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &norm));
  if (norm_of_aside == 0.0) {
    norm_of_aside = norm;
  }
  EXPECT(norm > 0.0);
  EXPECT_NEAR(norm, norm_of_aside, 1e-6);
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  destroy_net(module, &net);
}

static void a_parameter_read_without_gradients_has_its_values_in_backward(void) {
  on_ranks("aside-1", 1, 0, backward_of_aside);
  on_ranks("aside-2", 2, 0, backward_of_aside);
}

int main(void) {
  use_test_device();
  RUN(a_custom_model_is_what_its_operators_are);
  RUN(it_trains_and_resumes_at_another_world_size);
  RUN(a_parameter_read_without_gradients_has_its_values_in_backward);
  return harness_result();
}
