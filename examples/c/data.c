/* Trains on data that the program makes: the library reads them where they lie, by DLPack.
 *
 *   fsdp2 run --nproc-per-node 2 -- data MODEL_DIRECTORY STEPS
 */
#include <fsdp2/fsdp2.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRows = 8, kLength = 32, kVocabulary = 384 };

/* DLPack 1.x; programs that have dlpack.h include that. */
struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  struct {
    void* data;
    int32_t device_type, device_id, n_dims;
    uint8_t code, bits; /* 0: a signed integer */
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
  } tensor;
};

static void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    fprintf(stderr, "data: %s: %s\n", fsdp2_status_name(status), fsdp2_error_message());
    exit(1);
  }
}

/* A tensor of memory that outlives it, so that nothing needs to be deleted. */
static fsdp2_tensor share(struct DLManagedTensorVersioned* source, int64_t* tokens,
                          int64_t* shape) {
  fsdp2_tensor tensor;
  *source = (struct DLManagedTensorVersioned){.major = 1};
  source->tensor.data = tokens, source->tensor.device_type = FSDP2_DEVICE_CPU;
  source->tensor.n_dims = 2, source->tensor.shape = shape;
  source->tensor.bits = 64, source->tensor.lanes = 1;
  check(fsdp2_tensor_from_dlpack(source, &tensor));
  return tensor;
}

/* This rank's rows of a step's batch: each token is followed by the one that is 5 more. */
static void fill(int64_t* tokens, int64_t* labels, int step, int first_row, int n_rows) {
  int i;
  for (i = 0; i < n_rows * kLength; ++i) {
    const int row = first_row + i / kLength, column = i % kLength;
    tokens[i] = (31 * row + 17 * step + 5 * column) % kVocabulary;
    labels[i] = (tokens[i] + 5) % kVocabulary;
  }
}

int main(int argc, char** argv) {
  fsdp2_mesh_info job = {.struct_size = sizeof(job)};
  fsdp2_step_result result = {.struct_size = sizeof(result)};
  fsdp2_adamw_options adamw = FSDP2_ADAMW_OPTIONS_INIT;
  static int64_t tokens[kRows * kLength], labels[kRows * kLength];
  struct DLManagedTensorVersioned sources[2];
  fsdp2_mesh mesh;
  fsdp2_module module;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_step step;
  fsdp2_tensor batch[2];
  int64_t shape[2] = {0, kLength};
  int i, n_rows;
  if (argc != 3) return fprintf(stderr, "usage: data MODEL STEPS\n"), 2;
  check(fsdp2_mesh_create(NULL, &mesh));
  check(fsdp2_mesh_get_info(mesh, &job));
  check(fsdp2_module_from_pretrained(argv[1], NULL, &module));
  check(fsdp2_shard_create(module, mesh, NULL, &shard));
  adamw.lr = 3e-3;
  check(fsdp2_optimizer_create_adamw(shard, &adamw, &optimizer));
  check(fsdp2_step_create(shard, optimizer, NULL, &step));
  shape[0] = n_rows = kRows / job.world_size;
  batch[0] = share(&sources[0], tokens, shape), batch[1] = share(&sources[1], labels, shape);
  for (i = 0; i < atoi(argv[2]); ++i) {
    fill(tokens, labels, i, job.rank * n_rows, n_rows); /* in place: the tensors see it */
    check(fsdp2_step_run(step, batch, 2, &result));
    if (job.rank == 0) printf("step %d loss %.6f\n", i, result.loss);
  }
  fsdp2_tensor_destroy(batch[0]), fsdp2_tensor_destroy(batch[1]);
  fsdp2_step_destroy(step), fsdp2_optimizer_destroy(optimizer);
  fsdp2_shard_destroy(shard), fsdp2_module_destroy(module), fsdp2_mesh_destroy(mesh);
  return 0;
}
