/* LibTorch's operators by name: values in and out, gradients, refusals, scopes. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/tiny_model.h"

static const fsdp2_scope kNoScope = {0};
static const int64_t kPair[1] = {2}, kSquare[2] = {2, 2};

static fsdp2_tensor floats(const float* values, const int64_t* shape, size_t n_dims) {
  fsdp2_tensor tensor = {0};
  size_t bytes = sizeof(float), i;
  for (i = 0; i < n_dims; ++i) {
    bytes *= (size_t)shape[i];
  }
  EXPECT_OK(fsdp2_tensor_from_buffer(values, bytes, FSDP2_DTYPE_F32, shape, n_dims, &tensor));
  return tensor;
}

static fsdp2_tensor square(void) {
  static const float kValues[4] = {1, 2, 3, 4};
  return floats(kValues, kSquare, 2);
}

/* One tensor out of an operator. */
static fsdp2_tensor compute(const char* name, const fsdp2_value* inputs, size_t n,
                            fsdp2_scope scope) {
  fsdp2_value output = FSDP2_NONE;
  size_t needed = 0;
  EXPECT_OK(fsdp2_op_call(name, inputs, n, 0, scope, &output, 1, &needed));
  EXPECT(needed == 1 && output.kind == FSDP2_VALUE_TENSOR);
  return output.tensor;
}

static void expect_floats(fsdp2_tensor tensor, const float* expected, size_t n) {
  float found[16] = {0};
  size_t i;
  EXPECT_OK(fsdp2_tensor_read(tensor, found, n * sizeof(float)));
  for (i = 0; i < n; ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-6);
  }
}

static void destroy_both(fsdp2_tensor a, fsdp2_tensor b) {
  EXPECT_OK(fsdp2_tensor_destroy(a));
  EXPECT_OK(fsdp2_tensor_destroy(b));
}

/* ---- values */

static void an_operator_computes_with_defaults(void) {
  static const float kX[2] = {1, 10}, kBias[2] = {0.5f, 0.25f};
  static const float kPlain[2] = {21, 43}, kBiased[2] = {21.5f, 43.25f};
  const fsdp2_tensor x = floats(kX, kPair, 1), w = square(), b = floats(kBias, kPair, 1);
  const fsdp2_value inputs[3] = {FSDP2_TENSOR(x), FSDP2_TENSOR(w), FSDP2_TENSOR(b)};
  const fsdp2_value without[3] = {FSDP2_TENSOR(x), FSDP2_TENSOR(w), FSDP2_DEFAULT};
  const fsdp2_value none[3] = {FSDP2_TENSOR(x), FSDP2_TENSOR(w), FSDP2_NONE};
  fsdp2_tensor y = compute("aten::linear", inputs, 3, kNoScope);
  expect_floats(y, kBiased, 2);
  EXPECT_OK(fsdp2_tensor_destroy(y));
  y = compute("aten::linear", inputs, 2, kNoScope);
  expect_floats(y, kPlain, 2);
  EXPECT_OK(fsdp2_tensor_destroy(y));
  y = compute("aten::linear", without, 3, kNoScope);
  expect_floats(y, kPlain, 2);
  EXPECT_OK(fsdp2_tensor_destroy(y));
  y = compute("aten::linear", none, 3, kNoScope);
  expect_floats(y, kPlain, 2);
  destroy_both(y, x);
  destroy_both(w, b);
}

/* A whole number among floats leaves their dtype as it is, as in Python. */
static void a_number_stands_for_a_tensor(void) {
  static const float kDoubled[4] = {2, 4, 6, 8}, kMoved[4] = {2, 3, 4, 5};
  const fsdp2_tensor x = square();
  const fsdp2_value inputs[2] = {FSDP2_TENSOR(x), FSDP2_INT(2)};
  const fsdp2_value scaled[3] = {FSDP2_TENSOR(x), FSDP2_DOUBLE(0.5), FSDP2_DOUBLE(2.0)};
  fsdp2_tensor y = compute("aten::mul.Tensor", inputs, 2, kNoScope);
  expect_floats(y, kDoubled, 4);
  EXPECT_OK(fsdp2_tensor_destroy(y));
  y = compute("aten::add.Tensor", scaled, 3, kNoScope); /* alpha 2 */
  expect_floats(y, kMoved, 4);
  destroy_both(x, y);
}

