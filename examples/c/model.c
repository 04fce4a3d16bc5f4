/* A model written in C: a small transformer made of LibTorch's operators, its layers sharded as
 * units and recomputed in backward.
 *
 *   model TOKEN_FILE STEPS [GROUP]
 *   fsdp2 run --nproc-per-node 2 -- model ...        the same on two ranks of this machine
 *
 * With GROUP it computes in bf16 and is sharded over groups of so many ranks, each group a replica.
 */
#include <fsdp2/fsdp2.h>
#include <stdio.h>
#include <stdlib.h>

enum { kVocabulary = 384, kWidth = 32, kHeads = 4, kLayers = 2, kSequence = 32, kInner = 64 };

/* The other ranks see that this one has ended: none of them is left waiting. */
static void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    fprintf(stderr, "model: %s: %s\n", fsdp2_status_name(status), fsdp2_error_message());
    exit(1);
  }
}

/* ---- forwards */

/* One forward: what it makes is in its scope, and after a failure nothing more is computed. */
struct run {
  fsdp2_scope scope;
  fsdp2_status status;
};

static fsdp2_tensor op(struct run* run, const char* name, const fsdp2_value* inputs, size_t n) {
  fsdp2_value output = FSDP2_NONE;
  size_t needed;
  if (run->status == FSDP2_OK) {
    run->status = fsdp2_op_call(name, inputs, n, 0, run->scope, &output, 1, &needed);
  }
  return output.tensor;
}
#define OP(run, name, ...)                    \
  op(run, name, (fsdp2_value[]){__VA_ARGS__}, \
     sizeof((fsdp2_value[]){__VA_ARGS__}) / sizeof(fsdp2_value))
#define T FSDP2_TENSOR

/* The output leaves the scope; everything else ends with it. */
static fsdp2_status end(struct run* run, fsdp2_tensor output, fsdp2_tensor* outputs, size_t* n) {
  if (run->status == FSDP2_OK) {
    outputs[0] = output, *n = 1;
    run->status = fsdp2_scope_keep(run->scope, &output, 1);
  }
  fsdp2_scope_destroy(run->scope);
  return run->status;
}

static fsdp2_tensor norm(struct run* run, fsdp2_tensor x, fsdp2_tensor weight) {
  static const int64_t kShape[] = {kWidth};
  return OP(run, "aten::rms_norm", T(x), FSDP2_INTS(kShape, 1), T(weight), FSDP2_DOUBLE(1e-5));
}

static fsdp2_tensor attention(struct run* run, fsdp2_tensor x, fsdp2_tensor qkv, fsdp2_tensor out) {
  static const int64_t kApart[] = {-1, kSequence, 3, kHeads, kWidth / kHeads};
  static const int64_t kOrder[] = {2, 0, 3, 1, 4}, kTogether[] = {-1, kSequence, kWidth};
  fsdp2_tensor heads[3], all = OP(run, "aten::linear", T(x), T(qkv));
  int i;
  all = OP(run, "aten::view", T(all), FSDP2_INTS(kApart, 5));
  all = OP(run, "aten::permute", T(all), FSDP2_INTS(kOrder, 5));
  for (i = 0; i < 3; ++i) {
    heads[i] = OP(run, "aten::select.int", T(all), FSDP2_INT(0), FSDP2_INT(i));
  }
  all = OP(run, "aten::scaled_dot_product_attention", T(heads[0]), T(heads[1]), T(heads[2]),
           FSDP2_NONE, FSDP2_DOUBLE(0), FSDP2_BOOL(1)); /* no mask, no dropout, causal */
  all = OP(run, "aten::transpose.int", T(all), FSDP2_INT(1), FSDP2_INT(2));
  all = OP(run, "aten::reshape", T(all), FSDP2_INTS(kTogether, 3));
  return OP(run, "aten::linear", T(all), T(out));
}

/* Parameters in the order in which make_layer adds them. */
static fsdp2_status run_layer(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                              size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                              void* user_data) {
  const fsdp2_tensor* p = info->parameters;
  struct run run = {{0}, FSDP2_OK};
  fsdp2_tensor x = inputs[0], y;
  (void)n_inputs, (void)cap, (void)user_data;
  run.status = fsdp2_scope_create(&run.scope);
  y = attention(&run, norm(&run, x, p[0]), p[1], p[2]);
  x = OP(&run, "aten::add.Tensor", T(x), T(y));
  y = OP(&run, "aten::linear", T(norm(&run, x, p[3])), T(p[4]));
  y = OP(&run, "aten::linear", T(OP(&run, "aten::gelu", T(y))), T(p[5]));
  return end(&run, OP(&run, "aten::add.Tensor", T(x), T(y)), outputs, n_outputs);
}

struct model {
  fsdp2_module whole, layers[kLayers];
};

