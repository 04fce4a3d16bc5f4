/* A model put together from layers that the library has, and of a forward of the program: sharded,
 * recomputed, with dropout, frozen, in other dtypes, saved and resumed. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/forwards.h"
#include "tests/capi/tiny_model.h"

enum { kVocabulary = 16, kLength = 4, kRows = 4 };

static fsdp2_module layer_of(const char* kind, const char* json) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_module module = {0};
  options.seed = 9;
  EXPECT_OK(fsdp2_module_create_layer(kind, json, &options, &module));
  return module;
}

static void add(fsdp2_module parent, const char* name, const char* kind, const char* json) {
  const fsdp2_module child = layer_of(kind, json);
  EXPECT_OK(fsdp2_module_add_child(parent, name, child));
  EXPECT_OK(fsdp2_module_destroy(child));
}

/* ---- a language model of layers: its own forward calls those of "blocks" */

struct model {
  fsdp2_module whole, embed, blocks[2], head;
};

static fsdp2_status run_model(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                              size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                              void* user_data) {
  static const int64_t kRowsOf[] = {-1, kVocabulary}, kFlat[] = {-1};
  const struct model* model = (const struct model*)user_data;
  const fsdp2_module chain[4] = {model->embed, model->blocks[0], model->blocks[1], model->head};
  fsdp2_scope scope = {0};
  fsdp2_status status = fsdp2_scope_create(&scope);
  fsdp2_tensor x = inputs[0];
  fsdp2_value logits[2] = {FSDP2_NONE, FSDP2_INTS(kRowsOf, 2)};
  fsdp2_value labels[2] = {FSDP2_NONE, FSDP2_INTS(kFlat, 1)};
  size_t i, n = 0;
  (void)info, (void)n_inputs, (void)cap;
  for (i = 0; i < 4 && status == FSDP2_OK; ++i) {
    fsdp2_tensor next = {0};
    status = fsdp2_module_forward(chain[i], &x, 1, 0, &next, 1, &n);
    if (status == FSDP2_OK) {
      status = fsdp2_scope_add(scope, &next, 1);
    }
    x = next;
  }
  logits[0] = (fsdp2_value)FSDP2_TENSOR(x);
  labels[0] = (fsdp2_value)FSDP2_TENSOR(inputs[1]);
  logits[0] = (fsdp2_value)FSDP2_TENSOR(one_of(&status, "aten::view", logits, 2, scope));
  logits[1] = (fsdp2_value)FSDP2_TENSOR(one_of(&status, "aten::view", labels, 2, scope));
  return end_scope(scope, status, one_of(&status, "aten::cross_entropy_loss", logits, 2, scope),
                   outputs, n_outputs);
}

static fsdp2_module make_block(double dropout) {
  const fsdp2_module block = layer_of("Sequential", NULL);
  char json[160];
  add(block, "norm", "RMSNorm", "{\"normalized_shape\": 8, \"eps\": 1e-5}");
  snprintf(json, sizeof(json),
           "{\"embed_dim\": 8, \"num_heads\": 4, \"num_kv_heads\": 2, \"is_causal\": true,"
           " \"rope_theta\": 100, \"bias\": false, \"dropout\": %g}",
           dropout);
  add(block, "attention", "MultiheadAttention", json);
  snprintf(json, sizeof(json), "{\"p\": %g}", dropout);
  add(block, "drop", "Dropout", json);
  add(block, "mlp", "GatedMLP", "{\"hidden_size\": 8, \"intermediate_size\": 12}");
  return block;
}

static void make_model(struct model* model, double dropout) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  const fsdp2_module list = layer_of("ModuleList", NULL);
  int i;
  options.seed = 4;
  EXPECT_OK(fsdp2_module_create_custom("Model", &options, run_model, model, NULL, &model->whole));
  model->embed = layer_of("Embedding", "{\"num_embeddings\": 16, \"embedding_dim\": 8}");
  model->head = layer_of("Linear", "{\"in_features\": 8, \"out_features\": 16, \"bias\": false}");
  EXPECT_OK(fsdp2_module_add_child(model->whole, "embed", model->embed));
  for (i = 0; i < 2; ++i) {
    model->blocks[i] = make_block(dropout);
    EXPECT_OK(fsdp2_module_add_child(list, i == 0 ? "0" : "1", model->blocks[i]));
  }
  EXPECT_OK(fsdp2_module_add_child(model->whole, "blocks", list));
  EXPECT_OK(fsdp2_module_add_child(model->whole, "head", model->head));
  EXPECT_OK(fsdp2_module_tie_parameter(model->whole, "head.weight", "embed.weight"));
  EXPECT_OK(fsdp2_module_destroy(list));
}