static void lists_go_in_and_come_out(void) {
  static const float kRows[2][2] = {{1, 2}, {3, 4}}, kSwapped[4] = {3, 4, 1, 2};
  static const int64_t kIndices[2] = {1, 0}, kSizes[2] = {4, 1};
  const fsdp2_tensor x = square(), indices = int64_tensor(kIndices, kPair, 1);
  const fsdp2_value split[3] = {FSDP2_TENSOR(x), FSDP2_INT(1), FSDP2_INT(0)};
  const fsdp2_value reshape[2] = {FSDP2_TENSOR(x), FSDP2_INTS(kSizes, 2)};
  fsdp2_value rows[2] = {FSDP2_NONE, FSDP2_NONE};
  fsdp2_tensor turned[2] = {{0}, {0}}, joined;
  fsdp2_tensor_info info;
  size_t needed = 9;
  EXPECT_STATUS(fsdp2_op_call("aten::split.Tensor", split, 3, 0, kNoScope, rows, 1, &needed),
                FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(needed == 2 && rows[0].kind == FSDP2_VALUE_NONE);
  EXPECT_OK(fsdp2_op_call("aten::split.Tensor", split, 3, 0, kNoScope, rows, 2, &needed));
  EXPECT(needed == 2 && rows[0].kind == FSDP2_VALUE_TENSOR && rows[1].kind == FSDP2_VALUE_TENSOR);
  expect_floats(rows[0].tensor, kRows[0], 2);
  expect_floats(rows[1].tensor, kRows[1], 2);
  turned[0] = rows[1].tensor, turned[1] = rows[0].tensor;
  {
    const fsdp2_value cat[1] = {FSDP2_TENSORS(turned, 2)};
    joined = compute("aten::cat", cat, 1, kNoScope);
    expect_floats(joined, kSwapped, 4);
    EXPECT_OK(fsdp2_tensor_destroy(joined));
  }
  {
    const fsdp2_tensor by_column[2] = {{0}, indices}; /* x[:, indices] */
    static const float kColumns[4] = {2, 1, 4, 3};
    const fsdp2_value index[2] = {FSDP2_TENSOR(x), FSDP2_TENSORS(by_column, 2)};
    joined = compute("aten::index.Tensor", index, 2, kNoScope);
    expect_floats(joined, kColumns, 4);
    EXPECT_OK(fsdp2_tensor_destroy(joined));
  }
  joined = compute("aten::reshape", reshape, 2, kNoScope);
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(joined, &info));
  EXPECT(info.n_dims == 2 && info.shape[0] == 4 && info.shape[1] == 1);
  EXPECT_OK(fsdp2_tensor_destroy(joined));
  destroy_both(turned[0], turned[1]);
  destroy_both(x, indices);
}

static void numbers_come_out(void) {
  const fsdp2_tensor x = square();
  const fsdp2_value inputs[2] = {FSDP2_TENSOR(x), FSDP2_INT(0)};
  const fsdp2_value same[2] = {FSDP2_TENSOR(x), FSDP2_TENSOR(x)};
  const fsdp2_tensor sum = compute("aten::sum", inputs, 1, kNoScope);
  const fsdp2_value item[1] = {FSDP2_TENSOR(sum)};
  fsdp2_value out = FSDP2_NONE;
  size_t n = 0;
  EXPECT_OK(fsdp2_op_call("aten::item", item, 1, 0, kNoScope, &out, 1, &n));
  EXPECT(n == 1 && out.kind == FSDP2_VALUE_DOUBLE && out.number == 10.0);
  EXPECT_OK(fsdp2_op_call("aten::sym_size.int", inputs, 2, 0, kNoScope, &out, 1, &n));
  EXPECT(n == 1 && out.kind == FSDP2_VALUE_INT && out.integer == 2);
  EXPECT_OK(fsdp2_op_call("aten::equal", same, 2, 0, kNoScope, &out, 1, &n));
  EXPECT(n == 1 && out.kind == FSDP2_VALUE_BOOL && out.integer == 1);
  destroy_both(x, sum);
}

