/* What users get wrong: each is a status and one line that says what was expected and found. */
#define _POSIX_C_SOURCE 200809L
#include <sys/stat.h>

#include "tests/capi/harness.h"

/* A copy of tiny-llama whose weights are cut after `bytes` bytes (0: left out) and in whose config
 * the text `from` is replaced. */
static const char* broken_model(const char* name, size_t bytes, const char* from, const char* to) {
  const char* directory = temporary_path(name);
  char path[1200];
  size_t n = 0;
  char* data;
  mkdir(directory, 0777);
  data = read_file(TINY_LLAMA "/config.json", &n);
  snprintf(path, sizeof(path), "%s/config.json", directory);
  if (from != NULL && data != NULL) {
    char text[4096];
    const char* at = strstr(data, from);
    EXPECT(at != NULL);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - data), data, to, at + strlen(from));
    write_file(path, text, strlen(text));
  } else {
    write_file(path, data, n);
  }
  free(data);
  if (bytes > 0) {
    data = read_file(TINY_LLAMA "/model.safetensors", &n);
    snprintf(path, sizeof(path), "%s/model.safetensors", directory);
    write_file(path, data, bytes < n ? bytes : n);
    free(data);
  }
  return directory;
}

static void refused(const char* directory, fsdp2_status expected) {
  fsdp2_module module = {5};
  EXPECT_STATUS(fsdp2_module_from_pretrained(directory, NULL, &module), expected);
  EXPECT(module.id == 5);
}

