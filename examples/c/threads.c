/* Ranks as threads of one program, without a launcher: each thread joins the same name.
 *
 *   threads MODEL_DIRECTORY TOKEN_FILE RANKS STEPS
 */
#include <fsdp2/fsdp2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* The other ranks are threads of this process and in the middle of their work: exit() would destroy
 * under them what they use, so the process ends without it. */
static void give_up(void) {
  fflush(stdout);
  _Exit(1);
}

static void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    fprintf(stderr, "threads: %s: %s\n", fsdp2_status_name(status), fsdp2_error_message());
    give_up();
  }
}

struct rank {
  pthread_t thread;
  int number, world_size, steps;
  const char *model, *tokens;
};

static void* train(void* argument) {
  const struct rank* rank = argument;
  fsdp2_mesh_options joining = FSDP2_MESH_OPTIONS_INIT;
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
  check(fsdp2_runtime_set_threads(1)); /* of this thread's computations */
  joining.rendezvous = "thread://example", joining.rank = rank->number;
  joining.world_size = rank->world_size;
  check(fsdp2_mesh_create(&joining, &mesh));
  check(fsdp2_module_from_pretrained(rank->model, NULL, &module));
  check(fsdp2_module_get_info(module, &model));
  check(fsdp2_shard_create(module, mesh, NULL, &shard));
  adamw.lr = 3e-3, adamw.beta2 = 0.95, adamw.weight_decay = 0.1;
  check(fsdp2_optimizer_create_adamw(shard, &adamw, &optimizer));
  loading.sequence_length = 32, loading.global_batch = 8, loading.vocab_size = model.vocab_size;
  check(fsdp2_loader_open(mesh, rank->tokens, &loading, &loader));
  check(fsdp2_step_create(shard, optimizer, NULL, &step));
  for (i = 0; i < rank->steps; ++i) {
    check(fsdp2_loader_next(loader, &batch[0], &batch[1]));
    check(fsdp2_step_run(step, batch, 2, &result));
    if (rank->number == 0) printf("step %d loss %.6f\n", i, result.loss);
    check(fsdp2_tensor_destroy(batch[0]));
    check(fsdp2_tensor_destroy(batch[1]));
  }
  fsdp2_step_destroy(step), fsdp2_loader_destroy(loader), fsdp2_optimizer_destroy(optimizer);
  fsdp2_shard_destroy(shard), fsdp2_module_destroy(module), fsdp2_mesh_destroy(mesh);
  return NULL;
}

int main(int argc, char** argv) {
  struct rank ranks[64];
  int i, n;
  if (argc != 5) return fprintf(stderr, "usage: threads MODEL TOKENS RANKS STEPS\n"), 2;
  n = atoi(argv[3]);
  if (n < 1 || n > 64) return fprintf(stderr, "threads: 1 to 64 ranks, not %s\n", argv[3]), 2;
  for (i = 0; i < n; ++i) {
    ranks[i] = (struct rank){0, i, n, atoi(argv[4]), argv[1], argv[2]};
    if (pthread_create(&ranks[i].thread, NULL, train, &ranks[i]) != 0) {
      fprintf(stderr, "threads: no thread for rank %d\n", i);
      give_up();
    }
  }
  for (i = 0; i < n; ++i) pthread_join(ranks[i].thread, NULL);
  return 0;
}
