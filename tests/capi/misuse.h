/* Calls with one thing wrong: what is checked of each of them, on one rank and on two that make the
 * same mistake. A file that includes this defines _POSIX_C_SOURCE. */
#ifndef TESTS_CAPI_MISUSE_H_
#define TESTS_CAPI_MISUSE_H_

#include <stddef.h>

#include "tests/capi/ranks.h"

/* Objects that are in order, for everything in a call that is not what is wrong. */
static _Thread_local struct job job;
static _Thread_local fsdp2_tensor tokens, labels;
static _Thread_local fsdp2_module loose_module; /* not sharded */
static _Thread_local fsdp2_state state;

/* Where calls write to: filled with a pattern before, and the same after a call that failed. */
enum { kOutputs = 6, kOutputBytes = 512 };
static _Thread_local union {
  double aligned;
  unsigned char bytes[kOutputBytes];
} outputs[kOutputs];
static _Thread_local unsigned char outputs_before[kOutputs][kOutputBytes];

static inline void* output(int index, uint32_t struct_size) {
  memset(outputs[index].bytes, 0xa5, kOutputBytes);
  if (struct_size > 0) {
    memcpy(outputs[index].bytes, &struct_size, sizeof(struct_size));
  }
  memcpy(outputs_before[index], outputs[index].bytes, kOutputBytes);
  return outputs[index].bytes;
}
#define OUT(type) ((type*)output(0, 0))
#define OUT2(type) ((type*)output(1, 0))
#define OUT3(type) ((type*)output(2, 0))
#define OUT_STRUCT(type) ((type*)output(0, (uint32_t)sizeof(type)))

/* The call gave `expected`, its name is in the record, it wrote nothing, and the mesh goes on. The
 * functions of error.h tell the record, and leave it as it is. */
static inline void expect_refusal(const char* function, const char* what, fsdp2_status found,
                                  fsdp2_status expected) {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  const int keeps_record = strncmp(function, "fsdp2_error_", strlen("fsdp2_error_")) == 0;
  int i;
  EXPECT_OK(fsdp2_error_last(&info));
  if (found != expected ||
      (!keeps_record && (info.status != expected || strcmp(info.function, function) != 0 ||
                         info.message[0] == '\0' || strchr(info.message, '\n') != NULL))) {
    ++harness_failures;
    fprintf(stderr, "%s with %s: expected %s, found %s, record: %s of %s: \"%s\"\n", function, what,
            fsdp2_status_name(expected), fsdp2_status_name(found), fsdp2_status_name(info.status),
            info.function, info.message);
  }
  for (i = 0; i < kOutputs; ++i) {
    if (memcmp(outputs[i].bytes, outputs_before[i], kOutputBytes) != 0) {
      ++harness_failures;
      fprintf(stderr, "%s with %s: output %d was touched\n", function, what, i);
      output(i, 0);
    }
  }
  if (!EXPECT_OK(fsdp2_mesh_barrier(job.mesh))) {
    fprintf(stderr, "  after %s with %s\n", function, what);
  }
}
#define EXPECT_REFUSAL(function, what, call, expected) \
  expect_refusal(#function, (what), (call), (expected))

static inline void start_misuse(fsdp2_mesh mesh) {
  const int64_t shape[2] = {1, 4}, values[4] = {1, 2, 3, 4};
  int i;
  for (i = 0; i < kOutputs; ++i) {
    output(i, 0);
  }
  job = start_job(mesh);
  loose_module = tiny_llama();
  tokens = int64_tensor(values, shape, 2);
  labels = int64_tensor(values, shape, 2);
  EXPECT_OK(fsdp2_state_create(job.mesh, &state));
}

static inline void end_misuse(void) {
  EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[0], 5e-6); /* nothing was harmed */
  EXPECT_OK(fsdp2_state_destroy(state));
  EXPECT_OK(fsdp2_tensor_destroy(tokens));
  EXPECT_OK(fsdp2_tensor_destroy(labels));
  EXPECT_OK(fsdp2_module_destroy(loose_module));
  end_job(&job);
}

/* `body` begins with start_misuse and ends with end_misuse. */
static inline int run_misuse(rank_body body) {
  on_ranks("misuse-alone", 1, 0, body);
  EXPECT(fsdp2_live_handles() == 0);
  on_ranks("misuse-together", 2, 0, body);
  EXPECT(fsdp2_live_handles() == 0);
  return harness_result();
}

#endif /* TESTS_CAPI_MISUSE_H_ */
