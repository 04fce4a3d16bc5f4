#include "core/cuda/kernels/cuda_kernels.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "core/cuda/kernels/column_sum.h"
#include "core/cuda/kernels/copy_rows.h"
#include "core/cuda/kernels/cross_entropy.h"
#include "core/cuda/kernels/elements.h"
#include "core/cuda/kernels/layer_norm.h"
#include "core/cuda/kernels/norm_teams.h"
#include "core/cuda/kernels/rms_norm.h"
#include "core/cuda/kernels/rotary.h"
#include "core/cuda/kernels/silu_multiply.h"
#include "core/cuda/kernels/square_sum.h"
#include "core/cuda/kernels/total.h"

namespace fsdp2::cuda {

namespace {

template <typename T>
const T* in(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <typename T>
T* out(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

template <typename T>
const T* in_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? in<T>(tensor) : nullptr;
}

template <typename T>
T* out_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? out<T>(tensor) : nullptr;
}

template <typename T>
Residual<T> residual_of(const nn::Residual& residual) {
  return {in_or_null<T>(residual.addend), out_or_null<T>(residual.sum)};
}

// Calls work(zero, dtype) for each type of elements.
template <typename Work>
void for_each_type(const Work& work) {
  work(float(), at::kFloat);
  work(__nv_bfloat16(), at::kBFloat16);
  work(__half(), at::kHalf);
}

// Calls launch(zero, stream) with a zero of the tensor's type of elements, and the current stream
// of its device.
template <typename Launch>
void launch_for(const at::Tensor& tensor, const Launch& launch) {
  const c10::cuda::CUDAGuard guard(tensor.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  bool launched = false;
  for_each_type([&](auto zero, at::ScalarType dtype) {
    if (dtype == tensor.scalar_type()) {
      launch(zero, stream);
      launched = true;
    }
  });
  TORCH_CHECK(launched, "no CUDA kernel for ", tensor.scalar_type());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// The squares of the tensors of type T, one sum a chunk; returns the end of the sums.
template <typename T>
double* launch_square_sums_of(at::TensorList tensors, at::ScalarType dtype, double* sums,
                              cudaStream_t stream) {
  TensorChunks<T> batch;
  const auto launch = [&] {
    launch_square_sums(batch, sums, stream);
    sums += batch.table.chunks();
    batch = {};
  };
  for (const at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() != dtype) {
      continue;
    }
    if (batch.table.full()) {
      launch();
    }
    batch.add(in<T>(tensor), tensor.numel());
  }
  launch();
  return sums;
}

template <typename From, typename To>
RowCopy<From, To> row_copy(const at::Tensor& from, const at::Tensor& to) {
  const bool is_row = from.dim() == 1;
  return {in<From>(from),
          out<To>(to),
          is_row ? 1 : from.size(0),
          from.size(-1),
          is_row ? 0 : from.stride(0),
          is_row ? 0 : to.stride(0)};
}

// Calls work(from_zero, to_zero) for the types of the two tensors.
template <typename Work>
void for_types_of(const at::Tensor& from, const at::Tensor& to, const Work& work) {
  for_each_type([&](auto from_zero, at::ScalarType from_dtype) {
    for_each_type([&](auto to_zero, at::ScalarType to_dtype) {
      if (from.scalar_type() == from_dtype && to.scalar_type() == to_dtype) {
        work(from_zero, to_zero);
      }
    });
  });
}

// Those of the copies that are from and to these types.
template <typename From, typename To>
void launch_copies_of(at::TensorList from, at::ScalarType from_dtype, at::TensorList to,
                      at::ScalarType to_dtype, cudaStream_t stream) {
  RowCopies<From, To> batch;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].scalar_type() != from_dtype || to[i].scalar_type() != to_dtype) {
      continue;
    }
    if (batch.table.full()) {
      launch_copy_rows(batch, stream);
      batch = {};
    }
    batch.add(row_copy<From, To>(from[i], to[i]));
  }
  launch_copy_rows(batch, stream);
}

class CudaKernels final : public nn::DeviceKernels {
 public:
  void rms_norm_forward(const at::Tensor& x, const nn::Residual& residual, const at::Tensor& w,
                        double eps, const at::Tensor& y, const at::Tensor& rstd) const override {
    launch_for(x, [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      launch_rms_norm(in<T>(x), residual_of<T>(residual), in<T>(w), static_cast<float>(eps),
                      out<T>(y), out<float>(rstd), rstd.numel(), w.numel(), stream);
    });
  }

