/* A model that a test writes: two blocks and a head, whose forwards are functions of the test. */
#ifndef TESTS_CAPI_NET_H_
#define TESTS_CAPI_NET_H_

#include "tests/capi/forwards.h"
#include "tests/capi/tiny_model.h"

enum { kWidth = 8, kClasses = 4, kRows = 6, kParameters = 5 };

/* What the net's forward knows: its children, and whether it is to fail. */
struct net {
  fsdp2_module blocks[2];
  int fails, forwards, block_forwards;
};

/* x + relu(x W' + b) */
static inline fsdp2_tensor block_of(fsdp2_status* status, fsdp2_tensor x, fsdp2_tensor weight,
                                    fsdp2_tensor bias, fsdp2_scope scope) {
  const fsdp2_value linear[3] = {FSDP2_TENSOR(x), FSDP2_TENSOR(weight), FSDP2_TENSOR(bias)};
  fsdp2_value values[2] = {FSDP2_TENSOR(x), FSDP2_NONE};
  fsdp2_value hidden = FSDP2_NONE;
  hidden.kind = FSDP2_VALUE_TENSOR;
  hidden.tensor = one_of(status, "aten::linear", linear, 3, scope);
  values[1].kind = FSDP2_VALUE_TENSOR;
  values[1].tensor = one_of(status, "aten::relu", &hidden, 1, scope);
  return one_of(status, "aten::add.Tensor", values, 2, scope);
}

/* mse(x W', y) */
static inline fsdp2_tensor head_of(fsdp2_status* status, fsdp2_tensor x, fsdp2_tensor weight,
                                   fsdp2_tensor target, fsdp2_scope scope) {
  const fsdp2_value linear[2] = {FSDP2_TENSOR(x), FSDP2_TENSOR(weight)};
  fsdp2_value pair[2] = {FSDP2_NONE, FSDP2_TENSOR(target)};
  pair[0].kind = FSDP2_VALUE_TENSOR;
  pair[0].tensor = one_of(status, "aten::linear", linear, 2, scope);
  return one_of(status, "aten::mse_loss", pair, 2, scope);
}

static inline fsdp2_status run_block(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                                     size_t n_inputs, fsdp2_tensor* outputs, size_t cap,
                                     size_t* n_outputs, void* user_data) {
  fsdp2_scope scope = {0};
  fsdp2_status status = fsdp2_scope_create(&scope);
  fsdp2_tensor output;
  (void)cap;
  ++((struct net*)user_data)->block_forwards;
  EXPECT(n_inputs == 1 && info->n_parameters == 2 && strcmp(info->kind, "Block") == 0);
  output = block_of(&status, inputs[0], info->parameters[0], info->parameters[1], scope);
  return end_scope(scope, status, output, outputs, n_outputs);
}

static inline fsdp2_status run_net(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                                   size_t n_inputs, fsdp2_tensor* outputs, size_t cap,
                                   size_t* n_outputs, void* user_data) {
  struct net* net = (struct net*)user_data;
  fsdp2_scope scope = {0};
  fsdp2_status status = fsdp2_scope_create(&scope);
  fsdp2_tensor hidden = inputs[0];
  size_t n = 0;
  int i;
  (void)cap;
  EXPECT(n_inputs == 2 && info->n_parameters == 1 && info->is_training == 1);
  ++net->forwards;
  for (i = 0; i < 2 && status == FSDP2_OK; ++i) {
    fsdp2_tensor next = {0};
    status = fsdp2_module_forward(net->blocks[i], &hidden, 1, 0, &next, 1, &n);
    if (status == FSDP2_OK) {
      status = fsdp2_scope_add(scope, &next, 1);
    }
    hidden = next;
  }
  if (net->fails) {
    fsdp2_scope_destroy(scope);
    return fsdp2_callback_fail(FSDP2_E_CANCELLED, "the net has had enough");
  }
  hidden = head_of(&status, hidden, info->parameters[0], inputs[1], scope);
  return end_scope(scope, status, hidden, outputs, n_outputs);
}

static _Atomic int released;
static inline void count_release(void* user_data) {
  (void)user_data;
  ++released;
}

static inline fsdp2_module make_block(struct net* net) {
  static const int64_t kSquare[2] = {kWidth, kWidth}, kRow[1] = {kWidth};
  fsdp2_parameter_options options = FSDP2_PARAMETER_OPTIONS_INIT;
  fsdp2_module block = {0};
  EXPECT_OK(fsdp2_module_create_custom("Block", NULL, run_block, net, NULL, &block));
  options.std = 0.4;
  EXPECT_OK(fsdp2_module_add_parameter(block, "weight", kSquare, 2, &options));
  options.init = FSDP2_INIT_ONES;
  EXPECT_OK(fsdp2_module_add_parameter(block, "bias", kRow, 1, &options));
  return block;
}

static inline fsdp2_module make_net(struct net* net) {
  static const int64_t kHead[2] = {kClasses, kWidth};
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_module module = {0};
  memset(net, 0, sizeof(*net));
  options.seed = 5;
  EXPECT_OK(fsdp2_module_create_custom("Net", &options, run_net, net, count_release, &module));
  net->blocks[0] = make_block(net);
  net->blocks[1] = make_block(net);
  EXPECT_OK(fsdp2_module_add_child(module, "first", net->blocks[0]));
  EXPECT_OK(fsdp2_module_add_child(module, "second", net->blocks[1]));
  EXPECT_OK(fsdp2_module_add_parameter(module, "head", kHead, 2, NULL));
  return module;
}

static inline void destroy_net(fsdp2_module module, const struct net* net) {
  EXPECT_OK(fsdp2_module_destroy(net->blocks[0]));
  EXPECT_OK(fsdp2_module_destroy(net->blocks[1]));
  EXPECT_OK(fsdp2_module_destroy(module));
}

/* The same on every rank. */
static inline void make_batch(fsdp2_tensor* batch) {
  static const int64_t kX[2] = {kRows, kWidth}, kY[2] = {kRows, kClasses};
  float x[kRows * kWidth], y[kRows * kClasses];
  int i;
  for (i = 0; i < kRows * kWidth; ++i) {
    x[i] = (float)((i * 7) % 11) / 11.0f - 0.4f;
  }
  for (i = 0; i < kRows * kClasses; ++i) {
    y[i] = (float)((i * 5) % 7) / 7.0f;
  }
  EXPECT_OK(fsdp2_tensor_from_buffer(x, sizeof(x), FSDP2_DTYPE_F32, kX, 2, &batch[0]));
  EXPECT_OK(fsdp2_tensor_from_buffer(y, sizeof(y), FSDP2_DTYPE_F32, kY, 2, &batch[1]));
}

/* Loss and norm of the gradients of a module that runs by its own. */
static inline double backward_of(fsdp2_module module, const fsdp2_tensor* batch) {
  fsdp2_tensor loss = {0};
  size_t n = 0;
  double value;
  EXPECT_OK(fsdp2_module_forward(module, batch, 2, 0, &loss, 1, &n));
  value = value_of(loss);
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  return value;
}

static inline fsdp2_shard shard_net(fsdp2_module module, fsdp2_mesh mesh, const char* kind) {
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  if (kind != NULL) {
    options.wrap = FSDP2_WRAP_KINDS;
    options.wrap_kinds = &kind;
    options.n_wrap_kinds = 1;
  }
  return shard_with(module, mesh, &options);
}

#endif /* TESTS_CAPI_NET_H_ */
