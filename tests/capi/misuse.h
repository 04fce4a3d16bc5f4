/* Calls with one thing wrong: what is checked of each of them. */
#ifndef TESTS_CAPI_MISUSE_H_
#define TESTS_CAPI_MISUSE_H_

#include <stddef.h>

#include "tests/capi/harness.h"

/* Objects that are in order, for everything in a call that is not what is wrong. */
static struct job job;
static fsdp2_tensor tokens, labels;
static fsdp2_module loose_module; /* not sharded */
static fsdp2_state state;

/* Where calls write to: filled with a pattern before, and the same after a call that failed. */
enum { kOutputs = 3, kOutputBytes = 512 };
static union {
  double aligned;
  unsigned char bytes[kOutputBytes];
} outputs[kOutputs];
static unsigned char outputs_before[kOutputs][kOutputBytes];

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

/* The call gave `expected`, its name is in the record, and it wrote nothing. */
static inline void expect_refusal(const char* function, const char* what, fsdp2_status found,
                                  fsdp2_status expected) {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  int i;
  fsdp2_error_last(&info);
  if (found != expected || info.status != expected || strcmp(info.function, function) != 0 ||
      info.message[0] == '\0' || strchr(info.message, '\n') != NULL) {
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
}
#define EXPECT_REFUSAL(function, what, call, expected) \
  expect_refusal(#function, (what), (call), (expected))

static inline void start_misuse(void) {
  const int64_t shape[2] = {1, 4}, values[4] = {1, 2, 3, 4};
  int i;
  for (i = 0; i < kOutputs; ++i) {
    output(i, 0);
  }
  job = start_lone_job();
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
  end_lone_job(&job);
  EXPECT(fsdp2_live_handles() == 0);
}

#endif /* TESTS_CAPI_MISUSE_H_ */
