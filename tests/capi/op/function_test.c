/* Functions whose gradient the program computes, and the gradients of inputs: alone, inside
 * modules, sharded and recomputed. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/forwards.h"
#include "tests/capi/tiny_model.h"

enum { kN = 4 };
static const fsdp2_scope kNoScope = {0};

static void read_numbers(fsdp2_tensor tensor, float* to) {
  EXPECT_OK(fsdp2_tensor_read(tensor, to, kN * sizeof(float)));
}

static fsdp2_tensor numbers(const float* values, int requires_grad) {
  static const int64_t kShape[1] = {kN};
  fsdp2_tensor tensor = {0};
  EXPECT_OK(
      fsdp2_tensor_from_buffer(values, kN * sizeof(float), FSDP2_DTYPE_F32, kShape, 1, &tensor));
  EXPECT_OK(fsdp2_tensor_set_requires_grad(tensor, requires_grad));
  return tensor;
}

/* a * b, whose gradients are those of 3 a b: so that nobody else can have made them. */
struct product {
  int forwards, backwards, fails_in_forward, fails_in_backward, wrong_shape;
  int32_t needed_forward[2], needed_backward[2];
  pthread_t thread;
};
static _Atomic int released;
static void count_release(void* user_data) {
  (void)user_data;
  ++released;
}

static fsdp2_tensor multiplied(fsdp2_status* status, fsdp2_tensor a, fsdp2_tensor b) {
  const fsdp2_value values[2] = {FSDP2_TENSOR(a), FSDP2_TENSOR(b)};
  return one_of(status, "aten::mul.Tensor", values, 2, kNoScope);
}

static fsdp2_status multiply(const fsdp2_function_info* info, const fsdp2_tensor* inputs,
                             size_t n_inputs, fsdp2_tensor* outputs, fsdp2_tensor* saved,
                             size_t cap, size_t* n_outputs, size_t* n_saved, void* user_data) {
  struct product* product = (struct product*)user_data;
  fsdp2_tensor_info made;
  fsdp2_status status = FSDP2_OK;
  EXPECT(n_inputs == 2 && info->n_inputs == 2 && cap >= 2);
  memcpy(product->needed_forward, info->needs_grad, sizeof(product->needed_forward));
  ++product->forwards;
  if (product->fails_in_forward) {
    return fsdp2_callback_fail(FSDP2_E_CANCELLED, "no product today");
  }
  outputs[0] = multiplied(&status, inputs[0], inputs[1]);
  *n_outputs = 1;
  saved[0] = inputs[0];
  saved[1] = inputs[1];
  *n_saved = 2;
  made.struct_size = (uint32_t)sizeof(made);
  EXPECT_OK(fsdp2_tensor_get_info(outputs[0], &made));
  EXPECT(made.requires_grad == 0); /* operators inside record nothing */
  return status;
}

/* 3 g x */
static fsdp2_tensor slope(fsdp2_status* status, fsdp2_tensor gradient, fsdp2_tensor x) {
  const fsdp2_tensor once = multiplied(status, gradient, x);
  const fsdp2_value values[2] = {FSDP2_TENSOR(once), FSDP2_DOUBLE(3.0)};
  const fsdp2_tensor thrice = one_of(status, "aten::mul.Tensor", values, 2, kNoScope);
  EXPECT_OK(fsdp2_tensor_destroy(once));
  return thrice;
}

static fsdp2_status multiply_back(const fsdp2_function_info* info, const fsdp2_tensor* saved,
                                  size_t n_saved, const fsdp2_tensor* output_gradients,
                                  size_t n_outputs, fsdp2_tensor* gradients, void* user_data) {
  struct product* product = (struct product*)user_data;
  fsdp2_status status = FSDP2_OK;
  int i;
  EXPECT(n_saved == 2 && n_outputs == 1 && info->n_inputs == 2);
  EXPECT(pthread_equal(product->thread, pthread_self()));
  memcpy(product->needed_backward, info->needs_grad, sizeof(product->needed_backward));
  ++product->backwards;
  if (product->fails_in_backward) {
    return fsdp2_callback_fail(FSDP2_E_CANCELLED, "no slope today");
  }
  if (product->wrong_shape) {
    const fsdp2_value all = FSDP2_TENSOR(saved[0]);
    gradients[0] = one_of(&status, "aten::sum", &all, 1, kNoScope);
    return status;
  }
  for (i = 0; i < 2; ++i) {
    if (info->needs_grad[i]) {
      gradients[i] = slope(&status, output_gradients[0], saved[1 - i]);
    }
  }
  return status;
}

