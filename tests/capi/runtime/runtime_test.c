/* The process around the library: settings, log, forks, cancelled threads' records. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/capi/harness.h"

struct heard {
  int records;
  int32_t level, rank;
  char category[32], message[256];
  int released;
  fsdp2_status inner;
};

static void hear(const fsdp2_log_record* record, void* user_data) {
  struct heard* heard = (struct heard*)user_data;
  size_t needed = 0;
  ++heard->records;
  heard->level = record->level;
  heard->rank = record->rank;
  snprintf(heard->category, sizeof(heard->category), "%s", record->category);
  snprintf(heard->message, sizeof(heard->message), "%s", record->message);
  EXPECT(record->struct_size == sizeof(fsdp2_log_record) && record->time_ns > 0);
  heard->inner = fsdp2_runtime_describe(NULL, 0, &needed);
}

static void release(void* user_data) { ++((struct heard*)user_data)->released; }

static void log_records_reach_the_callback_until_it_is_replaced(void) {
  struct heard heard = {0};
  EXPECT_OK(fsdp2_log_set(FSDP2_LOG_INFO, hear, &heard, release));
  EXPECT_OK(fsdp2_mesh_destroy(lone_mesh()));
  EXPECT(heard.records == 1 && heard.level == FSDP2_LOG_INFO);
  EXPECT(strcmp(heard.category, "comm") == 0);
  EXPECT(strcmp(heard.message, "joined Mesh(fsdp=1) rank 0 at (0)") == 0);
  EXPECT(heard.inner == FSDP2_E_BUSY);
  EXPECT(heard.released == 0);
  EXPECT_OK(fsdp2_log_set(FSDP2_LOG_WARNING, NULL, NULL, NULL));
  EXPECT(heard.released == 1);
  EXPECT_OK(fsdp2_mesh_destroy(lone_mesh()));
  EXPECT(heard.records == 1);
}

/* The record of the last failing call, whatever log and release functions have tried since. */
static void release_with_a_failing_call(void* user_data) {
  EXPECT_STATUS(fsdp2_check_version(0), FSDP2_E_ABI_MISMATCH);
  release(user_data);
}

