/* Profiles through the C ABI: what is in a trace and in a table, and who may take one. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <unistd.h>

#include "tests/capi/tiny_model.h"

enum { kMostBytes = 1 << 22 };

/* The bytes of a file with a NUL behind them, to be freed. */
static char* text_of_file(const char* path) {
  char* text = calloc(kMostBytes, 1);
  FILE* file = fopen(path, "rb");
  if (EXPECT(text != NULL && file != NULL)) {
    EXPECT(fread(text, 1, kMostBytes - 1, file) > 0);
    fclose(file);
  }
  return text;
}

static void one_forward(fsdp2_module module) {
  const int64_t shape[2] = {1, 4}, values[4] = {1, 2, 3, 4};
  fsdp2_tensor inputs[1] = {int64_tensor(values, shape, 2)}, logits = {0};
  size_t n = 0;
  EXPECT_OK(fsdp2_module_forward(module, inputs, 1, 0, &logits, 1, &n));
  EXPECT_OK(fsdp2_tensor_destroy(logits));
  EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
}

/* Before any other test. */
static void there_is_no_table_before_the_first_profile(void) {
  size_t needed = 0;
  EXPECT_STATUS(fsdp2_profile_describe(NULL, 0, &needed), FSDP2_E_NOT_FOUND);
}

static void phases_of_units_are_ranges_with_pytorchs_names(void) {
  char path[] = "/tmp/traceXXXXXX", table[1 << 15];
  const int file = mkstemp(path);
  fsdp2_module module = tiny_model();
  fsdp2_mesh mesh = {0};
  fsdp2_shard shard = {0};
  size_t needed = 0;
  char* trace;
  EXPECT_OK(fsdp2_mesh_create(NULL, &mesh));
  EXPECT_OK(fsdp2_shard_create(module, mesh, NULL, &shard));
  one_forward(module);
  EXPECT_OK(fsdp2_profile_start());
  one_forward(module);
  EXPECT_OK(fsdp2_profile_stop(path));
  one_forward(module);
  trace = text_of_file(path);
  EXPECT(strstr(trace, "\"traceEvents\"") != NULL);
  EXPECT(strstr(trace, "\"FSDP::root_pre_forward\"") != NULL);
  EXPECT(strstr(trace, "\"FSDP::pre_forward (") != NULL);
  EXPECT(strstr(trace, "\"FSDP::all_gather (") != NULL);
  EXPECT(strstr(trace, "\"aten::embedding\"") != NULL);
  EXPECT_OK(fsdp2_profile_describe(table, sizeof(table), &needed));
  EXPECT(strncmp(table, "name ", 5) == 0 && strstr(table, "\naten::embedding ") != NULL);
  free(trace);
  close(file);
  unlink(path);
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void* stop_it(void* unused) {
  (void)unused;
  EXPECT_STATUS(fsdp2_profile_stop(NULL), FSDP2_E_WRONG_STATE);
  EXPECT_STATUS(fsdp2_profile_start(), FSDP2_E_WRONG_STATE);
  return NULL;
}

static void a_process_takes_one_profile_at_a_time(void) {
  pthread_t other;
  EXPECT_STATUS(fsdp2_profile_stop(NULL), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("no profiler to stop");
  EXPECT_OK(fsdp2_profile_start());
  EXPECT_STATUS(fsdp2_profile_start(), FSDP2_E_WRONG_STATE);
  EXPECT(pthread_create(&other, NULL, stop_it, NULL) == 0 && pthread_join(other, NULL) == 0);
  EXPECT_OK(fsdp2_profile_stop(NULL));
  EXPECT_OK(fsdp2_profile_start());
  EXPECT_OK(fsdp2_profile_stop(NULL));
}

static void a_file_that_cannot_be_written_ends_the_profile_all_the_same(void) {
  EXPECT_OK(fsdp2_profile_start());
  EXPECT_STATUS(fsdp2_profile_stop("/no/such/folder/trace.json"), FSDP2_E_IO);
  EXPECT_MESSAGE("/no/such/folder/trace.json: cannot be written: No such file");
  EXPECT_OK(fsdp2_profile_start());
  EXPECT_STATUS(fsdp2_profile_stop(""), FSDP2_E_INVALID_ARGUMENT); /* nothing has been stopped */
  EXPECT_OK(fsdp2_profile_stop(NULL));
}

/* What LibTorch restores behind a callback would have a profile that was stopped inside run on. */
static fsdp2_status try_both_inside(const fsdp2_all_reduce_info* unit, fsdp2_tensor gradients,
                                    void* user_data) {
  (void)unit, (void)gradients;
  ++*(int*)user_data;
  EXPECT_STATUS(fsdp2_profile_start(), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("a callback neither starts nor stops a profile");
  EXPECT_STATUS(fsdp2_profile_stop(NULL), FSDP2_E_WRONG_STATE);
  EXPECT_MESSAGE("a callback neither starts nor stops a profile");
  return FSDP2_OK;
}

static void a_callback_neither_starts_nor_stops_a_profile(void) {
  fsdp2_module module = tiny_model();
  fsdp2_mesh mesh = {0};
  fsdp2_shard shard = {0};
  int calls = 0;
  EXPECT_OK(fsdp2_mesh_create(NULL, &mesh));
  EXPECT_OK(fsdp2_shard_create(module, mesh, NULL, &shard));
  EXPECT_OK(fsdp2_shard_set_all_reduce_hook(shard, NULL, try_both_inside, &calls, NULL));
  tiny_backward(module);
  EXPECT_OK(fsdp2_profile_start());
  tiny_backward(module);
  EXPECT_OK(fsdp2_profile_stop(NULL)); /* it still ran */
  EXPECT(calls >= 2);
  EXPECT_OK(fsdp2_profile_start()); /* and has ended */
  EXPECT_OK(fsdp2_profile_stop(NULL));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void* start_it(void* unused) {
  (void)unused;
  EXPECT_OK(fsdp2_profile_start());
  return NULL;
}

static void a_thread_that_ends_leaves_no_profile(void) {
  pthread_t other;
  EXPECT(pthread_create(&other, NULL, start_it, NULL) == 0 && pthread_join(other, NULL) == 0);
  EXPECT_STATUS(fsdp2_profile_stop(NULL), FSDP2_E_WRONG_STATE);
  EXPECT_OK(fsdp2_profile_start());
  EXPECT_OK(fsdp2_profile_stop(NULL));
}

int main(void) {
  RUN(there_is_no_table_before_the_first_profile);
  RUN(phases_of_units_are_ranges_with_pytorchs_names);
  RUN(a_process_takes_one_profile_at_a_time);
  RUN(a_file_that_cannot_be_written_ends_the_profile_all_the_same);
  RUN(a_callback_neither_starts_nor_stops_a_profile);
  RUN(a_thread_that_ends_leaves_no_profile);
  EXPECT_OK(fsdp2_profile_start()); /* the process may end while a profile is taken */
  return harness_result();
}