static fsdp2_status call_product(struct product* product, const fsdp2_tensor* inputs,
                                 uint32_t flags, fsdp2_tensor* out) {
  size_t n = 0;
  product->thread = pthread_self();
  return fsdp2_function_call("product", inputs, 2, flags, kNoScope, multiply, multiply_back,
                             product, count_release, out, 1, &n);
}

static const float kA[kN] = {1.0f, -2.0f, 0.5f, 3.0f}, kB[kN] = {2.0f, 0.25f, -1.0f, 4.0f};

static void backward_is_what_the_program_says(void) {
  struct product product = {0};
  const fsdp2_tensor inputs[2] = {numbers(kA, 1), numbers(kB, 0)}, ones = numbers(kA, 0);
  fsdp2_tensor out = {0}, gradient = {0};
  float values[kN], slopes[kN];
  int i;
  released = 0;
  EXPECT_OK(call_product(&product, inputs, 0, &out));
  EXPECT_OK(fsdp2_tensor_run_backward(&out, 1, &ones, 1));
  EXPECT_OK(fsdp2_tensor_run_backward(&out, 1, &ones, 0));
  EXPECT(product.forwards == 1 && product.backwards == 2);
  EXPECT(product.needed_forward[0] == 1 && product.needed_forward[1] == 0);
  EXPECT(product.needed_backward[0] == 1 && product.needed_backward[1] == 0);
  EXPECT_OK(fsdp2_tensor_get_grad(inputs[0], &gradient));
  read_numbers(out, values);
  read_numbers(gradient, slopes);
  for (i = 0; i < kN; ++i) {
    EXPECT_NEAR(values[i], kA[i] * kB[i], 0.0);
    EXPECT_NEAR(slopes[i], 2.0 * 3.0 * (double)kA[i] * (double)kB[i], 1e-5);
  }
  EXPECT_OK(fsdp2_tensor_destroy(gradient));
  EXPECT_STATUS(fsdp2_tensor_get_grad(inputs[1], &gradient), FSDP2_E_NOT_FOUND);
  EXPECT(released == 0);
  EXPECT_OK(fsdp2_tensor_destroy(out));
  EXPECT(released == 1);
  EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
  EXPECT_OK(fsdp2_tensor_destroy(inputs[1]));
  EXPECT_OK(fsdp2_tensor_destroy(ones));
}

static void without_gradients_nothing_is_kept(void) {
  struct product product = {0};
  const fsdp2_tensor inputs[2] = {numbers(kA, 1), numbers(kB, 1)};
  fsdp2_tensor out = {0};
  released = 0;
  EXPECT_OK(call_product(&product, inputs, FSDP2_OP_NO_GRAD, &out));
  EXPECT(product.needed_forward[0] == 0 && product.needed_forward[1] == 0 && released == 1);
  EXPECT_STATUS(fsdp2_tensor_run_backward(&out, 1, &inputs[0], 0), FSDP2_E_WRONG_STATE);
  EXPECT_OK(fsdp2_tensor_destroy(out));
  EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
  EXPECT_OK(fsdp2_tensor_destroy(inputs[1]));
}

static void failures_reach_the_call_that_needs_the_function(void) {
  struct product product = {0};
  const fsdp2_tensor inputs[2] = {numbers(kA, 1), numbers(kB, 0)};
  fsdp2_tensor out = {0};
  released = 0;
  product.fails_in_forward = 1;
  EXPECT_STATUS(call_product(&product, inputs, 0, &out), FSDP2_E_CALLBACK);
  EXPECT_MESSAGE("forward of product");
  EXPECT_MESSAGE("no product today");
  EXPECT(released == 0); /* a call that fails does not take user_data */
  product.fails_in_forward = 0;
  product.fails_in_backward = 1;
  EXPECT_OK(call_product(&product, inputs, 0, &out));
  EXPECT_STATUS(fsdp2_tensor_run_backward(&out, 1, &inputs[1], 1), FSDP2_E_CALLBACK);
  EXPECT_MESSAGE("backward of product");
  EXPECT_MESSAGE("no slope today");
  product.fails_in_backward = 0;
  product.wrong_shape = 1;
  EXPECT_OK(fsdp2_tensor_destroy(out));
  EXPECT_OK(call_product(&product, inputs, 0, &out));
  EXPECT_STATUS(fsdp2_tensor_run_backward(&out, 1, &inputs[1], 0), FSDP2_E_CALLBACK);
  EXPECT_MESSAGE("gradients[0]: expected shape [4]");
  EXPECT_OK(fsdp2_tensor_destroy(out));
  EXPECT(released == 2);
  EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
  EXPECT_OK(fsdp2_tensor_destroy(inputs[1]));
}

