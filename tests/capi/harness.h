/* A small harness for tests of the C ABI in C: checks that go on after a failure, and the objects
 * that most tests begin with. */
#ifndef TESTS_CAPI_HARNESS_H_
#define TESTS_CAPI_HARNESS_H_

#include <fsdp2/fsdp2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TINY_LLAMA "tests/parity/golden/models/tiny-llama"
#define TINY_LLAMA_TOKENS "tests/parity/golden/tokens/tiny-llama.bin"

/* Losses of tiny-llama.json, run fp32: global batch 8, sequence 32, AdamW as in golden_adamw. */
static const double kGoldenLoss[3] = {6.206598281860352, 5.721163272857666, 5.662178039550781};

static _Atomic int harness_failures;

static inline int harness_check(const char* file, int line, const char* what, int good) {
  if (!good) {
    ++harness_failures;
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
  }
  return good;
}

static inline int harness_status(const char* file, int line, const char* what, fsdp2_status found,
                                 fsdp2_status expected) {
  if (found != expected) {
    ++harness_failures;
    fprintf(stderr, "%s:%d: %s\n  expected %s, found %s: %s\n", file, line, what,
            fsdp2_status_name(expected), fsdp2_status_name(found), fsdp2_error_message());
  }
  return found == expected;
}

static inline int harness_message(const char* file, int line, const char* part) {
  const char* message = fsdp2_error_message();
  const int good = strstr(message, part) != NULL && strchr(message, '\n') == NULL;
  if (!good) {
    ++harness_failures;
    fprintf(stderr, "%s:%d: expected one line with \"%s\", found \"%s\"\n", file, line, part,
            message);
  }
  return good;
}

static inline int harness_near(const char* file, int line, double found, double expected,
                               double tolerance) {
  const double difference = found > expected ? found - expected : expected - found;
  const int good = difference <= tolerance * (expected < 0 ? -expected : expected);
  if (!good) {
    ++harness_failures;
    fprintf(stderr, "%s:%d: expected %.9g within %g of itself, found %.9g\n", file, line, expected,
            tolerance, found);
  }
  return good;
}

#define EXPECT(condition) harness_check(__FILE__, __LINE__, #condition, (condition))
#define EXPECT_STATUS(call, expected) harness_status(__FILE__, __LINE__, #call, (call), (expected))
#define EXPECT_OK(call) EXPECT_STATUS(call, FSDP2_OK)
#define EXPECT_MESSAGE(part) harness_message(__FILE__, __LINE__, (part))
#define EXPECT_NEAR(found, expected, tolerance) \
  harness_near(__FILE__, __LINE__, (found), (expected), (tolerance))

/* Runs one test, which leaves no handle behind. */
#define RUN(test) harness_run(#test, test)

static inline void harness_run(const char* name, void (*test)(void)) {
  fprintf(stderr, "[ run ] %s\n", name);
  test();
  EXPECT(fsdp2_live_handles() == 0);
}

static inline int harness_result(void) {
  fprintf(stderr, "%d failures\n", harness_failures);
  return harness_failures != 0;
}

/* ---- objects */

/* Where the meshes of tests have their tensors: "cpu", or what FSDP2_TEST_DEVICE says. */
static inline const char* test_device(void) { return getenv("FSDP2_TEST_DEVICE"); }

/* A world of one rank, whatever a launcher's environment says. */
static inline fsdp2_mesh lone_mesh(void) {
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  options.rendezvous = "thread://lone";
  options.rank = 0;
  options.world_size = 1;
  options.device_type = test_device();
  EXPECT_OK(fsdp2_mesh_create(&options, &mesh));
  return mesh;
}

static inline fsdp2_module tiny_llama(void) {
  fsdp2_module module = {0};
  EXPECT_OK(fsdp2_module_from_pretrained(TINY_LLAMA, NULL, &module));
  return module;
}

static inline fsdp2_shard shard_of(fsdp2_module module, fsdp2_mesh mesh) {
  fsdp2_shard shard = {0};
  EXPECT_OK(fsdp2_shard_create(module, mesh, NULL, &shard));
  return shard;
}

static inline fsdp2_optimizer golden_adamw(fsdp2_shard shard) {
  fsdp2_adamw_options options = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_optimizer optimizer = {0};
  options.lr = 3e-3;
  options.beta2 = 0.95;
  options.weight_decay = 0.1;
  EXPECT_OK(fsdp2_optimizer_create_adamw(shard, &options, &optimizer));
  return optimizer;
}

static inline fsdp2_loader golden_loader(fsdp2_mesh mesh) {
  fsdp2_loader_options options = FSDP2_LOADER_OPTIONS_INIT;
  fsdp2_loader loader = {0};
  options.sequence_length = 32;
  options.global_batch = 8;
  options.vocab_size = 384;
  EXPECT_OK(fsdp2_loader_open(mesh, TINY_LLAMA_TOKENS, &options, &loader));
  return loader;
}