  void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                         const at::Tensor& rstd, const at::Tensor& dx_besides, const at::Tensor& dx,
                         const at::Tensor& dw) const override {
    const int64_t rows = rstd.numel();
    const int64_t n = w.numel();
    const at::Tensor dw_parts =
        at::empty({rms_norm_parts(rows, n), n}, x.options().dtype(at::kFloat));
    launch_for(x, [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      launch_rms_norm_gradients(in<T>(dy), in<T>(x), in<T>(w), in<float>(rstd),
                                in_or_null<T>(dx_besides), out_or_null<T>(dx), out<T>(dw),
                                out<float>(dw_parts), rows, n, stream);
    });
  }

  void layer_norm_forward(const at::Tensor& x, const nn::Residual& residual, const at::Tensor& w,
                          const at::Tensor& b, double eps, const at::Tensor& y,
                          const at::Tensor& mean, const at::Tensor& rstd) const override {
    launch_for(x, [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      launch_layer_norm(in<T>(x), residual_of<T>(residual), in<T>(w), in<T>(b),
                        static_cast<float>(eps), out<T>(y), out<float>(mean), out<float>(rstd),
                        rstd.numel(), w.numel(), stream);
    });
  }

  void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& mean, const at::Tensor& rstd,
                           const at::Tensor& dx_besides, const at::Tensor& dx, const at::Tensor& dw,
                           const at::Tensor& db) const override {
    const int64_t rows = rstd.numel();
    const int64_t n = w.numel();
    const at::Tensor parts =
        at::empty({layer_norm_parts(rows, n), 2, n}, x.options().dtype(at::kFloat));
    launch_for(x, [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      launch_layer_norm_gradients(in<T>(dy), in<T>(x), in<T>(w), in<float>(mean), in<float>(rstd),
                                  in_or_null<T>(dx_besides), out_or_null<T>(dx), out<T>(dw),
                                  out<T>(db), out<float>(parts), rows, n, stream);
    });
  }

  void column_sums(const at::Tensor& x, const at::Tensor& sums) const override {
    const int64_t rows = x.size(0);
    const int64_t n = x.size(1);
    const at::Tensor parts =
        at::empty({column_sum_parts(rows, n), n}, x.options().dtype(at::kFloat));
    launch_for(x, [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      launch_column_sum(in<T>(x), out<float>(parts), out<T>(sums), rows, n, stream);
    });
  }

  void silu_multiply_forward(const at::Tensor& gate, const at::Tensor& up,
                             const at::Tensor& y) const override {
    launch_for(gate, [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      launch_silu_multiply(in<T>(gate), in<T>(up), out<T>(y), gate.numel(), stream);
    });
  }

  void silu_multiply_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                              const at::Tensor& dgate, const at::Tensor& dup) const override {
    launch_for(gate, [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      launch_silu_multiply_gradients(in<T>(dy), in<T>(gate), in<T>(up), out<T>(dgate), out<T>(dup),
                                     gate.numel(), stream);
    });
  }

  void rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse,
              const at::Tensor& y) const override {
    const HeadShape shape{x.size(1), static_cast<int>(x.size(2)), static_cast<int>(x.size(3) / 2)};
    const int64_t tokens = x.size(0) * x.size(1);
    launch_for(x, [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      if (cos.scalar_type() == at::kFloat) {
        launch_rotate(in<T>(x), in<float>(cos), in<float>(sin), inverse, out<T>(y), tokens, shape,
                      stream);
      } else {
        launch_rotate(in<T>(x), in<T>(cos), in<T>(sin), inverse, out<T>(y), tokens, shape, stream);
      }
    });
  }

  at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, bool want_gradient,
                           double scale, const at::Tensor& scale_of_row) const override {
    const at::TensorOptions fp64_options = logits.options().dtype(at::kDouble);
    const at::Tensor losses = at::empty({logits.size(0)}, fp64_options);
    at::Tensor loss = at::empty({}, fp64_options);
    launch_for(logits, [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      launch_cross_entropy(
          out<T>(logits), in<int64_t>(labels), want_gradient, static_cast<float>(scale),
          scale_of_row.defined() ? in<float>(scale_of_row) : nullptr, out<double>(losses),
          out<double>(loss), logits.size(0), logits.size(1), stream);
    });
    return loss;
  }

  at::Tensor square_sum(at::TensorList tensors) const override {
    const at::Device device = tensors.front().device();
    const at::TensorOptions fp64_options = at::device(device).dtype(at::kDouble);
    int64_t chunks = 0;
    for (const at::Tensor& tensor : tensors) {
      chunks += chunks_of(tensor.numel());
    }
    const at::Tensor sums = at::empty({chunks}, fp64_options);
    at::Tensor total = at::empty({}, fp64_options);
    const c10::cuda::CUDAGuard guard(device);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    double* end = out<double>(sums);
    for_each_type([&](auto zero, at::ScalarType dtype) {
      end = launch_square_sums_of<decltype(zero)>(tensors, dtype, end, stream);
    });
    launch_total(in<double>(sums), chunks, out<double>(total), stream);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return total;
  }

  void copy_each(at::TensorList from, at::TensorList to) const override {
    if (from.empty()) {
      return;
    }
    const c10::cuda::CUDAGuard guard(from.front().device());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    for_each_type([&](auto from_zero, at::ScalarType from_dtype) {
      for_each_type([&](auto to_zero, at::ScalarType to_dtype) {
        launch_copies_of<decltype(from_zero), decltype(to_zero)>(from, from_dtype, to, to_dtype,
                                                                 stream);
      });
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }

  void scale(const at::Tensor& from, const at::Tensor& factor,
             const at::Tensor& to) const override {
    const c10::cuda::CUDAGuard guard(from.device());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
    for_types_of(from, to, [&](auto from_zero, auto to_zero) {
      RowCopies<decltype(from_zero), decltype(to_zero)> batch;
      batch.add(row_copy<decltype(from_zero), decltype(to_zero)>(from.flatten(), to.flatten()));
      batch.factor = in<float>(factor);
      launch_copy_rows(batch, stream);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
};

}  // namespace

const nn::DeviceKernels& cuda_kernels() {
  static const CudaKernels kernels;
  return kernels;
}

}  // namespace fsdp2::cuda