static void destroy_model(const struct model* model) {
  EXPECT_OK(fsdp2_module_destroy(model->embed));
  EXPECT_OK(fsdp2_module_destroy(model->blocks[0]));
  EXPECT_OK(fsdp2_module_destroy(model->blocks[1]));
  EXPECT_OK(fsdp2_module_destroy(model->head));
  EXPECT_OK(fsdp2_module_destroy(model->whole));
}

/* This rank's rows of the batch. */
static void make_batch(fsdp2_tensor* batch, int rank, int world_size) {
  const int64_t rows = kRows / world_size, shape[2] = {rows, kLength};
  int64_t tokens[kRows * kLength], labels[kRows * kLength];
  const int64_t first = rank * rows * kLength;
  int i;
  for (i = 0; i < kRows * kLength; ++i) {
    tokens[i] = (i * i + 3) % kVocabulary;
    labels[i] = (i * 5 + 1) % kVocabulary;
  }
  batch[0] = int64_tensor(tokens + first, shape, 2);
  batch[1] = int64_tensor(labels + first, shape, 2);
}

/* ---- training, whole and in parts */

enum { kSteps = 4 };
struct way {
  double dropout;
  int32_t dtype; /* of the computation */
  int is_wrapped, recomputes;
  int first, last;
  const char *from, *to;
};
static _Thread_local struct way way;

static double losses[kSteps]; /* of rank 0 */

static fsdp2_shard shard_model(const struct model* model, fsdp2_mesh mesh) {
  static const char* const kBlock[] = {"Sequential"};
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  options.param_dtype = way.dtype;
  if (way.is_wrapped) {
    options.wrap = FSDP2_WRAP_KINDS;
    options.wrap_kinds = kBlock;
    options.n_wrap_kinds = 1;
  }
  if (way.recomputes) {
    EXPECT_OK(fsdp2_module_checkpoint_activations(model->whole, kBlock, 1, 1, 0));
  }
  return shard_with(model->whole, mesh, &options);
}

static void train(fsdp2_mesh mesh, int rank) {
  static const fsdp2_loader kNoLoader = {0};
  struct model model;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_step step = {0};
  fsdp2_tensor batch[2];
  int i;
  make_model(&model, way.dropout);
  shard = shard_model(&model, mesh);
  optimizer = golden_adamw(shard);
  EXPECT_OK(fsdp2_step_create(shard, optimizer, NULL, &step));
  if (way.from != NULL) {
    EXPECT_OK(fsdp2_checkpoint_load(shard, optimizer, step, kNoLoader, way.from, NULL));
  }
  make_batch(batch, rank, place_of(mesh).world_size);
  for (i = way.first; i < way.last; ++i) {
    fsdp2_step_result result;
    result.struct_size = (uint32_t)sizeof(result);
    EXPECT_OK(fsdp2_step_run(step, batch, 2, &result));
    if (rank == 0) {
      losses[i] = result.loss;
    }
  }
  if (way.to != NULL) {
    EXPECT_OK(fsdp2_checkpoint_save(shard, optimizer, step, kNoLoader, way.to, NULL));
  }
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  EXPECT_OK(fsdp2_step_destroy(step));
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  destroy_model(&model);
}

static struct way asked; /* of all ranks */
static void train_as_asked(fsdp2_mesh mesh, int rank) {
  way = asked;
  train(mesh, rank);
}

static void train_on(const char* job, int world_size, int64_t fsdp_size, struct way how) {
  asked = how;
  on_ranks(job, world_size, fsdp_size, train_as_asked);
}

static void expect_losses(const double* expected, double tolerance) {
  int i;
  for (i = 0; i < kSteps; ++i) {
    EXPECT_NEAR(losses[i], expected[i], tolerance);
  }
}

