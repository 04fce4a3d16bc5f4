/* What modules of the program have beside children and parameters of their own: ties and buffers,
 * alone, sharded, and in checkpoints. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/forwards.h"
#include "tests/capi/tiny_model.h"

enum { kVocabulary = 10, kWidth = 6, kRows = 5 };
static const fsdp2_scope kNoScope = {0};

/* A language model of one word: embed, scale, head. It counts its forwards in a buffer. */
struct model {
  fsdp2_module whole, embed, head;
};

static fsdp2_status run_embed(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                              size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                              void* user_data) {
  const fsdp2_value values[2] = {FSDP2_TENSOR(info->parameters[0]), FSDP2_TENSOR(inputs[0])};
  fsdp2_status status = FSDP2_OK;
  (void)n_inputs, (void)cap, (void)user_data;
  EXPECT(info->n_buffers == 0);
  outputs[0] = one_of(&status, "aten::embedding", values, 2, kNoScope);
  *n_outputs = 1;
  return status;
}

static fsdp2_status run_head(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                             size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                             void* user_data) {
  const fsdp2_value values[2] = {FSDP2_TENSOR(inputs[0]), FSDP2_TENSOR(info->parameters[0])};
  fsdp2_status status = FSDP2_OK;
  (void)n_inputs, (void)cap, (void)user_data;
  outputs[0] = one_of(&status, "aten::linear", values, 2, kNoScope);
  *n_outputs = 1;
  return status;
}

static int64_t integer_of(fsdp2_tensor tensor) {
  int64_t value = -1;
  EXPECT_OK(fsdp2_tensor_read(tensor, &value, sizeof(value)));
  return value;
}

/* The buffer of the callback and that of the module are one. */
static void count_forward(const struct model* model, fsdp2_tensor seen) {
  const fsdp2_value values[2] = {FSDP2_TENSOR(seen), FSDP2_INT(1)};
  const int64_t before = integer_of(seen);
  fsdp2_status status = FSDP2_OK;
  fsdp2_tensor same = {0};
  EXPECT_OK(fsdp2_tensor_destroy(one_of(&status, "aten::add_.Scalar", values, 2, kNoScope)));
  EXPECT_OK(status);
  EXPECT_OK(fsdp2_module_get_buffer(model->whole, "seen", &same));
  EXPECT(integer_of(same) == before + 1);
  EXPECT_OK(fsdp2_tensor_destroy(same));
}

static fsdp2_status run_whole(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                              size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                              void* user_data) {
  const struct model* model = (const struct model*)user_data;
  fsdp2_scope scope = {0};
  fsdp2_status status = fsdp2_scope_create(&scope);
  fsdp2_tensor hidden = {0}, scaled, logits = {0};
  fsdp2_value values[2];
  size_t n = 0;
  (void)cap;
  EXPECT(n_inputs == 2 && info->n_buffers == 2);
  count_forward(model, info->buffers[0]);
  EXPECT_OK(fsdp2_module_forward(model->embed, inputs, 1, 0, &hidden, 1, &n));
  values[0] = (fsdp2_value)FSDP2_TENSOR(hidden);
  values[1] = (fsdp2_value)FSDP2_TENSOR(info->buffers[1]);
  scaled = one_of(&status, "aten::mul.Tensor", values, 2, scope);
  EXPECT_OK(fsdp2_module_forward(model->head, &scaled, 1, 0, &logits, 1, &n));
  EXPECT_OK(fsdp2_scope_add(scope, &hidden, 1));
  EXPECT_OK(fsdp2_scope_add(scope, &logits, 1));
  values[0] = (fsdp2_value)FSDP2_TENSOR(logits);
  values[1] = (fsdp2_value)FSDP2_TENSOR(inputs[1]);
  return end_scope(scope, status, one_of(&status, "aten::cross_entropy_loss", values, 2, scope),
                   outputs, n_outputs);
}

static void add_buffer(fsdp2_module module, const char* name, const void* value, size_t n_bytes,
                       int32_t dtype, uint32_t flags) {
  static const int64_t kOne[1] = {1};
  fsdp2_tensor tensor = {0};
  EXPECT_OK(fsdp2_tensor_from_buffer(value, n_bytes, dtype, kOne, 1, &tensor));
  EXPECT_OK(fsdp2_module_add_buffer(module, name, tensor, flags));
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
}

