/* Uses a model without training it: its loss on a text of tokens, and how it goes on.
 *
 *   fsdp2 run --nproc-per-node 2 -- generate MODEL_DIRECTORY
 */
#include <fsdp2/fsdp2.h>
#include <stdio.h>
#include <stdlib.h>

enum { kLength = 16, kNew = 8 };

static void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    fprintf(stderr, "generate: %s: %s\n", fsdp2_status_name(status), fsdp2_error_message());
    exit(1);
  }
}

/* [1, kLength] */
static fsdp2_tensor tensor_of(const int64_t* tokens) {
  static const int64_t kShape[] = {1, kLength};
  fsdp2_tensor tensor;
  check(fsdp2_tensor_from_buffer(tokens, kLength * sizeof(*tokens), FSDP2_DTYPE_I64, kShape, 2,
                                 &tensor));
  return tensor;
}

static double loss_of(fsdp2_module module, const int64_t* text) {
  fsdp2_tensor inputs[2], loss;
  double value;
  size_t n;
  inputs[0] = tensor_of(text), inputs[1] = tensor_of(text + 1);
  check(fsdp2_module_forward(module, inputs, 2, FSDP2_FORWARD_NO_GRAD, &loss, 1, &n));
  check(fsdp2_tensor_get_value(loss, &value));
  fsdp2_tensor_destroy(loss), fsdp2_tensor_destroy(inputs[0]), fsdp2_tensor_destroy(inputs[1]);
  return value;
}

int main(int argc, char** argv) {
  fsdp2_mesh_info job = {.struct_size = sizeof(job)};
  fsdp2_generate_options options = FSDP2_GENERATE_OPTIONS_INIT;
  fsdp2_mesh mesh;
  fsdp2_module module;
  fsdp2_shard shard;
  int64_t text[kLength + 1], tokens[kNew];
  double loss;
  size_t i, n;
  if (argc != 2) return fprintf(stderr, "usage: generate MODEL\n"), 2;
  for (i = 0; i <= kLength; ++i) text[i] = (int64_t)(7 * i % 384);
  check(fsdp2_check_version(FSDP2_HEADER_VERSION));
  check(fsdp2_mesh_create(NULL, &mesh));
  check(fsdp2_mesh_get_info(mesh, &job));
  check(fsdp2_module_from_pretrained(argv[1], NULL, &module));
  check(fsdp2_module_train(module, 0)); /* no dropout */
  check(fsdp2_shard_create(module, mesh, NULL, &shard));
  loss = loss_of(module, text);
  options.max_new_tokens = kNew, options.temperature = 0; /* always the most likely token */
  check(fsdp2_module_generate(module, text, kLength, &options, tokens, kNew, &n));
  if (job.rank == 0) {
    printf("loss %.6f\ntokens", loss);
    for (i = 0; i < n; ++i) printf(" %lld", (long long)tokens[i]);
    printf("\n");
  }
  fsdp2_shard_destroy(shard), fsdp2_module_destroy(module), fsdp2_mesh_destroy(mesh);
  return 0;
}
