/* Trains what a configuration file says, of any dialect that fsdp2 train reads, on tokens or text:
 *
 *   configured FILE.yaml [path.to.key=value]...
 *   fsdp2 run --nproc-per-node 2 -- configured ...     the same on two ranks of this machine
 */
#include <fsdp2/fsdp2.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRoom = 1 << 16 };

/* The other ranks see that this one has ended: none of them is left waiting. */
static void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    fprintf(stderr, "configured: %s: %s\n", fsdp2_status_name(status), fsdp2_error_message());
    exit(1);
  }
}

static long long number_of(const char* plan, const char* key) {
  char value[32];
  size_t needed;
  check(fsdp2_config_get_value(plan, key, value, sizeof(value), &needed));
  return strtoll(value, NULL, 10);
}

static const char* text_of(const char* path) {
  static char text[kRoom];
  FILE* file = fopen(path, "rb");
  const size_t n = file == NULL ? 0 : fread(text, 1, sizeof(text), file);
  if (n == 0 || n == sizeof(text)) {
    fprintf(stderr, "configured: %s: expected a file of 1 to %d bytes\n", path, kRoom - 1);
    exit(1);
  }
  fclose(file);
  return text;
}

int main(int argc, char** argv) {
  static char yaml_plan[kRoom], plan[kRoom];
  const char* const* sets = (const char* const*)argv + 2;
  fsdp2_mesh_info job_info = {.struct_size = sizeof(job_info)};
  fsdp2_loader_info data = {.struct_size = sizeof(data)};
  fsdp2_step_result result = {.struct_size = sizeof(result)};
  fsdp2_mesh job, mesh;
  fsdp2_module module;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_loader loader;
  fsdp2_step step;
  fsdp2_tensor* batch;
  size_t needed, n, k;
  long long i;
  if (argc < 2) return fprintf(stderr, "usage: configured FILE.yaml [KEY=VALUE]...\n"), 2;
  check(fsdp2_config_lower(text_of(argv[1]), argv[1], NULL, sets, (size_t)argc - 2, 0, yaml_plan,
                           kRoom, &needed));
  check(fsdp2_config_set_up_process(yaml_plan));
  check(fsdp2_config_join_job(yaml_plan, &job));
  check(fsdp2_mesh_get_info(job, &job_info));
  check(fsdp2_config_make_mesh(yaml_plan, job, &mesh));
  check(fsdp2_config_make_module(yaml_plan, &module));
  check(fsdp2_config_make_loader(yaml_plan, module, mesh, &loader));
  check(fsdp2_loader_get_info(loader, &data));
  check(fsdp2_config_settle_epochs(yaml_plan, data.steps_per_epoch, plan, kRoom, &needed));
  check(fsdp2_config_make_shard(plan, module, mesh, &shard));
  check(fsdp2_shard_load_values(shard));
  check(fsdp2_config_make_optimizer(plan, shard, &optimizer));
  check(fsdp2_config_make_step(plan, shard, optimizer, &step));
  n = 2 * (size_t)number_of(plan, "grad_accum"); /* tokens and labels of each micro batch */
  if ((batch = calloc(n, sizeof(*batch))) == NULL) return 1;
  for (i = 0; i < number_of(plan, "steps"); ++i) {
    for (k = 0; k < n; k += 2) check(fsdp2_loader_next(loader, &batch[k], &batch[k + 1]));
    check(fsdp2_step_run(step, batch, n, &result));
    for (k = 0; k < n; ++k) check(fsdp2_tensor_destroy(batch[k]));
    if (job_info.rank == 0) printf("step %lld loss %.17g\n", i, result.loss);
  }
  free(batch);
  fsdp2_step_destroy(step), fsdp2_loader_destroy(loader), fsdp2_optimizer_destroy(optimizer);
  fsdp2_shard_destroy(shard), fsdp2_module_destroy(module), fsdp2_mesh_destroy(mesh);
  fsdp2_mesh_destroy(job);
  return 0;
}
