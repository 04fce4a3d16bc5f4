/* Trains a program that PyTorch's torch.export has written, such as a model of
 * examples/python/export_model.py, on tokens and labels of [4, 7]:
 *
 *   fsdp2 run --nproc-per-node 2 -- exported PROGRAM.pt2 STEPS
 */
#include <fsdp2/fsdp2.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRows = 4, kLength = 7, kVocabulary = 23 };

static void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    fprintf(stderr, "exported: %s: %s\n", fsdp2_status_name(status), fsdp2_error_message());
    exit(1);
  }
}

/* Each rank has tokens of its own. */
static fsdp2_tensor tokens_of(int step, int rank) {
  static const int64_t kShape[] = {kRows, kLength};
  int64_t tokens[kRows * kLength];
  fsdp2_tensor tensor;
  int i;
  for (i = 0; i < kRows * kLength; ++i) tokens[i] = (5 * i + 11 * step + 3 * rank) % kVocabulary;
  check(fsdp2_tensor_from_buffer(tokens, sizeof(tokens), FSDP2_DTYPE_I64, kShape, 2, &tensor));
  return tensor;
}

int main(int argc, char** argv) {
  fsdp2_mesh_info job = {.struct_size = sizeof(job)};
  fsdp2_step_result result = {.struct_size = sizeof(result)};
  fsdp2_adamw_options adamw = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_mesh mesh;
  fsdp2_module module;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_step step;
  fsdp2_tensor batch[2];
  int i;
  if (argc != 3) return fprintf(stderr, "usage: exported PROGRAM STEPS\n"), 2;
  check(fsdp2_check_version(FSDP2_HEADER_VERSION));
  check(fsdp2_mesh_create(NULL, &mesh));
  check(fsdp2_mesh_get_info(mesh, &job));
  check(fsdp2_module_from_exported(argv[1], NULL, &module));
  check(fsdp2_shard_create(module, mesh, NULL, &shard));
  adamw.lr = 3e-3;
  check(fsdp2_optimizer_create_adamw(shard, &adamw, &optimizer));
  check(fsdp2_step_create(shard, optimizer, NULL, &step));
  for (i = 0; i < atoi(argv[2]); ++i) {
    batch[0] = batch[1] = tokens_of(i, job.rank); /* the model shifts its labels itself */
    check(fsdp2_step_run(step, batch, 2, &result));
    if (job.rank == 0) printf("step %d loss %.6f\n", i, result.loss);
    fsdp2_tensor_destroy(batch[0]);
  }
  fsdp2_step_destroy(step), fsdp2_optimizer_destroy(optimizer);
  fsdp2_shard_destroy(shard), fsdp2_module_destroy(module), fsdp2_mesh_destroy(mesh);
  return 0;
}