static void several_results_need_their_room_before_it_runs(void) {
  static const float kLargest[2] = {2, 4};
  const fsdp2_tensor x = square();
  const fsdp2_value inputs[2] = {FSDP2_TENSOR(x), FSDP2_INT(1)};
  fsdp2_value out[2] = {FSDP2_NONE, FSDP2_NONE};
  size_t n = 0;
  EXPECT_STATUS(fsdp2_op_call("aten::topk", inputs, 2, 0, kNoScope, NULL, 0, &n),
                FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(n == 2);
  EXPECT_OK(fsdp2_op_call("aten::topk", inputs, 2, 0, kNoScope, out, 2, &n));
  EXPECT(n == 2);
  expect_floats(out[0].tensor, kLargest, 2);
  destroy_both(out[0].tensor, out[1].tensor);
  EXPECT_OK(fsdp2_tensor_destroy(x));
}

static fsdp2_status zeros_on(fsdp2_value* values, const char* device, fsdp2_value* out) {
  size_t n = 0;
  values[3].data = device;
  return fsdp2_op_call("aten::zeros", values, 4, 0, kNoScope, out, 1, &n);
}

static void dtypes_and_texts_go_in(void) {
  const fsdp2_tensor x = square();
  const fsdp2_value cast[2] = {FSDP2_TENSOR(x), FSDP2_DTYPE(FSDP2_DTYPE_BF16)};
  const fsdp2_value by_number[2] = {FSDP2_TENSOR(x), FSDP2_INT(15)};
  const fsdp2_value gelu[2] = {FSDP2_TENSOR(x), FSDP2_STRING("tanh")};
  const fsdp2_value clone[2] = {FSDP2_TENSOR(x), FSDP2_STRING("contiguous_format")};
  const fsdp2_value odd[2] = {FSDP2_TENSOR(x), FSDP2_STRING("sideways")};
  fsdp2_value zeros[4] = {FSDP2_INTS(kPair, 1), FSDP2_DTYPE(FSDP2_DTYPE_I64), FSDP2_NONE,
                          FSDP2_STRING("cpu")};
  fsdp2_tensor_info info;
  fsdp2_tensor y = compute("aten::to.dtype", cast, 2, kNoScope);
  fsdp2_value out = FSDP2_NONE;
  size_t n = 0;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(y, &info));
  EXPECT(info.dtype == FSDP2_DTYPE_BF16);
  EXPECT_OK(fsdp2_tensor_destroy(y));
  EXPECT_STATUS(fsdp2_op_call("aten::to.dtype", by_number, 2, 0, kNoScope, &out, 1, &n),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("aten::to: inputs[1] (dtype): expected ScalarType, found an int");
  y = compute("aten::gelu", gelu, 2, kNoScope);
  EXPECT_OK(fsdp2_tensor_destroy(y));
  y = compute("aten::clone", clone, 2, kNoScope);
  EXPECT_OK(fsdp2_tensor_destroy(y));
  EXPECT_STATUS(fsdp2_op_call("aten::clone", odd, 2, 0, kNoScope, &out, 1, &n),
                FSDP2_E_INVALID_ARGUMENT);
  y = compute("aten::zeros", zeros, 4, kNoScope);
  EXPECT_OK(fsdp2_tensor_get_info(y, &info));
  EXPECT(info.dtype == FSDP2_DTYPE_I64 && info.shape[0] == 2);
  EXPECT_STATUS(zeros_on(zeros, "meta", &out), FSDP2_E_UNSUPPORTED); /* has no memory */
  EXPECT_STATUS(zeros_on(zeros, "cuda:99", &out), FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("(device): ");
  EXPECT_STATUS(zeros_on(zeros, "cuda:256", &out), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(zeros_on(zeros, "sideways", &out), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("(device): expected \"cpu\", \"cuda\" or \"cuda:INDEX\", found \"sideways\"");
  destroy_both(x, y);
}

static void operators_may_change_values_in_place(void) {
  static const float kAdded[4] = {11, 12, 13, 14};
  const fsdp2_tensor x = square();
  const fsdp2_value inputs[2] = {FSDP2_TENSOR(x), FSDP2_INT(10)};
  const fsdp2_tensor same = compute("aten::add_.Tensor", inputs, 2, kNoScope);
  expect_floats(x, kAdded, 4);
  destroy_both(x, same);
}

static void schemas_can_be_read(void) {
  char text[128];
  size_t needed = 0;
  EXPECT_OK(fsdp2_op_get_schema("aten::relu", text, sizeof(text), &needed));
  EXPECT(strcmp(text, "aten::relu(Tensor self) -> Tensor") == 0 && needed == strlen(text) + 1);
}

/* ---- gradients */

static void gradients_go_through_operators(void) {
  static const float kW[2] = {3, 5}, kX[2] = {7, 11};
  const fsdp2_tensor w = floats(kW, kPair, 1), x = floats(kX, kPair, 1);
  const fsdp2_value inputs[2] = {FSDP2_TENSOR(w), FSDP2_TENSOR(x)};
  fsdp2_tensor product, loss, gradient = {0};
  EXPECT_OK(fsdp2_tensor_set_requires_grad(w, 1));
  EXPECT_STATUS(fsdp2_tensor_backward(w), FSDP2_E_WRONG_STATE);
  product = compute("aten::mul.Tensor", inputs, 2, kNoScope);
  {
    const fsdp2_value sum[1] = {FSDP2_TENSOR(product)};
    loss = compute("aten::sum", sum, 1, kNoScope);
  }
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT_OK(fsdp2_tensor_get_grad(w, &gradient));
  expect_floats(gradient, kX, 2);
  EXPECT_STATUS(fsdp2_tensor_backward(loss), FSDP2_E_WRONG_STATE);
  EXPECT_STATUS(fsdp2_tensor_get_grad(x, &gradient), FSDP2_E_NOT_FOUND);
  EXPECT_OK(fsdp2_tensor_destroy(gradient));
  destroy_both(product, loss);
  destroy_both(w, x);
}

static void gradients_can_be_left_out(void) {
  const fsdp2_tensor w = square();
  const fsdp2_value inputs[1] = {FSDP2_TENSOR(w)};
  fsdp2_value loss = FSDP2_NONE;
  size_t n = 0;
  EXPECT_OK(fsdp2_tensor_set_requires_grad(w, 1));
  EXPECT_OK(fsdp2_op_call("aten::sum", inputs, 1, FSDP2_OP_NO_GRAD, kNoScope, &loss, 1, &n));
  EXPECT_STATUS(fsdp2_tensor_backward(loss.tensor), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("without a graph");
  destroy_both(w, loss.tensor);
}

/* The model's own loss, and the same of its logits by operators: on every rank the same norm. */
static void take_loss_by_operators(fsdp2_mesh mesh, int rank) {
  static const int64_t kShape[2] = {2, 4}, kRows[2] = {8, kTinyVocabulary}, kFlat[1] = {8};
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_with(module, mesh, NULL);
  const struct tiny_result own = tiny_step(module, shard);
  int64_t values[2][8];
  fsdp2_scope scope = {0};
  fsdp2_tensor tokens, labels, logits = {0}, rows, loss;
  double value = 0.0, norm = 0.0;
  size_t n = 0;
  int i;
  (void)rank;
  for (i = 0; i < 8; ++i) {
    values[0][i] = 1 + i; /* tiny_loss's */
    values[1][i] = 2 + i;
  }
  tokens = int64_tensor(values[0], kShape, 2);
  labels = on_test_device(int64_tensor(values[1], kFlat, 1)); /* operators move nothing */
  EXPECT_OK(fsdp2_scope_create(&scope));
  EXPECT_OK(fsdp2_shard_zero_grad(shard));
  EXPECT_OK(fsdp2_module_forward(module, &tokens, 1, 0, &logits, 1, &n));
  EXPECT_OK(fsdp2_scope_add(scope, &logits, 1));
  {
    const fsdp2_value view[2] = {FSDP2_TENSOR(logits), FSDP2_INTS(kRows, 2)};
    rows = compute("aten::view", view, 2, scope);
  }
  {
    const fsdp2_value entropy[2] = {FSDP2_TENSOR(rows), FSDP2_TENSOR(labels)};
    loss = compute("aten::cross_entropy_loss", entropy, 2, scope);
  }
  EXPECT_OK(fsdp2_tensor_get_value(loss, &value));
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &norm));
  EXPECT(own.norm > 0.0);
  EXPECT_NEAR(value, own.loss, 1e-5);
  EXPECT_NEAR(norm, own.norm, 1e-4);
  EXPECT_OK(fsdp2_scope_destroy(scope));
  EXPECT_STATUS(fsdp2_tensor_backward(loss), FSDP2_E_STALE_HANDLE);
  destroy_both(tokens, labels);
  destroy_tiny(module, shard);
}
static void a_loss_by_operators_trains_a_sharded_model(void) {
  on_ranks("op-1", 1, 0, take_loss_by_operators);
  on_ranks("op-2", 2, 0, take_loss_by_operators);
}

/* ---- refusals */

static void expect_refused(const char* name, fsdp2_status expected) {
  fsdp2_value out = {77, 0, 0, 0.0, {0}, NULL, 0};
  char text[1024];
  size_t n = 5;
  EXPECT_STATUS(fsdp2_op_call(name, NULL, 0, 0, kNoScope, &out, 1, &n), expected);
  EXPECT_MESSAGE(name);
  EXPECT(out.kind == 77 && n == 5);
  EXPECT_STATUS(fsdp2_op_get_schema(name, text, sizeof(text), &n), expected);
}

static void unsafe_operators_are_refused(void) {
  static const char* const kRefused[] = {
      "aten::set_.source_Tensor", /* gives a tensor the memory of another */
      "aten::resize_",
      "aten::from_file",
      "aten::transpose_", /* changes sizes under the tensor's other users */
      "aten::as_strided_",
      "aten::add.out",
      "aten::requires_grad_", /* would freeze a parameter of the library */
      "aten::_softmax",       /* does not check what it is given */
      "aten::max_pool2d_with_indices_backward",
      "aten::_index_put_impl_",
      "aten::fbgemm_linear_int8_weight",
      "prims::mul",
      "mkldnn::_linear_pointwise",
  };
  size_t i;
  for (i = 0; i < sizeof(kRefused) / sizeof(kRefused[0]); ++i) {
    expect_refused(kRefused[i], FSDP2_E_UNSUPPORTED);
  }
  expect_refused("aten::no_such_thing", FSDP2_E_NOT_FOUND);
  expect_refused("aten::add.NoSuchOverload", FSDP2_E_NOT_FOUND);
  expect_refused("linear", FSDP2_E_UNSUPPORTED);
}

static void refuse_inputs(const char* name, const fsdp2_value* inputs, size_t n_inputs,
                          fsdp2_status expected, const char* message) {
  fsdp2_value out = FSDP2_NONE;
  size_t n = 0;
  EXPECT_STATUS(fsdp2_op_call(name, inputs, n_inputs, 0, kNoScope, &out, 1, &n), expected);
  EXPECT_MESSAGE(message);
}

static void inputs_are_checked_against_the_schema(void) {
  const fsdp2_tensor x = square();
  const fsdp2_tensor with_none[2] = {x, {0}};
  fsdp2_value inputs[3] = {FSDP2_TENSOR(x), FSDP2_INTS(kPair, 1), FSDP2_NONE};
  const fsdp2_value cat[1] = {FSDP2_TENSORS(with_none, 2)};
  const fsdp2_value pad[2] = {FSDP2_TENSOR(x), FSDP2_INTS(kPair, 0)}; /* of 6 */
  fsdp2_value odd;
  refuse_inputs("aten::linear", inputs, 1, FSDP2_E_INVALID_ARGUMENT,
                "aten::linear: inputs[1] (weight): it has no default; the schema is "
                "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor");
  refuse_inputs("aten::linear", inputs, 2, FSDP2_E_INVALID_ARGUMENT,
                "inputs[1] (weight): expected Tensor, found a list of ints");
  refuse_inputs("aten::relu", inputs, 3, FSDP2_E_INVALID_ARGUMENT,
                "aten::relu: expected at most 1 inputs, found 3");
  inputs[1].kind = FSDP2_VALUE_NONE;
  refuse_inputs("aten::linear", inputs, 2, FSDP2_E_INVALID_ARGUMENT, "found none");
  inputs[1].kind = FSDP2_VALUE_GENERATOR + 1;
  refuse_inputs("aten::linear", inputs, 2, FSDP2_E_INVALID_ARGUMENT, "kind: expected");
  inputs[1].kind = FSDP2_VALUE_TENSOR;
  refuse_inputs("aten::linear", inputs, 2, FSDP2_E_INVALID_HANDLE, "null");
  refuse_inputs("aten::reflection_pad3d", pad, 2, FSDP2_E_INVALID_ARGUMENT, "inputs[1] (padding)");
  refuse_inputs("aten::cat", cat, 1, FSDP2_E_INVALID_HANDLE, "null");
  odd = inputs[0];
  odd.reserved = 1;
  refuse_inputs("aten::relu", &odd, 1, FSDP2_E_INVALID_ARGUMENT, "reserved");
  odd = inputs[0];
  odd.kind = FSDP2_VALUE_BOOL, odd.integer = 2;
  refuse_inputs("aten::relu", &odd, 1, FSDP2_E_INVALID_ARGUMENT, "expected 0 to 1");
  odd.kind = FSDP2_VALUE_INTS, odd.data = NULL, odd.count = 2;
  refuse_inputs("aten::relu", &odd, 1, FSDP2_E_NULL_ARGUMENT, "NULL");
  EXPECT_OK(fsdp2_tensor_destroy(x));
}

static void what_libtorch_refuses_is_told(void) {
  static const int64_t kThree[2] = {3, 1};
  static const float kValues[3] = {1, 2, 3};
  const fsdp2_tensor x = square(), y = floats(kValues, kThree, 2);
  const fsdp2_value inputs[2] = {FSDP2_TENSOR(x), FSDP2_TENSOR(y)};
  const fsdp2_value too_large[2] = {FSDP2_TENSOR(x), FSDP2_DOUBLE(1e300)}; /* for a float */
  const fsdp2_value sparse[1] = {FSDP2_TENSOR(x)};
  refuse_inputs("aten::mm", inputs, 2, FSDP2_E_INVALID_ARGUMENT,
                "mat1 and mat2 shapes cannot be multiplied");
  refuse_inputs("aten::celu", too_large, 2, FSDP2_E_INVALID_ARGUMENT,
                "aten::celu: value cannot be converted to type float");
  refuse_inputs("aten::to_sparse", sparse, 1, FSDP2_E_UNSUPPORTED, "a tensor of another form");
  destroy_both(x, y);
}

/* LAPACK would end the process. */
static void eigenvalues_of_what_is_not_finite_are_refused(void) {
  const float kValues[4] = {1, 0, (float)NAN, 1};
  const fsdp2_tensor good = square(), bad = floats(kValues, kSquare, 2);
  const fsdp2_value finite[1] = {FSDP2_TENSOR(good)}, not_finite[1] = {FSDP2_TENSOR(bad)};
  refuse_inputs("aten::linalg_eigvals", not_finite, 1, FSDP2_E_INVALID_ARGUMENT,
                "aten::linalg_eigvals: expected finite values, found an infinity or a NaN");
  EXPECT_OK(fsdp2_tensor_destroy(compute("aten::linalg_eigvals", finite, 1, kNoScope)));
  destroy_both(good, bad);
}

/* ---- scopes */

static void a_scope_destroys_what_it_has(void) {
  const fsdp2_tensor x = square();
  const fsdp2_value inputs[1] = {FSDP2_TENSOR(x)};
  fsdp2_scope scope = {0}, other = {0};
  fsdp2_tensor y, z, destroyed;
  EXPECT_OK(fsdp2_scope_create(&scope));
  y = compute("aten::relu", inputs, 1, scope);
  z = compute("aten::abs", inputs, 1, scope);
  destroyed = compute("aten::neg", inputs, 1, scope);
  EXPECT_OK(fsdp2_tensor_destroy(destroyed));
  EXPECT_OK(fsdp2_scope_add(scope, &x, 1));
  EXPECT_OK(fsdp2_scope_keep(scope, &z, 1));
  EXPECT_STATUS(fsdp2_scope_keep(scope, &z, 1), FSDP2_E_NOT_FOUND);
  EXPECT_OK(fsdp2_scope_duplicate(scope, &other));
  EXPECT_OK(fsdp2_scope_destroy(scope));
  EXPECT(fsdp2_live_handles() == 4); /* x, y, z and the scope's other handle */
  EXPECT_OK(fsdp2_scope_destroy(other));
  EXPECT(fsdp2_live_handles() == 1);
  EXPECT_STATUS(fsdp2_tensor_destroy(y), FSDP2_E_STALE_HANDLE);
  EXPECT_OK(fsdp2_tensor_destroy(z));
}

int main(void) {
  RUN(an_operator_computes_with_defaults);
  RUN(a_number_stands_for_a_tensor);
  RUN(lists_go_in_and_come_out);
  RUN(numbers_come_out);
  RUN(several_results_need_their_room_before_it_runs);
  RUN(dtypes_and_texts_go_in);
  RUN(operators_may_change_values_in_place);
  RUN(schemas_can_be_read);
  RUN(gradients_go_through_operators);
  RUN(gradients_can_be_left_out);
  RUN(a_loss_by_operators_trains_a_sharded_model);
  RUN(unsafe_operators_are_refused);
  RUN(inputs_are_checked_against_the_schema);
  RUN(what_libtorch_refuses_is_told);
  RUN(eigenvalues_of_what_is_not_finite_are_refused);
  RUN(a_scope_destroys_what_it_has);
  return harness_result();
}
