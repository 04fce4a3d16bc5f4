/* What a call costs: calls BATCHES. Prints for each call the ns of one in the fastest batch, of one
 * with the destruction of its result, and the latter's mean over all batches. */
#include <fsdp2/fsdp2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kCallsInABatch = 1000, kHeld = 50 }; /* results, before they are destroyed */

static const float kElements[] = {1, 2, 3, 4};
static const int64_t kShape[] = {4};
static fsdp2_tensor x;
static fsdp2_module same;

static void check(fsdp2_status status) {
  if (status != FSDP2_OK) {
    fprintf(stderr, "calls: %s\n", fsdp2_error_message());
    exit(1);
  }
}

static fsdp2_tensor create(void) {
  fsdp2_tensor tensor;
  check(fsdp2_tensor_from_buffer(kElements, sizeof kElements, FSDP2_DTYPE_F32, kShape, 1, &tensor));
  return tensor;
}

static fsdp2_tensor add(void) {
  const fsdp2_value inputs[] = {FSDP2_TENSOR(x), FSDP2_TENSOR(x)};
  const fsdp2_scope none = {0};
  fsdp2_value y;
  size_t n;
  check(fsdp2_op_call("aten::add.Tensor", inputs, 2, 0, none, &y, 1, &n));
  return y.tensor;
}

static fsdp2_status give_back(const fsdp2_forward_info* info, const fsdp2_tensor* inputs,
                              size_t n_inputs, fsdp2_tensor* outputs, size_t cap, size_t* n_outputs,
                              void* user_data) {
  (void)info, (void)n_inputs, (void)cap, (void)user_data;
  outputs[0] = inputs[0];
  *n_outputs = 1;
  return FSDP2_OK;
}

static fsdp2_tensor forward(void) {
  fsdp2_tensor y;
  size_t n;
  check(fsdp2_module_forward(same, &x, 1, 0, &y, 1, &n));
  return y;
}

/* As in any job, where memory and reference counts cost what they do among threads. */
static void* do_nothing(void* argument) { return argument; }

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void measure(const char* name, fsdp2_tensor (*call)(void), int batches) {
  double fastest = 1e30, fastest_of_both = 1e30, all = 0;
  fsdp2_tensor held[kHeld];
  int batch, done, i;
  for (batch = 0; batch < batches; ++batch) {
    double calls = 0, both = 0;
    for (done = 0; done < kCallsInABatch; done += kHeld) {
      const double start = now();
      double called;
      for (i = 0; i < kHeld; ++i) held[i] = call();
      called = now();
      for (i = 0; i < kHeld; ++i) check(fsdp2_tensor_destroy(held[i]));
      calls += (called - start) / kCallsInABatch;
      both += (now() - start) / kCallsInABatch;
    }
    all += both / batches;
    if (calls < fastest) fastest = calls;
    if (both < fastest_of_both) fastest_of_both = both;
  }
  printf("%s %.1f %.1f %.1f\n", name, fastest, fastest_of_both, all);
}

int main(int argc, char** argv) {
  const int batches = argc > 1 ? atoi(argv[1]) : 100;
  pthread_t other;
  if (pthread_create(&other, NULL, do_nothing, NULL) != 0) return 1;
  x = create();
  check(fsdp2_module_create_custom("Same", NULL, give_back, NULL, NULL, &same));
  measure("tensor", create, batches);
  measure("operator", add, batches);
  measure("forward", forward, batches);
  check(fsdp2_module_destroy(same));
  check(fsdp2_tensor_destroy(x));
  return pthread_join(other, NULL);
}