/* A mesh of one rank with tiny-llama sharded over it, an optimizer, a loader and a step. */
struct job {
  fsdp2_mesh mesh;
  fsdp2_module module;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_loader loader;
  fsdp2_step step;
};

/* On a mesh of the caller's. */
static inline struct job start_job(fsdp2_mesh mesh) {
  struct job job;
  memset(&job, 0, sizeof(job));
  job.mesh = mesh;
  job.module = tiny_llama();
  job.shard = shard_of(job.module, job.mesh);
  job.optimizer = golden_adamw(job.shard);
  job.loader = golden_loader(job.mesh);
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, NULL, &job.step));
  return job;
}

static inline struct job start_lone_job(void) { return start_job(lone_mesh()); }

/* Leaves the mesh. */
static inline void end_job(struct job* job) {
  EXPECT_OK(fsdp2_step_destroy(job->step));
  EXPECT_OK(fsdp2_loader_destroy(job->loader));
  EXPECT_OK(fsdp2_optimizer_destroy(job->optimizer));
  EXPECT_OK(fsdp2_shard_destroy(job->shard));
  EXPECT_OK(fsdp2_module_destroy(job->module));
}

static inline void end_lone_job(struct job* job) {
  end_job(job);
  EXPECT_OK(fsdp2_mesh_destroy(job->mesh));
}

/* The next batch of the loader through one step. */
static inline fsdp2_step_result take_step(fsdp2_loader loader, fsdp2_step step) {
  fsdp2_step_result result;
  fsdp2_tensor batch[2] = {{0}, {0}};
  memset(&result, 0, sizeof(result));
  result.struct_size = (uint32_t)sizeof(result);
  EXPECT_OK(fsdp2_loader_next(loader, &batch[0], &batch[1]));
  EXPECT_OK(fsdp2_step_run(step, batch, 2, &result));
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  return result;
}

static inline fsdp2_tensor int64_tensor(const int64_t* values, const int64_t* shape,
                                        size_t n_dims) {
  fsdp2_tensor tensor = {0};
  size_t bytes = sizeof(int64_t);
  size_t i;
  for (i = 0; i < n_dims; ++i) {
    bytes *= (size_t)shape[i];
  }
  EXPECT_OK(fsdp2_tensor_from_buffer(values, bytes, FSDP2_DTYPE_I64, shape, n_dims, &tensor));
  return tensor;
}

/* The tensor where the meshes have theirs; the one that is given is destroyed. */
static inline fsdp2_tensor on_test_device(fsdp2_tensor tensor) {
  const char* device = test_device() == NULL ? "cpu" : test_device();
  fsdp2_tensor_info info;
  fsdp2_value out = FSDP2_NONE;
  size_t n = 0;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(tensor, &info));
  {
    const fsdp2_value to[3] = {FSDP2_TENSOR(tensor), FSDP2_STRING(device), FSDP2_DTYPE(info.dtype)};
    EXPECT_OK(fsdp2_op_call("aten::to.device", to, 3, 0, (fsdp2_scope){0}, &out, 1, &n));
  }
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  return out.tensor;
}

/* A mesh on GPUs must come before the first backward of a process: to be called where a test would
 * run one on the host before. */
static inline void use_test_device(void) {
  if (test_device() != NULL) {
    EXPECT_OK(fsdp2_mesh_destroy(lone_mesh()));
  }
}

/* "TEST_TMPDIR/name"; the text lives until the fourth call after. */
static inline const char* temporary_path(const char* name) {
  static _Thread_local char paths[4][1024];
  static _Thread_local int next;
  const char* directory = getenv("TEST_TMPDIR");
  char* path = paths[next++ % 4];
  snprintf(path, sizeof(paths[0]), "%s/%s", directory == NULL ? "/tmp" : directory, name);
  return path;
}

static inline void write_file(const char* path, const void* data, size_t n) {
  FILE* file = fopen(path, "wb");
  if (EXPECT(file != NULL)) {
    EXPECT(fwrite(data, 1, n, file) == n);
    EXPECT(fclose(file) == 0);
  }
}

/* The file's bytes and a NUL; the caller frees them. */
static inline char* read_file(const char* path, size_t* n) {
  FILE* file = fopen(path, "rb");
  char* data = NULL;
  *n = 0;
  if (EXPECT(file != NULL)) {
    EXPECT(fseek(file, 0, SEEK_END) == 0);
    *n = (size_t)ftell(file);
    rewind(file);
    data = (char*)calloc(*n + 1, 1);
    EXPECT(data != NULL && fread(data, 1, *n, file) == *n);
    fclose(file);
  }
  return data;
}

#endif /* TESTS_CAPI_HARNESS_H_ */
