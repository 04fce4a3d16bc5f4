#include "core/cuda/kernels/cuda_kernels.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "core/cuda/kernels/cross_entropy.h"
#include "core/cuda/kernels/elements.h"
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

// Calls launch(zero, stream) with a zero of the tensor's type of elements, and the current stream
// of its device.
template <typename Launch>
void launch_for(const at::Tensor& tensor, const Launch& launch) {
  const c10::cuda::CUDAGuard guard(tensor.device());
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  switch (tensor.scalar_type()) {
    case at::kFloat:
      launch(float(), stream);
      break;
    case at::kBFloat16:
      launch(__nv_bfloat16(), stream);
      break;
    case at::kHalf:
      launch(__half(), stream);
      break;
    default:
      TORCH_CHECK(false, "no CUDA kernel for ", tensor.scalar_type());
  }
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// The squares of the tensors of type T, one sum a chunk; returns the end of the sums.
template <typename T>
double* launch_square_sums_of(at::TensorList tensors, at::ScalarType dtype, double* sums,
                              cudaStream_t stream) {
  TensorChunks<T> batch;
  const auto launch = [&] {
    launch_square_sums(batch, sums, stream);
    sums += batch.first_chunk[batch.count];
    batch = {};
  };
  for (const at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() != dtype) {
      continue;
    }
    if (!batch.add(in<T>(tensor), tensor.numel())) {
      launch();
      batch.add(in<T>(tensor), tensor.numel());
    }
  }
  launch();
  return sums;
}

class CudaKernels final : public nn::DeviceKernels {
 public:
  void rms_norm_forward(const at::Tensor& x, const at::Tensor& w, double eps, const at::Tensor& y,
                        const at::Tensor& rstd) const override {
    launch_for(x, [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      launch_rms_norm(in<T>(x), in<T>(w), static_cast<float>(eps), out<T>(y), out<float>(rstd),
                      rstd.numel(), w.numel(), stream);
    });
  }

  void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                         const at::Tensor& rstd, const at::Tensor& dx,
                         const at::Tensor& dw) const override {
    const int64_t rows = rstd.numel();
    const int64_t n = w.numel();
    const at::Tensor dw_parts =
        at::empty({rms_norm_parts(rows, n), n}, x.options().dtype(at::kFloat));
    launch_for(x, [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      launch_rms_norm_gradients(in<T>(dy), in<T>(x), in<T>(w), in<float>(rstd),
                                dx.defined() ? out<T>(dx) : nullptr, out<T>(dw),
                                out<float>(dw_parts), rows, n, stream);
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
    end = launch_square_sums_of<float>(tensors, at::kFloat, end, stream);
    end = launch_square_sums_of<__nv_bfloat16>(tensors, at::kBFloat16, end, stream);
    end = launch_square_sums_of<__half>(tensors, at::kHalf, end, stream);
    launch_total(in<double>(sums), end - out<double>(sums), out<double>(total), stream);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return total;
  }
};

}  // namespace

const nn::DeviceKernels& cuda_kernels() {
  static const CudaKernels kernels;
  return kernels;
}

}  // namespace fsdp2::cuda
