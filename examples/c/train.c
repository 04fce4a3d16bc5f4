/* Trains a language model on a file of tokens, and saves it:
 *
 *   train MODEL_DIRECTORY TOKEN_FILE OUT_DIRECTORY STEPS
 *   fsdp2 run --nproc-per-node 2 -- train ...        the same on two ranks of this machine
 */
#include <fsdp2/fsdp2.h>
#include <stdio.h>
#include <stdlib.h>

/* The other ranks see that this one has ended: none of them is left waiting. */
static void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    fprintf(stderr, "train: %s: %s\n", fsdp2_status_name(status), fsdp2_error_message());
    exit(1);
  }
}

int main(int argc, char** argv) {
  fsdp2_mesh_info job = {.struct_size = sizeof(job)};
  fsdp2_module_info model = {.struct_size = sizeof(model)};
  fsdp2_step_result result = {.struct_size = sizeof(result)};
  fsdp2_adamw_options adamw = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_loader_options loading = FSDP2_LOADER_OPTIONS_INIT;
  fsdp2_mesh mesh;
  fsdp2_module module;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_loader loader;
  fsdp2_step step;
  fsdp2_tensor batch[2];
  int i;
  if (argc != 5) return fprintf(stderr, "usage: train MODEL TOKENS OUT STEPS\n"), 2;
  check(fsdp2_check_version(FSDP2_HEADER_VERSION));
  check(fsdp2_mesh_create(NULL, &mesh));
  check(fsdp2_mesh_get_info(mesh, &job));
  check(fsdp2_module_from_pretrained(argv[1], NULL, &module));
  check(fsdp2_module_get_info(module, &model));
  check(fsdp2_shard_create(module, mesh, NULL, &shard));
  adamw.lr = 3e-3, adamw.beta2 = 0.95, adamw.weight_decay = 0.1;
  check(fsdp2_optimizer_create_adamw(shard, &adamw, &optimizer));
  loading.sequence_length = 32, loading.global_batch = 8, loading.vocab_size = model.vocab_size;
  check(fsdp2_loader_open(mesh, argv[2], &loading, &loader));
  check(fsdp2_step_create(shard, optimizer, NULL, &step));
  for (i = 0; i < atoi(argv[4]); ++i) {
    check(fsdp2_loader_next(loader, &batch[0], &batch[1]));
    check(fsdp2_step_run(step, batch, 2, &result));
    if (job.rank == 0) printf("step %d loss %.6f\n", i, result.loss);
    check(fsdp2_tensor_destroy(batch[0]));
    check(fsdp2_tensor_destroy(batch[1]));
  }
  check(fsdp2_checkpoint_save_pretrained(shard, argv[3]));
  fsdp2_step_destroy(step), fsdp2_loader_destroy(loader), fsdp2_optimizer_destroy(optimizer);
  fsdp2_shard_destroy(shard), fsdp2_module_destroy(module), fsdp2_mesh_destroy(mesh);
  return 0;
}
