#include "cli/bench/product_peak.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "cli/library.h"
#include "client/numbers.h"

namespace fsdp2::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLeastSeconds = 1.0;
constexpr int kLeastProducts = 3;

Tensor matrix(int64_t size) {
  std::vector<float> values(static_cast<size_t>(size * size));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 17) * 0.01F;
  }
  const int64_t shape[] = {size, size};
  Tensor tensor;
  check(fsdp2_tensor_from_buffer(values.data(), values.size() * sizeof(float), FSDP2_DTYPE_F32,
                                 shape, 2, tensor.out()));
  return tensor;
}

// The one result of an operator that has two inputs.
Tensor call(const char* name, fsdp2_value first, fsdp2_value second) {
  const std::array<fsdp2_value, 2> inputs = {first, second};
  fsdp2_value output = FSDP2_NONE;
  size_t n_outputs = 0;
  check(fsdp2_op_call(name, inputs.data(), inputs.size(), FSDP2_OP_NO_GRAD, fsdp2_scope{0}, &output,
                      1, &n_outputs));
  Tensor result;
  *result.out() = output.tensor;
  return result;
}

Tensor matrix_of(int64_t size, const std::string& dtype) {
  const Tensor wide = matrix(size);
  const fsdp2_value tensor = FSDP2_TENSOR(wide.get());
  const fsdp2_value to = FSDP2_DTYPE(client::dtype_number(dtype));
  return call("aten::to.dtype", tensor, to);
}

}  // namespace

ProductPeak measure_product_peak(int64_t size, const std::string& dtype, int64_t threads) {
  check(fsdp2_runtime_set_threads(static_cast<size_t>(threads)));
  const Tensor left = matrix_of(size, dtype);
  const Tensor right = matrix_of(size, dtype);
  const fsdp2_value a = FSDP2_TENSOR(left.get());
  const fsdp2_value b = FSDP2_TENSOR(right.get());
  call("aten::mm", a, b);  // packs, and starts threads
  double best = 0.0;
  const auto begin = Clock::now();
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  for (int i = 0; i < kLeastProducts || since(begin) < kLeastSeconds; ++i) {
    const auto start = Clock::now();
    call("aten::mm", a, b);
    const auto n = static_cast<double>(size);
    best = std::max(best, 2 * n * n * n / since(start));
  }
  return {size, dtype, threads, best * 1e-12};
}

}  // namespace fsdp2::cli