static void callbacks_leave_the_error_record_alone(void) {
  struct heard heard = {0};
  EXPECT_OK(fsdp2_log_set(FSDP2_LOG_INFO, hear, &heard, release_with_a_failing_call));
  EXPECT_STATUS(fsdp2_runtime_set_product_engine(77), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_OK(fsdp2_mesh_destroy(lone_mesh()));
  EXPECT(heard.records == 1 && heard.inner == FSDP2_E_BUSY);
  EXPECT_MESSAGE("found 77");
  EXPECT_OK(fsdp2_log_set(FSDP2_LOG_WARNING, NULL, NULL, NULL));
  EXPECT(heard.released == 1);
  EXPECT_MESSAGE("found 77");
}

static void a_log_callback_that_is_refused_is_not_released(void) {
  struct heard heard = {0};
  EXPECT_STATUS(fsdp2_log_set(15, hear, &heard, release), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_log_set(FSDP2_LOG_INFO, NULL, &heard, release), FSDP2_E_NULL_ARGUMENT);
  EXPECT(heard.released == 0);
}

static void the_runtime_describes_itself(void) {
  char text[1024];
  size_t needed = 0;
  EXPECT_OK(fsdp2_runtime_set_threads(1));
  EXPECT_OK(fsdp2_runtime_describe(text, sizeof(text), &needed));
  EXPECT(strstr(text, "version: 0.1\n") != NULL);
  EXPECT(strstr(text, "libtorch: " LIBTORCH_VERSION "\n") != NULL);
  EXPECT(strstr(text, "threads: 1\n") != NULL);
  EXPECT(strstr(text, "product_engine: ") != NULL);
  EXPECT(strstr(text, "matmul_precision: highest\n") != NULL);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they need address space */
/* In a process of its own, which has no address space for their stacks. */
static int refuses_threads(void) {
  const struct rlimit room = {640 << 20, 640 << 20};
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  if (setrlimit(RLIMIT_AS, &room) != 0 || fsdp2_runtime_set_threads(64) != FSDP2_E_OUT_OF_MEMORY) {
    return 1;
  }
  fsdp2_error_last(&info);
  return info.native_code == EAGAIN && strstr(info.message, "more threads") != NULL &&
                 fsdp2_runtime_set_threads(2) == FSDP2_OK
             ? 0
             : 2;
}

static void threads_that_cannot_be_had_are_an_error(void) {
  const pid_t child = fork();
  int status = -1;
  if (child == 0) {
    alarm(30); /* in place of a hang */
    _exit(refuses_threads());
  }
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif

static void more_threads_than_processors_are_refused(void) {
  const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  const size_t most = processors > 64 ? (size_t)processors : 64;
  EXPECT_STATUS(fsdp2_runtime_set_threads(most + 1), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_runtime_set_threads(4096), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_runtime_set_threads(SIZE_MAX), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("n: expected 1 to ");
}

static void the_product_engine_can_be_chosen(void) {
  EXPECT_OK(fsdp2_runtime_set_product_engine(FSDP2_PRODUCT_ENGINE_MKL));
  EXPECT_OK(fsdp2_runtime_set_product_engine(FSDP2_PRODUCT_ENGINE_AUTO));
  EXPECT_STATUS(fsdp2_runtime_set_product_engine(3), FSDP2_E_INVALID_ARGUMENT);
}

static void expect_description(const char* line) {
  static char text[4096];
  size_t needed = 0;
  EXPECT_OK(fsdp2_runtime_describe(text, sizeof text, &needed));
  EXPECT(strstr(text, line) != NULL);
}

static void the_matmul_precision_can_be_chosen(void) {
  EXPECT_OK(fsdp2_runtime_set_matmul_precision(FSDP2_MATMUL_HIGH_ALWAYS));
  expect_description("matmul_precision: high-always\n");
  EXPECT_OK(fsdp2_runtime_set_matmul_precision(FSDP2_MATMUL_MEDIUM_ALWAYS));
  expect_description("matmul_precision: medium-always\n");
  EXPECT_OK(fsdp2_runtime_set_matmul_precision(FSDP2_MATMUL_MEDIUM));
  expect_description("matmul_precision: medium (measured: fp32 ");
  EXPECT_OK(fsdp2_runtime_set_matmul_precision(FSDP2_MATMUL_HIGH));
  expect_description("matmul_precision: high (measured: fp32 ");
  EXPECT_STATUS(fsdp2_runtime_set_matmul_precision(5), FSDP2_E_INVALID_ARGUMENT);
  expect_description("matmul_precision: high (measured: fp32 "); /* as before */
  EXPECT_OK(fsdp2_runtime_set_matmul_precision(FSDP2_MATMUL_HIGHEST));
  expect_description("matmul_precision: highest\n");
}

static fsdp2_tensor large_tensor(void) {
  enum { kMiB = 1 << 20 };
  static const uint8_t zeros[kMiB];
  const int64_t shape[] = {kMiB};
  fsdp2_tensor tensor = {0};
  EXPECT_OK(fsdp2_tensor_from_buffer(zeros, sizeof zeros, FSDP2_DTYPE_U8, shape, 1, &tensor));
  return tensor;
}

static void memory_is_kept_until_it_is_asked_back(void) {
  fsdp2_tensor tensor;
  expect_description("kept_memory: off\n");
  EXPECT_OK(fsdp2_runtime_keep_memory(1));
  tensor = large_tensor();
  expect_description("kept_memory: 0 bytes, beside 1048576 in use\n");
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  expect_description("kept_memory: 1048576 bytes, beside 0 in use\n");
  EXPECT_OK(fsdp2_runtime_keep_memory(0));
  expect_description("kept_memory: off\n");
  EXPECT_OK(fsdp2_runtime_keep_memory(1));
  expect_description("kept_memory: 0 bytes, beside 0 in use\n");
  tensor = large_tensor();
  EXPECT_OK(fsdp2_runtime_keep_memory(0));
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  EXPECT_STATUS(fsdp2_runtime_keep_memory(2), FSDP2_E_INVALID_ARGUMENT);
}

static void* read_record(void* out) {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  fsdp2_error_last(&info);
  *(int*)out = info.status == FSDP2_OK && info.message[0] == '\0' && info.function[0] == '\0' &&
               info.detail[0] == '\0';
  return NULL;
}

static void a_thread_without_failures_has_an_empty_record(void) {
  pthread_t thread;
  int empty = 0;
  EXPECT_STATUS(fsdp2_check_version(0xffffffffu), FSDP2_E_ABI_MISMATCH);
  EXPECT(pthread_create(&thread, NULL, read_record, &empty) == 0);
  EXPECT(pthread_join(thread, NULL) == 0);
  EXPECT(empty);
}

static void a_fork_answers_every_call_with_wrong_state(void) {
  fsdp2_mesh mesh = lone_mesh();
  const pid_t child = fork();
  int status = -1;
  if (child == 0) {
    size_t needed = 0;
    int good = fsdp2_mesh_describe(mesh, NULL, 0, &needed) == FSDP2_E_WRONG_STATE &&
               fsdp2_check_version(FSDP2_HEADER_VERSION) == FSDP2_E_WRONG_STATE &&
               fsdp2_mesh_destroy(mesh) == FSDP2_E_WRONG_STATE &&
               strstr(fsdp2_error_message(), "fork") != NULL &&
               fsdp2_version() == FSDP2_HEADER_VERSION;
    _exit(good ? 0 : 1);
  }
  EXPECT(waitpid(child, &status, 0) == child);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

int main(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  RUN(threads_that_cannot_be_had_are_an_error); /* first: it forks before the library is used */
#endif
  RUN(log_records_reach_the_callback_until_it_is_replaced);
  RUN(callbacks_leave_the_error_record_alone);
  RUN(more_threads_than_processors_are_refused);
  RUN(a_log_callback_that_is_refused_is_not_released);
  RUN(the_runtime_describes_itself);
  RUN(the_product_engine_can_be_chosen);
  RUN(the_matmul_precision_can_be_chosen);
  RUN(memory_is_kept_until_it_is_asked_back);
  RUN(a_thread_without_failures_has_an_empty_record);
  RUN(a_fork_answers_every_call_with_wrong_state);
  return harness_result();
}