static void a_directory_without_weights_is_told(void) {
  refused(broken_model("no-weights", 0, NULL, NULL), FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("no-weights");
  EXPECT_MESSAGE("safetensors");
}

static void truncated_weights_are_told(void) {
  refused(broken_model("cut-header", 100, NULL, NULL), FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("model.safetensors");
  refused(broken_model("cut-data", 100000, NULL, NULL), FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("model.safetensors");
}

static void an_unknown_model_type_is_told(void) {
  refused(broken_model("gpt5", 1 << 30, "\"llama\"", "\"gpt5\""), FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("gpt5");
  EXPECT_MESSAGE("llama");
}

static void a_config_that_is_no_json_is_told(void) {
  fsdp2_module module = {5};
  EXPECT_STATUS(fsdp2_module_from_config("{\"model_type\": ", NULL, &module),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_module_from_config("{\"model_type\": \"llama\"}", NULL, &module),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT(module.id == 5);
}

static void a_shape_that_disagrees_is_told_with_the_tensor(void) {
  refused(
      broken_model("shape", 1 << 30, "\"intermediate_size\": 176", "\"intermediate_size\": 180"),
      FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("mlp");
  EXPECT_MESSAGE("176");
  EXPECT_MESSAGE("180");
}

static void a_tensor_that_is_missing_is_told(void) {
  refused(broken_model("layers", 1 << 30, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
          FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("model.layers.2");
}

static void open_loader(const char* name, const void* data, size_t n, int64_t vocab_size,
                        fsdp2_status expected) {
  fsdp2_loader_options options = FSDP2_LOADER_OPTIONS_INIT;
  fsdp2_loader loader = {5};
  fsdp2_mesh mesh = lone_mesh();
  const char* path = temporary_path(name);
  if (data != NULL) {
    write_file(path, data, n);
  }
  options.sequence_length = 32;
  options.global_batch = 1;
  options.vocab_size = vocab_size;
  EXPECT_STATUS(fsdp2_loader_open(mesh, path, &options, &loader), expected);
  EXPECT(loader.id == 5);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void token_files_that_cannot_be_used_are_told(void) {
  static const unsigned char zeros[100] = {0};
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  open_loader("missing.bin", NULL, 0, 384, FSDP2_E_NOT_FOUND);
  fsdp2_error_last(&info);
  EXPECT(info.native_code == 2 /* ENOENT */);
  EXPECT_MESSAGE("missing.bin");
  open_loader("odd.bin", zeros, 99, 384, FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("99");
  open_loader("short.bin", zeros, 64, 384, FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("32");
  open_loader("vocabulary.bin", zeros, 100, 0, FSDP2_E_INVALID_ARGUMENT);
}

static void a_token_beyond_the_vocabulary_is_told_with_its_position(void) {
  fsdp2_loader_options options = FSDP2_LOADER_OPTIONS_INIT;
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_loader loader = {0};
  fsdp2_tensor tokens = {5}, labels = {6};
  unsigned char data[200] = {0};
  const char* path = temporary_path("beyond.bin");
  data[20] = 200;
  write_file(path, data, sizeof(data));
  options.sequence_length = 32;
  options.global_batch = 1;
  options.vocab_size = 100;
  EXPECT_OK(fsdp2_loader_open(mesh, path, &options, &loader));
  EXPECT_STATUS(fsdp2_loader_next(loader, &tokens, &labels), FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("200");
  EXPECT_MESSAGE("10");
  EXPECT(tokens.id == 5 && labels.id == 6);
  EXPECT_OK(fsdp2_loader_destroy(loader));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void a_step_over_a_wrong_token_fails_and_the_next_one_works(void) {
  struct job job = start_lone_job();
  const int64_t shape[2] = {1, 4};
  const int64_t bad[4] = {1, 2, 384, 3};
  fsdp2_tensor batch[2];
  fsdp2_step_result result;
  memset(&result, 0x55, sizeof(result));
  result.struct_size = (uint32_t)sizeof(result);
  batch[0] = batch[1] = int64_tensor(bad, shape, 2);
  EXPECT_STATUS(fsdp2_step_run(job.step, batch, 2, &result), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("384");
  EXPECT(result.applied == 0x55555555);
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  result = take_step(job.loader, job.step);
  EXPECT(result.step == 0);
  EXPECT_NEAR(result.loss, kGoldenLoss[0], 5e-6);
  end_lone_job(&job);
}

static void set(const char* name, const char* value) {
  EXPECT((value == NULL ? unsetenv(name) : setenv(name, value, 1)) == 0);
}

static void join_refused(const char* rank, const char* world_size, const char* port,
                         const char* part) {
  fsdp2_mesh mesh = {5};
  set("RANK", rank);
  set("WORLD_SIZE", world_size);
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", port);
  EXPECT_STATUS(fsdp2_mesh_create(NULL, &mesh), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE(part);
  EXPECT(mesh.id == 5);
  set("RANK", NULL);
  set("WORLD_SIZE", NULL);
  set("MASTER_ADDR", NULL);
  set("MASTER_PORT", NULL);
}

static void wrong_environment_variables_are_told(void) {
  join_refused("zero", "2", "29500", "RANK='zero'");
  join_refused("2", "2", "29500", "RANK=2");
  join_refused("0", "-2", "29500", "WORLD_SIZE='-2'");
  join_refused(NULL, "2", "29500", "RANK");
  join_refused("0", NULL, "29500", "WORLD_SIZE");
  join_refused("0", "2", "99999", "MASTER_PORT='99999'");
}

static void mesh_settings_that_contradict_are_told(void) {
  const int64_t shape[2] = {2, 2};
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {5};
  options.rank = 0;
  options.world_size = 1;
  options.n_dims = 2;
  options.shape = shape;
  EXPECT_STATUS(fsdp2_mesh_create(&options, &mesh), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("(2, 2)");
  options.n_dims = 0;
  options.shape = NULL;
  options.rendezvous = "ftp://host";
  EXPECT_STATUS(fsdp2_mesh_create(&options, &mesh), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("ftp");
  options.rendezvous = NULL;
  options.timeout_ms = 0;
  EXPECT_STATUS(fsdp2_mesh_create(&options, &mesh), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("timeout_ms");
  EXPECT(mesh.id == 5);
}

static void saving_where_nothing_can_be_written_is_told(void) {
  struct job job = start_lone_job();
  EXPECT_STATUS(fsdp2_checkpoint_save_full(job.shard, "/no/such/directory/model.safetensors"),
                FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("/no/such/directory");
  EXPECT_STATUS(fsdp2_checkpoint_load_full(job.shard, "/no/such/model.safetensors"),
                FSDP2_E_NOT_FOUND);
  EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[0], 5e-6);
  end_lone_job(&job);
}

int main(void) {
  RUN(a_directory_without_weights_is_told);
  RUN(truncated_weights_are_told);
  RUN(an_unknown_model_type_is_told);
  RUN(a_config_that_is_no_json_is_told);
  RUN(a_shape_that_disagrees_is_told_with_the_tensor);
  RUN(a_tensor_that_is_missing_is_told);
  RUN(token_files_that_cannot_be_used_are_told);
  RUN(a_token_beyond_the_vocabulary_is_told_with_its_position);
  RUN(a_step_over_a_wrong_token_fails_and_the_next_one_works);
  RUN(wrong_environment_variables_are_told);
  RUN(mesh_settings_that_contradict_are_told);
  RUN(saving_where_nothing_can_be_written_is_told);
  return harness_result();
}
