/* Random numbers by object: what operators draw from a generator of the program's. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/forwards.h"

enum { kCount = 64 };
static const fsdp2_scope kNoScope = {0};
static const int64_t kShape[1] = {kCount};

static fsdp2_generator seeded(uint64_t seed) {
  fsdp2_generator generator = {0};
  EXPECT_OK(fsdp2_generator_create(seed, &generator));
  return generator;
}

/* kCount normal numbers. */
static void draw(fsdp2_generator generator, float* values) {
  const fsdp2_value inputs[2] = {FSDP2_INTS(kShape, 1), FSDP2_GENERATOR(generator)};
  fsdp2_status status = FSDP2_OK;
  const fsdp2_tensor drawn = one_of(&status, "aten::randn.generator", inputs, 2, kNoScope);
  EXPECT_OK(status);
  EXPECT_OK(fsdp2_tensor_read(drawn, values, kCount * sizeof(float)));
  EXPECT_OK(fsdp2_tensor_destroy(drawn));
}

static int are_equal(const float* a, const float* b) {
  return memcmp(a, b, kCount * sizeof(float)) == 0;
}

static void equal_seeds_give_equal_numbers(void) {
  const fsdp2_generator a = seeded(7), b = seeded(7), c = seeded(8);
  fsdp2_generator again = {0};
  float of_a[kCount], of_b[kCount], of_c[kCount];
  EXPECT_OK(fsdp2_generator_duplicate(a, &again));
  draw(a, of_a);
  draw(b, of_b);
  draw(c, of_c);
  EXPECT(are_equal(of_a, of_b) && !are_equal(of_a, of_c));
  EXPECT_OK(fsdp2_generator_destroy(a));
  draw(again, of_a); /* goes on where the other handle has left it */
  EXPECT(!are_equal(of_a, of_b));
  draw(b, of_b);
  EXPECT(are_equal(of_a, of_b));
  EXPECT_OK(fsdp2_generator_destroy(again));
  EXPECT_OK(fsdp2_generator_destroy(b));
  EXPECT_OK(fsdp2_generator_destroy(c));
}

static void a_state_is_where_numbers_go_on(void) {
  const fsdp2_generator a = seeded(7), b = seeded(8);
  fsdp2_tensor state = {0};
  float of_a[kCount], of_b[kCount];
  draw(a, of_a);
  EXPECT_OK(fsdp2_generator_get_state(a, &state));
  draw(a, of_a);
  EXPECT_OK(fsdp2_generator_set_state(b, state));
  draw(b, of_b);
  EXPECT(are_equal(of_a, of_b));
  EXPECT_OK(fsdp2_tensor_destroy(state));
  EXPECT_OK(fsdp2_generator_destroy(a));
  EXPECT_OK(fsdp2_generator_destroy(b));
}

/* In LibTorch's layout of a state: how many of its 624 numbers are left, and where they begin. */
static void leave_numbers_past_the_end(unsigned char* state) {
  enum { kLeftAt = 8, kNextAt = 16 };
  const int32_t left = 624;
  const uint64_t next = 624;
  memcpy(state + kLeftAt, &left, sizeof(left));
  memcpy(state + kNextAt, &next, sizeof(next));
}

static void what_is_no_state_changes_nothing(void) {
  static const unsigned char kZeros[8] = {0};
  static const int64_t kFew[1] = {8};
  const fsdp2_generator generator = seeded(7), same = seeded(7);
  fsdp2_tensor state = {0}, zeros = {0};
  fsdp2_tensor_info info;
  float found[kCount], expected[kCount];
  unsigned char bytes[8192];
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_generator_get_state(generator, &state));
  EXPECT_OK(fsdp2_tensor_get_info(state, &info));
  EXPECT(info.dtype == FSDP2_DTYPE_U8 && info.n_dims == 1 &&
         info.n_bytes <= (int64_t)sizeof(bytes));
  EXPECT_OK(fsdp2_tensor_from_buffer(kZeros, 8, FSDP2_DTYPE_U8, kFew, 1, &zeros));
  EXPECT_STATUS(fsdp2_generator_set_state(generator, zeros), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_OK(fsdp2_tensor_read(state, bytes, (size_t)info.n_bytes));
  leave_numbers_past_the_end(bytes);
  EXPECT_OK(fsdp2_tensor_write(state, bytes, (size_t)info.n_bytes));
  EXPECT_STATUS(fsdp2_generator_set_state(generator, state), FSDP2_E_INVALID_ARGUMENT);
  memset(bytes, 0xff, sizeof(bytes));
  EXPECT_OK(fsdp2_tensor_write(state, bytes, (size_t)info.n_bytes));
  EXPECT_STATUS(fsdp2_generator_set_state(generator, state), FSDP2_E_INVALID_ARGUMENT);
  draw(generator, found);
  draw(same, expected);
  EXPECT(are_equal(found, expected));
  EXPECT_OK(fsdp2_tensor_destroy(zeros));
  EXPECT_OK(fsdp2_tensor_destroy(state));
  EXPECT_OK(fsdp2_generator_destroy(generator));
  EXPECT_OK(fsdp2_generator_destroy(same));
}

