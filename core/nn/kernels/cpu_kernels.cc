#include "core/nn/kernels/cpu_kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/base/error.h"
#include "core/nn/kernels/simd_rows.h"

namespace fsdp2::nn::cpu_kernels {

namespace {

constexpr int64_t kBlock = 1024;          // elements converted to fp32 at a time
constexpr int64_t kPadded = kBlock + 64;  // buffers 4 KiB apart would slow down each other's access
constexpr int64_t kGrain = 32768;         // elements that are worth a thread, as in ATen

// n elements as fp32: themselves, or converted into the buffer.
template <typename T>
const float* as_float(const T* from, float* buffer, int64_t n) {
  if constexpr (std::is_same_v<T, float>) {
    return from;
  } else {
    simd::widen(from, buffer, n);
    return buffer;
  }
}

// Where to write n fp32 elements that are meant for `to`; `store` brings them there.
template <typename T>
float* target(T* to, float* buffer) {
  if constexpr (std::is_same_v<T, float>) {
    return to;
  } else {
    return buffer;
  }
}

template <typename T>
void store([[maybe_unused]] const float* buffer, [[maybe_unused]] T* to,
           [[maybe_unused]] int64_t n) {
  if constexpr (!std::is_same_v<T, float>) {
    simd::narrow(buffer, to, n);
  }
}

int64_t grain_of_rows(int64_t row_numel) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, row_numel));
}

// Calls work with a zero of the dtype's C++ type.
template <typename Work>
void dispatch(at::ScalarType dtype, const Work& work) {
  switch (dtype) {
    case at::kFloat:
      return work(float());
    case at::kBFloat16:
      return work(c10::BFloat16());
    case at::kHalf:
      return work(c10::Half());
    default:
      fail(Code::kInternal, "no CPU kernel for {}", c10::toString(dtype));
  }
}

// Where the rows of n elements of several tensors are.
template <typename T>
std::vector<const T*> rows_of(at::TensorList parts, int64_t n) {
  std::vector<const T*> rows;
  for (const at::Tensor& part : parts) {
    for (int64_t row = 0; row < part.size(0); ++row) {
      rows.push_back(part.const_data_ptr<T>() + row * n);
    }
  }
  return rows;
}

// Calls work(offset, count) for blocks of a flat range.
template <typename Work>
void for_blocks(int64_t numel, const Work& work) {
  at::parallel_for(0, numel, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kBlock) {
      work(i, std::min(kBlock, end - i));
    }
  });
}

}  // namespace

bool supports(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return tensor.is_cpu() && (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf);
}

