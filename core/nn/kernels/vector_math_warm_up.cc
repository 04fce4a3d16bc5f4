// MKL chooses the kernel of each of its vector functions (exp, sin, ...) at that function's first
// call, and does so without a lock: when two threads make the first call at once, one of them can
// get the kernel of low accuracy (relative errors of 1e-5 in fp32) for that call. So the first
// calls are made here, by the one thread that loads the library.

#include <ATen/ops/cos.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>

namespace fsdp2::nn {

namespace {

bool call_each_function() {
  const c10::NoGradGuard no_grad;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor one = at::full({1}, 1.0, at::device(at::kCPU).dtype(dtype));
    at::cos(one);
    at::exp(one);
    at::log(one);
    at::sin(one);
    at::sqrt(one);
    at::tanh(one);
  }
  return true;
}

[[maybe_unused]] const bool kCalled = call_each_function();

}  // namespace

}  // namespace fsdp2::nn