static void make_model(struct model* model) {
  static const int64_t kTable[2] = {kVocabulary, kWidth};
  const int64_t seen = 0;
  const float scale = 2.0f;
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_parameter_options table = FSDP2_PARAMETER_OPTIONS_INIT;
  options.seed = 11;
  EXPECT_OK(fsdp2_module_create_custom("Model", &options, run_whole, model, NULL, &model->whole));
  EXPECT_OK(fsdp2_module_create_custom("Embed", NULL, run_embed, NULL, NULL, &model->embed));
  EXPECT_OK(fsdp2_module_create_custom("Head", NULL, run_head, NULL, NULL, &model->head));
  table.init = FSDP2_INIT_ZEROS;
  EXPECT_OK(fsdp2_module_add_parameter(model->head, "weight", kTable, 2, &table));
  table.init = FSDP2_INIT_NORMAL;
  table.std = 0.4;
  EXPECT_OK(fsdp2_module_add_parameter(model->embed, "weight", kTable, 2, &table));
  EXPECT_OK(fsdp2_module_add_child(model->whole, "head", model->head));
  EXPECT_OK(fsdp2_module_add_child(model->whole, "embed", model->embed));
  EXPECT_OK(fsdp2_module_tie_parameter(model->whole, "head.weight", "embed.weight"));
  add_buffer(model->whole, "seen", &seen, sizeof(seen), FSDP2_DTYPE_I64, 0);
  add_buffer(model->whole, "scale", &scale, sizeof(scale), FSDP2_DTYPE_F32,
             FSDP2_BUFFER_NOT_PERSISTENT);
}

static void destroy_model(const struct model* model) {
  EXPECT_OK(fsdp2_module_destroy(model->embed));
  EXPECT_OK(fsdp2_module_destroy(model->head));
  EXPECT_OK(fsdp2_module_destroy(model->whole));
}

static void make_batch(fsdp2_tensor* batch) {
  static const int64_t kTokens[kRows] = {1, 4, 9, 1, 0}, kLabels[kRows] = {4, 9, 1, 1, 3},
                       kShape[1] = {kRows};
  batch[0] = int64_tensor(kTokens, kShape, 1);
  batch[1] = int64_tensor(kLabels, kShape, 1);
}

static double backward_of(const struct model* model) {
  fsdp2_tensor batch[2], loss = {0};
  size_t n = 0;
  double value;
  make_batch(batch);
  EXPECT_OK(fsdp2_module_forward(model->whole, batch, 2, 0, &loss, 1, &n));
  value = value_of(loss);
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  return value;
}

/* ---- ties */

static void read_parameter(fsdp2_module module, size_t index, int32_t which, void* to) {
  fsdp2_tensor tensor = {0};
  EXPECT_OK(fsdp2_module_get_parameter(module, index, which, &tensor));
  EXPECT_OK(fsdp2_tensor_read(tensor, to, sizeof(float) * kVocabulary * kWidth));
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
}

/* Loss and gradient of the model, computed here: each row of the table stands in both places. */
static struct tiny_result by_hand(const float (*table)[kWidth], float (*gradient)[kWidth]) {
  static const int kTokens[kRows] = {1, 4, 9, 1, 0}, kLabels[kRows] = {4, 9, 1, 1, 3};
  struct tiny_result result = {0.0, 0.0};
  int r, v, d;
  memset(gradient, 0, sizeof(float) * kVocabulary * kWidth);
  for (r = 0; r < kRows; ++r) {
    double logits[kVocabulary] = {0.0}, sum = 0.0;
    for (v = 0; v < kVocabulary; ++v) {
      for (d = 0; d < kWidth; ++d) {
        logits[v] += 2.0 * (double)table[kTokens[r]][d] * (double)table[v][d];
      }
      sum += exp(logits[v]);
    }
    result.loss += (log(sum) - logits[kLabels[r]]) / kRows;
    for (v = 0; v < kVocabulary; ++v) {
      const double slope = (exp(logits[v]) / sum - (v == kLabels[r] ? 1.0 : 0.0)) / kRows;
      for (d = 0; d < kWidth; ++d) {
        gradient[v][d] += (float)(slope * 2.0 * (double)table[kTokens[r]][d]);
        gradient[kTokens[r]][d] += (float)(slope * 2.0 * (double)table[v][d]);
      }
    }
  }
  for (v = 0; v < kVocabulary; ++v) {
    for (d = 0; d < kWidth; ++d) {
      result.norm += (double)gradient[v][d] * (double)gradient[v][d];
    }
  }
  result.norm = sqrt(result.norm);
  return result;
}