void rms_norm_forward(const at::Tensor& x, const at::Tensor& w, double eps, const at::Tensor& y,
                      const at::Tensor& rstd) {
  const int64_t n = w.numel();
  float* rstd_data = rstd.mutable_data_ptr<float>();
  dispatch(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T* x_data = x.const_data_ptr<T>();
    T* y_data = y.mutable_data_ptr<T>();
    std::vector<float> w_buffer(n);
    const float* w_row = as_float(w.const_data_ptr<T>(), w_buffer.data(), n);
    at::parallel_for(0, rstd.numel(), grain_of_rows(n), [&](int64_t begin, int64_t end) {
      std::vector<float> buffer(std::is_same_v<T, float> ? 0 : n);
      for (int64_t row = begin; row < end; ++row) {
        T* y_row = y_data + row * n;
        const float* in = as_float(x_data + row * n, buffer.data(), n);
        const double mean_square = simd::dot(in, in, n) / static_cast<double>(n);
        const auto factor = static_cast<float>(1.0 / std::sqrt(mean_square + eps));
        rstd_data[row] = factor;
        if constexpr (std::is_same_v<T, float>) {
          simd::scale_multiply(in, factor, w_row, y_row, n);
        } else {
          simd::scale(in, factor, buffer.data(), n);
          simd::narrow(buffer.data(), y_row,
                       n);  // rounded before the weight comes in, as transformers
          simd::widen(y_row, buffer.data(), n);
          simd::scale_multiply(buffer.data(), 1.0F, w_row, buffer.data(), n);
          simd::narrow(buffer.data(), y_row, n);
        }
      }
    });
  });
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                       const at::Tensor& rstd, const at::Tensor& dx, const at::Tensor& dw) {
  const int64_t n = w.numel();
  const float* rstd_data = rstd.const_data_ptr<float>();
  float* dw_data = dw.mutable_data_ptr<float>();
  std::vector<float> partial(static_cast<size_t>(at::get_num_threads() * n));  // dw by thread
  dispatch(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T* dy_data = dy.const_data_ptr<T>();
    const T* x_data = x.const_data_ptr<T>();
    T* dx_data = dx.defined() ? dx.mutable_data_ptr<T>() : nullptr;
    std::vector<float> w_buffer(n);
    const float* w_row = as_float(w.const_data_ptr<T>(), w_buffer.data(), n);
    at::parallel_for(0, rstd.numel(), grain_of_rows(n), [&](int64_t begin, int64_t end) {
      float* dw_row = partial.data() + at::get_thread_num() * n;
      std::vector<float> buffers(std::is_same_v<T, float> ? 0 : 3 * n);
      float* buffer = buffers.data();
      for (int64_t row = begin; row < end; ++row) {
        const float* dy_row = as_float(dy_data + row * n, buffer, n);
        const float* x_row = as_float(x_data + row * n, buffer + n, n);
        const float factor = rstd_data[row];
        const float sum = simd::rms_reduce(dy_row, x_row, w_row, factor, dw_row, n);
        if (dx_data != nullptr) {
          const float along_x = factor * factor * factor * sum / static_cast<float>(n);
          float* dx_row = target(dx_data + row * n, buffer + 2 * n);
          simd::rms_input_gradient(dy_row, x_row, w_row, factor, along_x, dx_row, n);
          store(dx_row, dx_data + row * n, n);
        }
      }
    });
  });
  std::copy_n(partial.begin(), n, dw_data);
  for (size_t i = static_cast<size_t>(n); i < partial.size(); ++i) {
    dw_data[i % static_cast<size_t>(n)] += partial[i];
  }
}

void silu_multiply_forward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& y) {
  dispatch(gate.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T* gate_data = gate.const_data_ptr<T>();
    const T* up_data = up.const_data_ptr<T>();
    T* y_data = y.mutable_data_ptr<T>();
    for_blocks(gate.numel(), [&](int64_t i, int64_t n) {
      float buffer[3][kPadded];
      float* out = target(y_data + i, buffer[2]);
      simd::silu_multiply(as_float(gate_data + i, buffer[0], n),
                          as_float(up_data + i, buffer[1], n), out, n);
      store(out, y_data + i, n);
    });
  });
}

void silu_multiply_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                            const at::Tensor& dgate, const at::Tensor& dup) {
  dispatch(gate.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T* dy_data = dy.const_data_ptr<T>();
    const T* gate_data = gate.const_data_ptr<T>();
    const T* up_data = up.const_data_ptr<T>();
    T* dgate_data = dgate.mutable_data_ptr<T>();
    T* dup_data = dup.mutable_data_ptr<T>();
    for_blocks(gate.numel(), [&](int64_t i, int64_t n) {
      float buffer[5][kPadded];
      float* dgate_out = target(dgate_data + i, buffer[3]);
      float* dup_out = target(dup_data + i, buffer[4]);
      simd::silu_multiply_gradients(as_float(dy_data + i, buffer[0], n),
                                    as_float(gate_data + i, buffer[1], n),
                                    as_float(up_data + i, buffer[2], n), dgate_out, dup_out, n);
      store(dgate_out, dgate_data + i, n);
      store(dup_out, dup_data + i, n);
    });
  });
}

void rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse,
            const at::Tensor& y) {
  const int64_t positions = x.size(1);
  const int64_t heads = x.size(2);
  const int64_t dim = x.size(3);
  const int64_t half = dim / 2;
  const float* cos_data = cos.const_data_ptr<float>();
  const float* sin_data = sin.const_data_ptr<float>();
  dispatch(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T* x_data = x.const_data_ptr<T>();
    T* y_data = y.mutable_data_ptr<T>();
    at::parallel_for(
        0, x.size(0) * positions, grain_of_rows(heads * dim), [&](int64_t begin, int64_t end) {
          std::vector<float> buffer(std::is_same_v<T, float> ? 0 : 2 * dim);
          for (int64_t row = begin * heads; row < end * heads; ++row) {
            const int64_t angle = row / heads % positions * half;
            float* out = target(y_data + row * dim, buffer.data() + dim);
            simd::rotate_head(as_float(x_data + row * dim, buffer.data(), dim), cos_data + angle,
                              sin_data + angle, inverse ? -1.0F : 1.0F, out, half);
            store(out, y_data + row * dim, dim);
          }
        });
  });
}

namespace {

// Read once, so that what is used is what was checked: callers share the memory of labels.
int64_t label_of_row(const int64_t* labels, int64_t row, int64_t vocab_size) {
  const int64_t label = __atomic_load_n(labels + row, __ATOMIC_RELAXED);
  FSDP2_CHECK(label >= 0 && label < vocab_size, Code::kInvalidArgument,
              "label {} in row {} is outside the vocabulary of {} (0 to {})", label, row,
              vocab_size, vocab_size - 1);
  return label;
}

// The loss of a row [n], which becomes its gradient if that is wanted. buffer [n], for other types
// than fp32.
template <typename T>
double row_cross_entropy(T* row, float* buffer, int64_t n, int64_t label, bool want_gradient,
                         double scale) {
  float* x = target(row, buffer);
  as_float(row, x, n);
  const float shift = simd::largest(x, n);
  const double picked = x[label];
  double sum = 0;  // of short partial sums: a long fp32 sum drifts
  for (int64_t i = 0; i < n; i += kBlock) {
    sum += simd::exp_and_sum(x + i, shift, std::min(kBlock, n - i));
  }
  if (want_gradient) {
    simd::scale(x, static_cast<float>(scale / sum), x, n);
    x[label] -= static_cast<float>(scale);
    store(x, row, n);
  }
  return std::log(sum) + shift - picked;
}

}  // namespace

void sum_rows(at::TensorList parts, const at::Tensor& places, const at::Tensor& factors,
              const at::Tensor& sums) {
  const int64_t n = sums.size(-1);
  const int64_t picks = places.size(1);
  const auto* place = places.const_data_ptr<int64_t>();
  const float* factor = factors.defined() ? factors.const_data_ptr<float>() : nullptr;
  dispatch(sums.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const std::vector<const T*> rows = rows_of<T>(parts, n);
    T* sums_data = sums.mutable_data_ptr<T>();
    at::parallel_for(0, places.size(0), grain_of_rows(n * picks), [&](int64_t begin, int64_t end) {
      std::vector<float> buffer(2 * n);
      for (int64_t token = begin; token < end; ++token) {
        float* sum = target(sums_data + token * n, buffer.data() + n);
        std::fill_n(sum, n, 0.0F);
        for (int64_t i = token * picks; i < (token + 1) * picks; ++i) {
          const float* row = as_float(rows[place[i]], buffer.data(), n);
          if (factor != nullptr) {
            simd::scale(row, factor[i], buffer.data(), n);
            row = buffer.data();
          }
          simd::add(row, sum, n);
        }
        store(sum, sums_data + token * n, n);
      }
    });
  });
}