/* ---- inside a module that is sharded and recomputed */

/* product(x, weight), and the sum of it by the root around. */
static fsdp2_status run_scale(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                              size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                              void* user_data) {
  const fsdp2_tensor pair[2] = {inputs[0], info->parameters[0]};
  (void)n_inputs, (void)cap;
  *n_outputs = 1;
  return call_product((struct product*)user_data, pair, 0, outputs);
}

struct scaled {
  fsdp2_module whole, scale;
  struct product product;
};

static fsdp2_status run_sum(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                            size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                            void* user_data) {
  const struct scaled* model = (const struct scaled*)user_data;
  fsdp2_tensor hidden = {0};
  fsdp2_value value = FSDP2_NONE;
  fsdp2_status status =
      fsdp2_module_forward(model->scale, inputs, n_inputs, 0, &hidden, 1, n_outputs);
  (void)info, (void)cap;
  if (status != FSDP2_OK) {
    return status;
  }
  value.kind = FSDP2_VALUE_TENSOR;
  value.tensor = hidden;
  outputs[0] = one_of(&status, "aten::sum", &value, 1, kNoScope);
  EXPECT_OK(fsdp2_tensor_destroy(hidden));
  return status;
}

static void differentiate_inside(fsdp2_mesh mesh, int rank) {
  static const char* const kScale[] = {"Scale"};
  static const int64_t kShape[1] = {kN};
  struct scaled model = {{0}, {0}, {0, 0, 0, 0, 0, {0, 0}, {0, 0}, pthread_self()}};
  fsdp2_parameter_options ones = FSDP2_PARAMETER_OPTIONS_INIT;
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  const fsdp2_tensor x = numbers(kA, 1);
  fsdp2_tensor loss = {0}, gradient = {0};
  fsdp2_shard shard;
  float slopes[kN];
  double norm = 0.0, expected = 0.0;
  size_t n = 0;
  int i;
  (void)rank;
  ones.init = FSDP2_INIT_ONES;
  EXPECT_OK(fsdp2_module_create_custom("Sum", NULL, run_sum, &model, NULL, &model.whole));
  EXPECT_OK(
      fsdp2_module_create_custom("Scale", NULL, run_scale, &model.product, NULL, &model.scale));
  EXPECT_OK(fsdp2_module_add_parameter(model.scale, "weight", kShape, 1, &ones));
  EXPECT_OK(fsdp2_module_add_child(model.whole, "scale", model.scale));
  options.wrap = FSDP2_WRAP_KINDS;
  options.wrap_kinds = kScale;
  options.n_wrap_kinds = 1;
  shard = shard_with(model.whole, mesh, &options);
  EXPECT_OK(fsdp2_module_checkpoint_activations(model.whole, kScale, 1, 1, 0));
  EXPECT_OK(fsdp2_module_forward(model.whole, &x, 1, 0, &loss, 1, &n));
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT(model.product.forwards == 2 && model.product.backwards == 1);
  EXPECT_OK(fsdp2_tensor_get_grad(x, &gradient));
  read_numbers(gradient, slopes);
  for (i = 0; i < kN; ++i) {
    EXPECT_NEAR(slopes[i], 3.0, 1e-6);
    expected += 9.0 * (double)kA[i] * (double)kA[i];
  }
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &norm));
  EXPECT_NEAR(norm, sqrt(expected), 1e-5);
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  EXPECT_OK(fsdp2_module_forward(model.whole, &x, 1, 0, &loss, 1, &n));
  model.product.fails_in_backward = 1; /* on all ranks: each has its own failure */
  EXPECT_STATUS(fsdp2_tensor_backward(loss), FSDP2_E_CALLBACK);
  EXPECT_MESSAGE("no slope today");
  EXPECT_OK(fsdp2_tensor_destroy(gradient));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  EXPECT_OK(fsdp2_tensor_destroy(x));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(model.scale));
  EXPECT_OK(fsdp2_module_destroy(model.whole));
}

static void it_works_in_sharded_recomputed_modules(void) {
  on_ranks("function-1", 1, 0, differentiate_inside);
  on_ranks("function-2", 2, 0, differentiate_inside);
}

int main(void) {
  use_test_device();
  RUN(backward_is_what_the_program_says);
  RUN(without_gradients_nothing_is_kept);
  RUN(failures_reach_the_call_that_needs_the_function);
  RUN(it_works_in_sharded_recomputed_modules);
  EXPECT(fsdp2_live_handles() == 0);
  return harness_result();
}