static struct tiny_result expected;

static void a_tie_is_one_parameter_with_the_gradients_of_both_places(void) {
  struct model model;
  fsdp2_module_parameter_info info;
  size_t count = 0, index = 9;
  float table[kVocabulary][kWidth], gradient[kVocabulary][kWidth], computed[kVocabulary][kWidth];
  double loss, largest = 0.0;
  int i, d;
  info.struct_size = (uint32_t)sizeof(info);
  make_model(&model);
  loss = backward_of(&model);
  EXPECT_OK(fsdp2_module_get_parameter_count(model.whole, &count));
  EXPECT_OK(fsdp2_module_get_parameter_info(model.whole, 0, &info));
  EXPECT_OK(fsdp2_module_get_parameter_index(model.whole, "embed.weight", &index));
  EXPECT(count == 1 && index == 0 && info.n_names == 2);
  read_parameter(model.whole, 0, FSDP2_PARAMETER_LOCAL, table);
  read_parameter(model.whole, 0, FSDP2_PARAMETER_LOCAL_GRAD, gradient);
  expected = by_hand((const float(*)[kWidth])table, computed);
  EXPECT_NEAR(loss, expected.loss, 1e-5);
  for (i = 0; i < kVocabulary; ++i) {
    for (d = 0; d < kWidth; ++d) {
      EXPECT_NEAR(gradient[i][d], computed[i][d], 1e-5);
      largest = fmax(largest, fabs((double)table[i][d]));
    }
  }
  EXPECT(largest > 0.1); /* begins as embed.weight does, not as head.weight's zeros */
  destroy_model(&model);
}

static void compare_sharded(fsdp2_mesh mesh, int rank) {
  static const char* const kKinds[] = {"Embed", "Head"};
  size_t n;
  (void)rank;
  for (n = 0; n <= 2; ++n) {
    fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
    struct model model;
    fsdp2_shard shard;
    double norm = 0.0;
    make_model(&model);
    options.wrap = n == 0 ? FSDP2_WRAP_NONE : FSDP2_WRAP_KINDS;
    options.wrap_kinds = n == 0 ? NULL : kKinds;
    options.n_wrap_kinds = n;
    shard = shard_with(model.whole, mesh, &options);
    EXPECT_NEAR(backward_of(&model), expected.loss, 1e-5);
    EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &norm));
    EXPECT_NEAR(norm, expected.norm, 1e-5);
    EXPECT_OK(fsdp2_shard_destroy(shard));
    destroy_model(&model);
  }
}

static void a_tie_is_the_same_at_any_world_size(void) {
  on_ranks("tie-1", 1, 0, compare_sharded);
  on_ranks("tie-2", 2, 0, compare_sharded);
  on_ranks("tie-hsdp", 4, 2, compare_sharded);
}

/* ---- buffers in checkpoints */

enum { kForwards = 3 };
enum { kSharded, kPerRank, kPth, kSafetensors, kWays };
static char saved[kWays][1100];

static double scale_of(fsdp2_module module, const float* next) {
  fsdp2_tensor scale = {0};
  float value = 0.0f;
  EXPECT_OK(fsdp2_module_get_buffer(module, "scale", &scale));
  EXPECT_OK(fsdp2_tensor_read(scale, &value, sizeof(value)));
  if (next != NULL) {
    EXPECT_OK(fsdp2_tensor_write(scale, next, sizeof(*next)));
  }
  EXPECT_OK(fsdp2_tensor_destroy(scale));
  return value;
}

static int64_t seen_by(fsdp2_module module) {
  fsdp2_tensor seen = {0};
  int64_t value;
  EXPECT_OK(fsdp2_module_get_buffer(module, "seen", &seen));
  value = integer_of(seen);
  EXPECT_OK(fsdp2_tensor_destroy(seen));
  return value;
}

static void save_all_ways(fsdp2_mesh mesh, int rank) {
  static const fsdp2_optimizer kNoOptimizer = {0};
  static const fsdp2_loader kNoLoader = {0};
  static const fsdp2_step kNoStep = {0};
  const float other = 7.0f;
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  struct model model;
  fsdp2_shard shard;
  int i;
  (void)rank;
  make_model(&model);
  shard = shard_with(model.whole, mesh, NULL);
  for (i = 0; i < kForwards; ++i) {
    backward_of(&model);
  }
  EXPECT_NEAR(scale_of(model.whole, &other), 2.0, 0.0);
  EXPECT_OK(fsdp2_checkpoint_save(shard, kNoOptimizer, kNoStep, kNoLoader, saved[kSharded], NULL));
  options.format = FSDP2_CHECKPOINT_PTH_PER_RANK;
  EXPECT_OK(
      fsdp2_checkpoint_save(shard, kNoOptimizer, kNoStep, kNoLoader, saved[kPerRank], &options));
  EXPECT_OK(fsdp2_checkpoint_save_full(shard, saved[kPth]));
  EXPECT_OK(fsdp2_checkpoint_save_full(shard, saved[kSafetensors]));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  destroy_model(&model);
}