static void only_a_generator_is_taken_for_one(void) {
  const fsdp2_generator generator = seeded(7);
  const fsdp2_value number[2] = {FSDP2_INTS(kShape, 1), FSDP2_INT(7)};
  const fsdp2_value none[2] = {FSDP2_INTS(kShape, 1), FSDP2_NONE};
  const fsdp2_value gone[2] = {FSDP2_INTS(kShape, 1), FSDP2_GENERATOR(generator)};
  const fsdp2_value elsewhere[2] = {FSDP2_GENERATOR(generator), FSDP2_NONE};
  fsdp2_value output = FSDP2_NONE;
  size_t n;
  EXPECT_STATUS(fsdp2_op_call("aten::randn.generator", number, 2, 0, kNoScope, &output, 1, &n),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_op_call("aten::randn.generator", elsewhere, 2, 0, kNoScope, &output, 1, &n),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_OK(fsdp2_op_call("aten::randn.generator", none, 2, 0, kNoScope, &output, 1, &n));
  EXPECT_OK(fsdp2_tensor_destroy(output.tensor));
  EXPECT_OK(fsdp2_generator_destroy(generator));
  EXPECT_STATUS(fsdp2_op_call("aten::randn.generator", gone, 2, 0, kNoScope, &output, 1, &n),
                FSDP2_E_STALE_HANDLE);
}

/* ---- in a forward that runs a second time */

static fsdp2_status noisy_forward(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                                  size_t n_inputs, fsdp2_tensor* outputs, size_t cap,
                                  size_t* n_outputs, void* generator) {
  const fsdp2_value draw_inputs[2] = {FSDP2_INTS(kShape, 1),
                                      FSDP2_GENERATOR(*(const fsdp2_generator*)generator)};
  fsdp2_value factors[2] = {FSDP2_TENSOR(info->parameters[0]), FSDP2_NONE};
  fsdp2_scope scope = {0};
  fsdp2_tensor noise, product, loss;
  fsdp2_status status = fsdp2_scope_create(&scope);
  (void)inputs, (void)n_inputs, (void)cap;
  noise = one_of(&status, "aten::randn.generator", draw_inputs, 2, scope);
  factors[1].kind = FSDP2_VALUE_TENSOR;
  factors[1].tensor = noise;
  product = one_of(&status, "aten::mul.Tensor", factors, 2, scope);
  factors[0].tensor = product;
  loss = one_of(&status, "aten::dot", factors, 2, scope); /* sum of w noise^2 */
  return end_scope(scope, status, loss, outputs, n_outputs);
}

static void a_second_run_draws_the_same(void) {
  static const char* const kNoisy[] = {"Noisy"};
  fsdp2_generator generator = seeded(7);
  const fsdp2_generator same = seeded(7);
  fsdp2_module module = {0};
  fsdp2_parameter_options ones = FSDP2_PARAMETER_OPTIONS_INIT;
  fsdp2_tensor loss = {0}, gradient = {0};
  float noise[kCount], found[kCount], next[kCount];
  size_t n;
  int i;
  ones.init = FSDP2_INIT_ONES;
  EXPECT_OK(fsdp2_module_create_custom("Noisy", NULL, noisy_forward, &generator, NULL, &module));
  EXPECT_OK(fsdp2_module_add_parameter(module, "weight", kShape, 1, &ones));
  EXPECT_OK(fsdp2_module_checkpoint_activations(module, kNoisy, 1, 1, 0));
  EXPECT_OK(fsdp2_module_forward(module, NULL, 0, 0, &loss, 1, &n));
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT_OK(fsdp2_module_get_parameter(module, 0, FSDP2_PARAMETER_LOCAL_GRAD, &gradient));
  EXPECT_OK(fsdp2_tensor_read(gradient, found, sizeof(found)));
  draw(same, noise);
  for (i = 0; i < kCount; ++i) {
    EXPECT_NEAR(found[i], noise[i] * noise[i], 1e-5);
  }
  draw(same, noise);
  draw(generator, next);
  EXPECT(are_equal(noise, next));
  EXPECT_OK(fsdp2_tensor_destroy(gradient));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_generator_destroy(same));
  EXPECT_OK(fsdp2_generator_destroy(generator));
}

int main(void) {
  RUN(equal_seeds_give_equal_numbers);
  RUN(a_state_is_where_numbers_go_on);
  RUN(what_is_no_state_changes_nothing);
  RUN(only_a_generator_is_taken_for_one);
  RUN(a_second_run_draws_the_same);
  EXPECT(fsdp2_live_handles() == 0);
  return harness_result();
}