static void sharding_and_recomputing_change_nothing(double dropout) {
  struct way how = {dropout, FSDP2_DTYPE_KEEP, 0, 0, 0, kSteps, NULL, NULL};
  double expected[kSteps];
  train_on("layer-1", 1, 0, how);
  memcpy(expected, losses, sizeof(expected));
  how.is_wrapped = 1;
  train_on("layer-2", 2, 0, how);
  expect_losses(expected, 1e-5);
  how.recomputes = 1;
  train_on("layer-recomputed", 2, 0, how);
  expect_losses(expected, 1e-5);
  train_on("layer-hsdp", 4, 2, how);
  expect_losses(expected, 1e-5);
}

static void layers_train_alike_however_they_are_sharded(void) {
  sharding_and_recomputing_change_nothing(0.0);
  EXPECT(losses[kSteps - 1] < losses[0]);
}

static void dropout_is_the_same_however_the_rows_are_spread(void) {
  sharding_and_recomputing_change_nothing(0.3);
}

static void they_resume(void) {
  char saved[1024];
  struct way how = {0.3, FSDP2_DTYPE_KEEP, 1, 0, 0, kSteps, NULL, NULL};
  double expected[kSteps];
  snprintf(saved, sizeof(saved), "%s", temporary_path("layers"));
  train_on("layer-whole", 2, 0, how);
  memcpy(expected, losses, sizeof(expected));
  how.last = kSteps / 2, how.to = saved;
  train_on("layer-first", 2, 0, how);
  how.first = kSteps / 2, how.last = kSteps, how.from = saved, how.to = NULL;
  train_on("layer-second", 2, 0, how);
  expect_losses(expected, 1e-6);
  train_on("layer-other", 1, 0, how); /* rank 0 has the generator's state */
  expect_losses(expected, 1e-5);
}

static void they_compute_in_other_dtypes(void) {
  struct way how = {0.0, FSDP2_DTYPE_KEEP, 1, 0, 0, kSteps, NULL, NULL};
  double expected[kSteps];
  train_on("layer-fp32", 2, 0, how);
  memcpy(expected, losses, sizeof(expected));
  how.dtype = FSDP2_DTYPE_BF16;
  train_on("layer-bf16", 2, 0, how);
  expect_losses(expected, 0.02);
  EXPECT(losses[0] != expected[0]);
}

/* ---- parts */

static void freeze_a_part(fsdp2_mesh mesh, int rank) {
  static const char* const kBlocks[] = {"blocks"};
  struct model model;
  fsdp2_tensor batch[2], loss = {0};
  fsdp2_shard shard;
  fsdp2_module_parameter_info info;
  size_t index = 0, n = 0;
  way = (struct way){0.0, FSDP2_DTYPE_KEEP, 1, 0, 0, 0, NULL, NULL};
  info.struct_size = (uint32_t)sizeof(info);
  make_model(&model, 0.0);
  EXPECT_OK(fsdp2_module_set_requires_grad(model.whole, kBlocks, 1, 0));
  shard = shard_model(&model, mesh);
  expect_units(shard, "|blocks.0|blocks.1");
  EXPECT_OK(fsdp2_module_get_parameter_index(model.whole, "blocks.0.mlp.up_proj.weight", &index));
  EXPECT_OK(fsdp2_module_get_parameter_info(model.whole, index, &info));
  EXPECT(info.requires_grad == 0 && info.is_sharded == 1);
  make_batch(batch, rank, 2);
  EXPECT_OK(fsdp2_module_forward(model.whole, batch, 2, 0, &loss, 1, &n));
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  EXPECT_STATUS(fsdp2_module_forward(model.embed, batch, 1, 0, &loss, 1, &n), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("forward of Embedding: parameter 'embed.weight' of the root unit is freed");
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  destroy_model(&model);
}
static void parts_freeze_and_name_what_is_freed(void) {
  on_ranks("layer-parts", 2, 0, freeze_a_part);
}

int main(void) {
  RUN(layers_train_alike_however_they_are_sharded);
  RUN(dropout_is_the_same_however_the_rows_are_spread);
  RUN(they_resume);
  RUN(they_compute_in_other_dtypes);
  RUN(parts_freeze_and_name_what_is_freed);
  return harness_result();
}