/* From tokens and labels to the loss. */
static fsdp2_status run_model(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                              size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                              void* user_data) {
  static const int64_t kRows[] = {-1, kVocabulary}, kFlat[] = {-1};
  const struct model* model = user_data;
  const fsdp2_tensor* p = info->parameters;
  struct run run = {{0}, FSDP2_OK};
  fsdp2_tensor x, labels;
  size_t i, n;
  (void)cap;
  if (n_inputs != 2) {
    return fsdp2_callback_fail(FSDP2_E_INVALID_ARGUMENT, "expected tokens and labels");
  }
  run.status = fsdp2_scope_create(&run.scope);
  x = OP(&run, "aten::embedding", T(p[0]), T(inputs[0]));
  x = OP(&run, "aten::add.Tensor", T(x), T(p[1]));
  for (i = 0; i < kLayers && run.status == FSDP2_OK; ++i) {
    fsdp2_tensor next = {0};
    run.status = fsdp2_module_forward(model->layers[i], &x, 1, 0, &next, 1, &n);
    if (run.status == FSDP2_OK) run.status = fsdp2_scope_add(run.scope, &next, 1);
    x = next;
  }
  x = OP(&run, "aten::linear", T(norm(&run, x, p[2])), T(p[3]));
  x = OP(&run, "aten::view", T(x), FSDP2_INTS(kRows, 2));
  x = OP(&run, "aten::to.dtype", T(x), FSDP2_DTYPE(FSDP2_DTYPE_F32)); /* a loss wants more digits */
  labels = OP(&run, "aten::view", T(inputs[1]), FSDP2_INTS(kFlat, 1));
  return end(&run, OP(&run, "aten::cross_entropy_loss", T(x), T(labels)), outputs, n_outputs);
}

/* ---- modules */

static void add(fsdp2_module module, const char* name, int64_t rows, int64_t columns) {
  const int64_t shape[] = {rows, columns};
  check(fsdp2_module_add_parameter(module, name, shape, 2, NULL));
}

static void add_norm(fsdp2_module module, const char* name) {
  static const int64_t kShape[] = {kWidth};
  fsdp2_parameter_options options = FSDP2_PARAMETER_OPTIONS_INIT;
  options.init = FSDP2_INIT_ONES;
  check(fsdp2_module_add_parameter(module, name, kShape, 1, &options));
}

static fsdp2_module make_layer(void) {
  fsdp2_module layer;
  check(fsdp2_module_create_custom("Layer", NULL, run_layer, NULL, NULL, &layer));
  add_norm(layer, "attention_norm");
  add(layer, "qkv", 3 * kWidth, kWidth);
  add(layer, "out", kWidth, kWidth);
  add_norm(layer, "mlp_norm");
  add(layer, "up", kInner, kWidth);
  add(layer, "down", kWidth, kInner);
  return layer;
}

static void make_model(struct model* model) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  char name[32];
  int i;
  options.seed = 1; /* the same values on every rank, however many there are */
  check(fsdp2_module_create_custom("Transformer", &options, run_model, model, NULL, &model->whole));
  add(model->whole, "tokens", kVocabulary, kWidth);
  add(model->whole, "positions", kSequence, kWidth);
  add_norm(model->whole, "norm");
  add(model->whole, "head", kVocabulary, kWidth);
  for (i = 0; i < kLayers; ++i) {
    model->layers[i] = make_layer();
    snprintf(name, sizeof(name), "layer%d", i);
    check(fsdp2_module_add_child(model->whole, name, model->layers[i]));
  }
}

int main(int argc, char** argv) {
  static const char* const kLayer[] = {"Layer"};
  fsdp2_mesh_options joining = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh_info job = {.struct_size = sizeof(job)};
  fsdp2_shard_options sharding = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_adamw_options adamw = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_loader_options loading = FSDP2_LOADER_OPTIONS_INIT;
  fsdp2_step_result result = {.struct_size = sizeof(result)};
  struct model model;
  fsdp2_mesh mesh;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_loader loader;
  fsdp2_step step;
  fsdp2_tensor batch[2];
  int i;
  if (argc != 3 && argc != 4) return fprintf(stderr, "usage: model TOKENS STEPS [GROUP]\n"), 2;
  if (argc == 4) {
    joining.fsdp_size = atoi(argv[3]);
    sharding.param_dtype = FSDP2_DTYPE_BF16, sharding.reduce_dtype = FSDP2_DTYPE_F32;
  }
  check(fsdp2_mesh_create(&joining, &mesh));
  check(fsdp2_mesh_get_info(mesh, &job));
  make_model(&model);
  sharding.wrap = FSDP2_WRAP_KINDS, sharding.wrap_kinds = kLayer, sharding.n_wrap_kinds = 1;
  check(fsdp2_shard_create(model.whole, mesh, &sharding, &shard));
  check(fsdp2_module_checkpoint_activations(model.whole, kLayer, 1, 1, 0));
  adamw.lr = 3e-3;
  check(fsdp2_optimizer_create_adamw(shard, &adamw, &optimizer));
  loading.sequence_length = kSequence, loading.global_batch = 8, loading.vocab_size = kVocabulary;
  check(fsdp2_loader_open(mesh, argv[1], &loading, &loader));
  check(fsdp2_step_create(shard, optimizer, NULL, &step));
  for (i = 0; i < atoi(argv[2]); ++i) {
    check(fsdp2_loader_next(loader, &batch[0], &batch[1]));
    check(fsdp2_step_run(step, batch, 2, &result));
    if (job.rank == 0) printf("step %d loss %.6f\n", i, result.loss);
    check(fsdp2_tensor_destroy(batch[0]));
    check(fsdp2_tensor_destroy(batch[1]));
  }
  fsdp2_step_destroy(step), fsdp2_loader_destroy(loader), fsdp2_optimizer_destroy(optimizer);
  fsdp2_shard_destroy(shard), fsdp2_module_destroy(model.whole);
  for (i = 0; i < kLayers; ++i) fsdp2_module_destroy(model.layers[i]);
  fsdp2_mesh_destroy(mesh);
  return 0;
}