void sum_rows_backward(const at::Tensor& dsums, at::TensorList parts, const at::Tensor& places,
                       const at::Tensor& factors, const at::Tensor& drows,
                       const at::Tensor& dfactors) {
  const int64_t n = dsums.size(-1);
  const int64_t picks = places.size(1);
  const auto* place = places.const_data_ptr<int64_t>();
  const auto* factor = factors.const_data_ptr<float>();
  auto* dfactor = dfactors.mutable_data_ptr<float>();
  dispatch(dsums.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const std::vector<const T*> rows = rows_of<T>(parts, n);
    const T* dsums_data = dsums.const_data_ptr<T>();
    T* drows_data = drows.mutable_data_ptr<T>();
    at::parallel_for(0, places.size(0), grain_of_rows(n * picks), [&](int64_t begin, int64_t end) {
      std::vector<float> buffer(std::is_same_v<T, float> ? 0 : 3 * n);
      for (int64_t token = begin; token < end; ++token) {
        const float* dsum = as_float(dsums_data + token * n, buffer.data(), n);
        for (int64_t i = token * picks; i < (token + 1) * picks; ++i) {
          const float* row = as_float(rows[place[i]], buffer.data() + n, n);
          dfactor[i] = simd::dot(row, dsum, n);
          T* drow = drows_data + place[i] * n;
          float* scaled = target(drow, buffer.data() + 2 * n);
          simd::scale(dsum, factor[i], scaled, n);
          store(scaled, drow, n);
        }
      }
    });
  });
}

double cross_entropy(const at::Tensor& logits, const at::Tensor& labels, bool want_gradient,
                     double scale, const at::Tensor& scale_of_row) {
  const int64_t n = logits.size(1);
  const int64_t* label_data = labels.const_data_ptr<int64_t>();
  const float* scales = scale_of_row.defined() ? scale_of_row.const_data_ptr<float>() : nullptr;
  std::vector<double> losses(static_cast<size_t>(logits.size(0)));
  dispatch(logits.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    T* data = logits.mutable_data_ptr<T>();
    at::parallel_for(0, logits.size(0), grain_of_rows(n), [&](int64_t begin, int64_t end) {
      std::vector<float> buffer(std::is_same_v<T, float> ? 0 : n);
      for (int64_t row = begin; row < end; ++row) {
        const double own_scale = scales != nullptr ? scales[row] : scale;
        if (scales != nullptr && own_scale == 0) {
          if (want_gradient) {
            std::fill_n(data + row * n, n, zero);
          }
          continue;
        }
        const int64_t label = label_of_row(label_data, row, n);
        losses[static_cast<size_t>(row)] =
            row_cross_entropy(data + row * n, buffer.data(), n, label, want_gradient, own_scale);
      }
    });
  });
  double total = 0;
  for (const double loss : losses) {
    total += loss;
  }
  return total;
}

namespace {

// fp32 sums of a few dozen squares in each of 16 lanes, added up in double: as exact as double
// throughout for this purpose (1e-7) and as fast as memory.
double square_sum_of(const float* values, int64_t count) {
  constexpr int64_t kLanes = 16;
  constexpr int64_t kBlock = kLanes * 64;
  double total = 0.0;
  int64_t i = 0;
  while (count - i >= kLanes) {
    std::array<float, kLanes> lanes{};
    const int64_t end = std::min(i + kBlock, count - (count - i) % kLanes);
    for (; i < end; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[static_cast<size_t>(lane)] += values[i + lane] * values[i + lane];
      }
    }
    for (const float lane : lanes) {
      total += lane;
    }
  }
  for (; i < count; ++i) {
    total += static_cast<double>(values[i]) * values[i];
  }
  return total;
}

}  // namespace

double square_sum(at::TensorList tensors) {
  double total = 0;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor values = tensor.to(at::kFloat);
    total += square_sum_of(values.const_data_ptr<float>(), values.numel());
  }
  return total;
}

}  // namespace fsdp2::nn::cpu_kernels
