/* A small transformer put together from the library's layers. The program writes two forwards of
 * its own: the sum around each sub-layer, and the loss.
 *
 *   layers TOKEN_FILE STEPS
 *   fsdp2 run --nproc-per-node 2 -- layers ...       the same on two ranks of this machine
 */
#include <fsdp2/fsdp2.h>
#include <stdio.h>
#include <stdlib.h>

enum { kVocabulary = 384, kLength = 32, kLayers = 2 };
#define NORM "RMSNorm", "{\"normalized_shape\": 32, \"eps\": 1e-5}"
#define ATTENTION                                                  \
  "MultiheadAttention",                                            \
      "{\"embed_dim\": 32, \"num_heads\": 4, \"num_kv_heads\": 2," \
      " \"is_causal\": true, \"rope_theta\": 10000, \"bias\": false}"
#define MLP "GatedMLP", "{\"hidden_size\": 32, \"intermediate_size\": 64, \"bias\": false}"
#define EMBEDDING "Embedding", "{\"num_embeddings\": 384, \"embedding_dim\": 32}"
#define HEAD "Linear", "{\"in_features\": 32, \"out_features\": 384, \"bias\": false}"

/* The other ranks see that this one has ended: none of them is left waiting. */
static void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    fprintf(stderr, "layers: %s: %s\n", fsdp2_status_name(status), fsdp2_error_message());
    exit(1);
  }
}

/* ---- forwards; user_data is the child that they call */

static fsdp2_status call(const fsdp2_module* child, fsdp2_tensor input, fsdp2_scope scope,
                         fsdp2_tensor* output) {
  size_t n;
  fsdp2_status status = fsdp2_module_forward(*child, &input, 1, 0, output, 1, &n);
  return status == FSDP2_OK ? fsdp2_scope_add(scope, output, 1) : status;
}

static fsdp2_status op(const char* name, const fsdp2_value* inputs, fsdp2_scope scope,
                       fsdp2_tensor* output) {
  fsdp2_value value;
  size_t n;
  fsdp2_status status = fsdp2_op_call(name, inputs, 2, 0, scope, &value, 1, &n);
  if (status == FSDP2_OK) *output = value.tensor;
  return status;
}

/* The output leaves the scope; everything else ends with it. */
static fsdp2_status end(fsdp2_status status, fsdp2_scope scope, fsdp2_tensor* outputs, size_t* n) {
  if (status == FSDP2_OK) *n = 1, status = fsdp2_scope_keep(scope, outputs, 1);
  fsdp2_scope_destroy(scope);
  return status;
}

static fsdp2_status run_residual(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                                 size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n,
                                 void* child) {
  fsdp2_scope scope = {0};
  fsdp2_tensor y = {0};
  fsdp2_status status = fsdp2_scope_create(&scope);
  (void)info, (void)n_inputs, (void)cap;
  if (status == FSDP2_OK) status = call(child, inputs[0], scope, &y);
  if (status == FSDP2_OK) {
    const fsdp2_value terms[] = {FSDP2_TENSOR(inputs[0]), FSDP2_TENSOR(y)};
    status = op("aten::add.Tensor", terms, scope, outputs);
  }
  return end(status, scope, outputs, n);
}

/* From tokens and labels [B,S]. */
static fsdp2_status run_loss(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                             size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n,
                             void* child) {
  fsdp2_scope scope = {0};
  fsdp2_tensor logits = {0};
  fsdp2_status status = fsdp2_scope_create(&scope);
  (void)info, (void)cap;
  if (n_inputs != 2) status = fsdp2_callback_fail(FSDP2_E_INVALID_ARGUMENT, "expected labels, too");
  if (status == FSDP2_OK) status = call(child, inputs[0], scope, &logits);
  if (status == FSDP2_OK) { /* classes come second: [B,V,S] */
    const fsdp2_value swap[] = {FSDP2_TENSOR(logits), FSDP2_INT(1), FSDP2_INT(2)};
    fsdp2_value swapped;
    size_t n_made;
    status = fsdp2_op_call("aten::transpose.int", swap, 3, 0, scope, &swapped, 1, &n_made);
    if (status == FSDP2_OK) {
      const fsdp2_value pair[] = {swapped, FSDP2_TENSOR(inputs[1])};
      status = op("aten::cross_entropy_loss", pair, scope, outputs);
    }
  }
  return end(status, scope, outputs, n);
}

/* ---- modules */

static fsdp2_module layer(const char* kind, const char* json) {
  fsdp2_module made;
  check(fsdp2_module_create_layer(kind, json, NULL, &made));
  return made;
}

/* The child's handle is no longer needed. */
static void add(fsdp2_module to, const char* name, fsdp2_module child) {
  check(fsdp2_module_add_child(to, name, child));
  check(fsdp2_module_destroy(child));
}

/* A module around a child, which it calls and whose handle it owns. */
static void destroy(void* child) {
  check(fsdp2_module_destroy(*(fsdp2_module*)child));
  free(child);
}
static fsdp2_module around(const char* kind, fsdp2_forward_fn forward, fsdp2_module child) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_module* own = malloc(sizeof(*own));
  fsdp2_module made;
  if (own == NULL) abort();
  *own = child;
  options.seed = 1; /* the same values on every rank, however many there are */
  check(fsdp2_module_create_custom(kind, &options, forward, own, destroy, &made));
  check(fsdp2_module_add_child(made, "inner", child));
  return made;
}

static fsdp2_module residual(const char* kind, const char* json) {
  fsdp2_module inner = layer("Sequential", NULL);
  add(inner, "norm", layer(NORM));
  add(inner, "layer", layer(kind, json));
  return around("Residual", run_residual, inner);
}

static fsdp2_module make_model(void) {
  fsdp2_module chain = layer("Sequential", NULL);
  char name[32];
  int i;
  add(chain, "embedding", layer(EMBEDDING));
  for (i = 0; i < kLayers; ++i) {
    snprintf(name, sizeof(name), "attention%d", i);
    add(chain, name, residual(ATTENTION));
    snprintf(name, sizeof(name), "mlp%d", i);
    add(chain, name, residual(MLP));
  }
  add(chain, "norm", layer(NORM));
  add(chain, "head", layer(HEAD));
  return around("Transformer", run_loss, chain);
}

int main(int argc, char** argv) {
  static const char* const kUnits[] = {"Residual"};
  fsdp2_mesh_info job = {.struct_size = sizeof(job)};
  fsdp2_step_result result = {.struct_size = sizeof(result)};
  fsdp2_shard_options sharding = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_adamw_options adamw = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_loader_options loading = FSDP2_LOADER_OPTIONS_INIT;
  fsdp2_mesh mesh;
  fsdp2_module model;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_loader loader;
  fsdp2_step step;
  fsdp2_tensor batch[2];
  int i;
  if (argc != 3) return fprintf(stderr, "usage: layers TOKENS STEPS\n"), 2;
  check(fsdp2_mesh_create(NULL, &mesh));
  check(fsdp2_mesh_get_info(mesh, &job));
  model = make_model();
  sharding.wrap = FSDP2_WRAP_KINDS, sharding.wrap_kinds = kUnits, sharding.n_wrap_kinds = 1;
  check(fsdp2_shard_create(model, mesh, &sharding, &shard));
  adamw.lr = 3e-3;
  check(fsdp2_optimizer_create_adamw(shard, &adamw, &optimizer));
  loading.sequence_length = kLength, loading.global_batch = 8, loading.vocab_size = kVocabulary;
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
  fsdp2_shard_destroy(shard), fsdp2_module_destroy(model), fsdp2_mesh_destroy(mesh);
  return 0;
}
