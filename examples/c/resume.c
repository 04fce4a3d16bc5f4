/* Trains up to a number of steps from where it was left, on any number of ranks, and saves the run:
 *
 *   fsdp2 run --nproc-per-node 2 -- resume MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY 3
 *   resume MODEL_DIRECTORY TOKEN_FILE RUN_DIRECTORY 5       goes on from there, on one rank
 */
#include <fsdp2/fsdp2.h>
#include <stdio.h>
#include <stdlib.h>

static void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    fprintf(stderr, "resume: %s: %s\n", fsdp2_status_name(status), fsdp2_error_message());
    exit(1);
  }
}

struct run {
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_step step;
  fsdp2_loader loader;
};

/* The newest checkpoint that is whole; none is in the directory of a run that begins. */
static void load(const struct run* run, const char* directory) {
  char path[FSDP2_MAX_PATH];
  size_t n;
  fsdp2_status status = fsdp2_checkpoint_find(directory, path, sizeof(path), &n);
  if (status == FSDP2_E_NOT_FOUND) return;
  check(status);
  check(fsdp2_checkpoint_load(run->shard, run->optimizer, run->step, run->loader, path, NULL));
}

static void save(const struct run* run, const char* directory, int64_t step) {
  char path[FSDP2_MAX_PATH];
  snprintf(path, sizeof(path), "%s/step-%08lld", directory, (long long)step);
  check(fsdp2_checkpoint_save(run->shard, run->optimizer, run->step, run->loader, path, NULL));
}

static void train(const struct run* run, int64_t last, int prints) {
  fsdp2_step_result result = {.struct_size = sizeof(result)};
  fsdp2_tensor batch[2];
  int64_t next;
  check(fsdp2_step_get_position(run->step, &next));
  for (; next < last; ++next) {
    check(fsdp2_loader_next(run->loader, &batch[0], &batch[1]));
    check(fsdp2_step_run(run->step, batch, 2, &result));
    if (prints) printf("step %lld loss %.6f\n", (long long)result.step, result.loss);
    fsdp2_tensor_destroy(batch[0]), fsdp2_tensor_destroy(batch[1]);
  }
}

int main(int argc, char** argv) {
  fsdp2_mesh_info job = {.struct_size = sizeof(job)};
  fsdp2_adamw_options adamw = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_loader_options loading = FSDP2_LOADER_OPTIONS_INIT;
  fsdp2_mesh mesh;
  fsdp2_module module;
  struct run run;
  int64_t last;
  if (argc != 5) return fprintf(stderr, "usage: resume MODEL TOKENS RUN STEPS\n"), 2;
  last = atoll(argv[4]);
  check(fsdp2_check_version(FSDP2_HEADER_VERSION));
  check(fsdp2_mesh_create(NULL, &mesh));
  check(fsdp2_mesh_get_info(mesh, &job));
  check(fsdp2_module_from_pretrained(argv[1], NULL, &module));
  check(fsdp2_shard_create(module, mesh, NULL, &run.shard));
  adamw.lr = 3e-3, adamw.beta2 = 0.95, adamw.weight_decay = 0.1;
  check(fsdp2_optimizer_create_adamw(run.shard, &adamw, &run.optimizer));
  loading.sequence_length = 32, loading.global_batch = 12 /* what 1 to 4 ranks divide */,
  loading.vocab_size = 384;
  check(fsdp2_loader_open(mesh, argv[2], &loading, &run.loader));
  check(fsdp2_step_create(run.shard, run.optimizer, NULL, &run.step));
  load(&run, argv[3]);
  train(&run, last, job.rank == 0);
  save(&run, argv[3], last);
  fsdp2_step_destroy(run.step), fsdp2_loader_destroy(run.loader);
  fsdp2_optimizer_destroy(run.optimizer), fsdp2_shard_destroy(run.shard);
  fsdp2_module_destroy(module), fsdp2_mesh_destroy(mesh);
  return 0;
}