static void load_all_ways(fsdp2_mesh mesh, int rank) {
  static const fsdp2_optimizer kNoOptimizer = {0};
  static const fsdp2_loader kNoLoader = {0};
  static const fsdp2_step kNoStep = {0};
  int way;
  (void)rank;
  for (way = 0; way < kWays; ++way) {
    struct model model;
    fsdp2_shard shard;
    make_model(&model);
    shard = shard_with(model.whole, mesh, NULL);
    EXPECT(seen_by(model.whole) == 0);
    EXPECT_OK(
        way == kPth || way == kSafetensors
            ? fsdp2_checkpoint_load_full(shard, saved[way])
            : fsdp2_checkpoint_load(shard, kNoOptimizer, kNoStep, kNoLoader, saved[way], NULL));
    EXPECT(seen_by(model.whole) == kForwards);
    EXPECT_NEAR(scale_of(model.whole, NULL), 2.0, 0.0); /* not in the checkpoint */
    EXPECT_NEAR(backward_of(&model), expected.loss, 1e-5);
    EXPECT_OK(fsdp2_shard_destroy(shard));
    destroy_model(&model);
  }
}

static void checkpoints_hold_persistent_buffers(void) {
  static const char* const kEnds[kWays] = {"", "-ranks", ".pth", ".safetensors"};
  char stem[1024];
  int way;
  snprintf(stem, sizeof(stem), "%s", temporary_path("buffers"));
  for (way = 0; way < kWays; ++way) {
    snprintf(saved[way], sizeof(saved[way]), "%s%s", stem, kEnds[way]);
  }
  on_ranks("buffers-2", 2, 0, save_all_ways);
  on_ranks("buffers-1", 1, 0, load_all_ways);
  on_ranks("buffers-3", 3, 0, load_all_ways);
}

/* ---- mistakes */

static void what_does_not_fit_is_refused(void) {
  static const int64_t kOther[2] = {kWidth, kVocabulary}, kOne[1] = {1};
  const int64_t number = 1;
  const fsdp2_tensor value = int64_tensor(&number, kOne, 1);
  struct model model;
  fsdp2_tensor out = {0};
  make_model(&model);
  EXPECT_OK(fsdp2_module_add_parameter(model.whole, "other", kOther, 2, NULL));
  EXPECT_STATUS(fsdp2_module_tie_parameter(model.whole, "other", "embed.weight"),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("'other' [6, 10]");
  EXPECT_STATUS(fsdp2_module_tie_parameter(model.whole, "head.weight", "embed.bias"),
                FSDP2_E_NOT_FOUND);
  EXPECT_STATUS(fsdp2_module_tie_parameter(model.whole, "tail.weight", "embed.weight"),
                FSDP2_E_NOT_FOUND);
  EXPECT_STATUS(fsdp2_module_add_buffer(model.whole, "seen", value, 0), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_module_add_buffer(model.whole, "embed", value, 0), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_module_add_buffer(model.whole, "new", value, 2), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_module_add_parameter(model.whole, "seen", kOne, 1, NULL),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_module_get_buffer(model.whole, "other", &out), FSDP2_E_NOT_FOUND);
  backward_of(&model);
  EXPECT_STATUS(fsdp2_module_add_buffer(model.whole, "new", value, 0), FSDP2_E_WRONG_STATE);
  EXPECT_STATUS(fsdp2_module_tie_parameter(model.whole, "head.weight", "embed.weight"),
                FSDP2_E_WRONG_STATE);
  EXPECT_OK(fsdp2_tensor_destroy(value));
  destroy_model(&model);
}

int main(void) {
  use_test_device();
  RUN(a_tie_is_one_parameter_with_the_gradients_of_both_places);
  RUN(a_tie_is_the_same_at_any_world_size);
  RUN(checkpoints_hold_persistent_buffers);
  RUN(what_does_not_fit_is_refused);
  return harness_result();
}
