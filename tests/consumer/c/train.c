/* Trains a tiny model, made from a seed, on one batch: the loss falls. */
#include <fsdp2/fsdp2.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRows = 4, kLength = 16, kSteps = 5 };

static const char kConfig[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 32, \"intermediate_size\": "
    "64,"
    " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 2,"
    " \"max_position_embeddings\": 32, \"rms_norm_eps\": 1e-5, \"initializer_range\": 0.02}";

static void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    fprintf(stderr, "%s: %s\n", fsdp2_status_name(status), fsdp2_error_message());
    exit(1);
  }
}

/* Tokens that count up, and as labels those that follow. */
static fsdp2_tensor tokens(int64_t first) {
  const int64_t shape[] = {kRows, kLength};
  int64_t values[kRows * kLength];
  fsdp2_tensor out;
  int i;
  for (i = 0; i < kRows * kLength; ++i) values[i] = (first + i) % 64;
  check(fsdp2_tensor_from_buffer(values, sizeof(values), FSDP2_DTYPE_I64, shape, 2, &out));
  return out;
}

int main(void) {
  fsdp2_step_result result = {.struct_size = sizeof(result)};
  fsdp2_adamw_options adamw = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_tensor batch[2];
  fsdp2_mesh mesh;
  fsdp2_module module;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_step step;
  double first = 0;
  int i;
  check(fsdp2_check_version(FSDP2_HEADER_VERSION));
  check(fsdp2_mesh_create(NULL, &mesh));
  check(fsdp2_module_from_config(kConfig, NULL, &module));
  check(fsdp2_shard_create(module, mesh, NULL, &shard));
  adamw.lr = 1e-2;
  check(fsdp2_optimizer_create_adamw(shard, &adamw, &optimizer));
  check(fsdp2_step_create(shard, optimizer, NULL, &step));
  batch[0] = tokens(0), batch[1] = tokens(1);
  for (i = 0; i < kSteps; ++i) {
    check(fsdp2_step_run(step, batch, 2, &result));
    printf("step %d loss %.4f\n", i, result.loss);
    if (i == 0) first = result.loss;
  }
  fsdp2_tensor_destroy(batch[0]), fsdp2_tensor_destroy(batch[1]);
  fsdp2_step_destroy(step), fsdp2_optimizer_destroy(optimizer), fsdp2_shard_destroy(shard);
  fsdp2_module_destroy(module), fsdp2_mesh_destroy(mesh);
  return result.loss < first && fsdp2_live_handles() == 0 ? 0 : 1;
}
