#include "core/nn/layers/head_loss.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/nn/kernels/device_kernels.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/layers/activation.h"
#include "core/nn/layers/layers.h"
#include "core/nn/meta_tensor.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Bytes of a chunk's logits: about kChunkBytes, but at least kMinBytesPerWord for each word of the
// vocabulary, since each chunk passes over the whole gradient of the weight once, which few rows
// would not pay for.
constexpr int64_t kChunkBytes = int64_t{16} << 20;
constexpr int64_t kMinBytesPerWord = 512;
// Rows of a chunk on a device with fused loops: its products are so much faster than its memory
// that fewer rows pay even less for that pass.
constexpr int64_t kDeviceRows = 4096;

// What rows count for in the mean: `each` all of them alike or, if it is defined, `of_row` [N],
// fp32, 0 for those that are left out.
struct Share {
  double each = 0.0;
  at::Tensor of_row;

  Share narrow(int64_t row, int64_t count) const {
    return {each, of_row.defined() ? of_row.narrow(0, row, count) : at::Tensor()};
  }
};

// Summed loss of a chunk; with want_gradient the logits become their own gradient, times the share.
at::Tensor chunk_loss(at::Tensor& logits, const at::Tensor& labels, bool want_gradient,
                      const Share& share) {
  if (const DeviceKernels* kernels = device_kernels(logits)) {
    return kernels->cross_entropy(logits, labels, want_gradient, share.each, share.of_row);
  }
  at::Tensor wide = logits.to(at::kFloat);
  const at::Tensor label_column = labels.unsqueeze(1);
  const at::Tensor shift = wide.amax(1, /*keepdim=*/true);
  const at::Tensor picked = wide.gather(1, label_column).sub_(shift);
  wide.sub_(shift).exp_();
  const at::Tensor sum = wide.sum(1, /*keepdim=*/true);
  const at::Tensor of_row =
      share.of_row.defined() ? share.of_row.unsqueeze(1) : at::full_like(picked, share.each);
  if (want_gradient) {
    wide.mul_(sum.reciprocal().mul_(of_row));
    wide.scatter_add_(1, label_column, of_row.neg());
    logits = wide.to(logits.scalar_type());
  }
  return sum.log().sub_(picked).masked_fill_(of_row.eq(0), 0.0).sum(at::kDouble);
}

struct ChunkRules {
  int64_t rows = 0;
  double logit_cap = 0;
};

// The slope of soft_capped where it is `capped`; undefined without a cap.
at::Tensor slope_at(const at::Tensor& capped, double cap) {
  return cap == 0 ? at::Tensor() : 1 - (capped / cap).square_();
}

struct LossAndGradients {
  at::Tensor loss;
  at::Tensor dx;  // like x, or undefined
  at::Tensor dw;  // like weight, or undefined; in fp32 where backward rounds it
};

// Those that scale and round a gradient in one pass over memory; null where ATen does.
const DeviceKernels* scaling_kernels(const at::Tensor& tensor) {
  return acts_as_host(tensor.device()) ? nullptr : device_kernels(tensor);
}

// x [N,D], labels [N] in [0, V). The loss is the sum over the rows, in fp64.
LossAndGradients compute(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                         const Share& share, const ChunkRules& chunk, bool want_dx, bool want_dw) {
  const int64_t rows = x.size(0);
  const bool want_gradient = want_dx || want_dw;
  LossAndGradients result;
  if (want_dx) {
    result.dx = at::empty(x.sizes(), x.options());
  }
  if (want_dw) {
    const at::TensorOptions options = weight.options().dtype(at::kFloat);
    result.dw = rows > 0 ? at::empty(weight.sizes(), options) : at::zeros(weight.sizes(), options);
  }
  at::Tensor sum = at::zeros({}, x.options().dtype(at::kDouble));
  const ProductOperand shared_weight = weight;
  for (int64_t row = 0; row < rows; row += chunk.rows) {
    const int64_t count = std::min(chunk.rows, rows - row);
    const ProductOperand part = x.narrow(0, row, count);
    at::Tensor logits = soft_capped(product_nt(part, shared_weight), chunk.logit_cap);
    const at::Tensor slope = want_gradient ? slope_at(logits, chunk.logit_cap) : at::Tensor();
    sum.add_(
        chunk_loss(logits, labels.narrow(0, row, count), want_gradient, share.narrow(row, count)));
    if (slope.defined()) {
      logits.mul_(slope);
    }
    const ProductOperand dlogits = logits;
    if (want_dx) {
      result.dx.narrow(0, row, count).copy_(product_nt(dlogits, shared_weight.t()));
    }
    if (want_dw) {
      add_product_tn(result.dw, dlogits, part, row == 0 ? 0 : 1);
    }
  }
  result.loss = sum;
  if (want_dw && scaling_kernels(x) == nullptr) {
    result.dw = result.dw.to(weight.scalar_type());
  }
  return result;
}

// The sum over rows [N,D], of which all count, times `share_of_each`.
LossAndGradients compute_all_rows(const at::Tensor& x, const at::Tensor& weight,
                                  const at::Tensor& labels, double share_of_each,
                                  const ChunkRules& chunk, bool want_dx, bool want_dw) {
  Share share;
  share.each = share_of_each;
  LossAndGradients result = compute(x, weight, labels, share, chunk, want_dx, want_dw);
  result.loss = result.loss.mul_(share.each).to(at::kFloat);
  return result;
}

int64_t rows_of_device_chunk(const at::Tensor& weight, int64_t asked) {
  const bool fused = !weight.is_cpu() && device_kernels(weight) != nullptr;
  return asked == 0 && fused ? kDeviceRows : rows_of_chunk(weight, asked);
}

// The mean where rows that are left out go through the products, and count for nothing: to pick
// the others out, the host would wait for a device to tell their number.
LossAndGradients compute_masked_rows(const at::Tensor& x, const at::Tensor& weight,
                                     const at::Tensor& labels, const HeadLossOptions& options,
                                     bool want_dx, bool want_dw) {
  const at::Tensor counts = labels.ne(options.ignore_index);
  const at::Tensor n = (options.counted.defined() ? options.counted : counts.sum()).to(at::kDouble);
  Share share;
  share.of_row = counts.to(at::kDouble).div_(n.clamp_min(1.0)).to(at::kFloat);
  LossAndGradients result = compute(
      x, weight, labels.masked_fill(labels.eq(options.ignore_index), 0), share,
      {rows_of_device_chunk(weight, options.chunk_rows), options.logit_cap}, want_dx, want_dw);
  result.loss = result.loss.mul_(n.reciprocal()).to(at::kFloat);  // NaN if none counts
  return result;
}

// The mean of the rows that count, which are picked out.
LossAndGradients compute_picked_rows(const at::Tensor& x, const at::Tensor& weight,
                                     const at::Tensor& labels, const HeadLossOptions& options,
                                     bool want_dx, bool want_dw) {
  const ChunkRules chunk{rows_of_chunk(weight, options.chunk_rows), options.logit_cap};
  if (labels.is_meta()) {
    return compute_all_rows(x, weight, labels, /*share_of_each=*/1.0, chunk, want_dx, want_dw);
  }
  const at::Tensor valid = labels.ne(options.ignore_index).nonzero().squeeze(1);
  const int64_t n = options.counted.defined() ? options.counted.item<int64_t>() : valid.numel();
  const double each = 1.0 / static_cast<double>(n);
  LossAndGradients result;
  if (valid.numel() == labels.numel() && valid.numel() > 0) {
    result = compute_all_rows(x, weight, labels, each, chunk, want_dx, want_dw);
  } else {
    if (valid.numel() > 0) {
      result = compute_all_rows(x.index_select(0, valid), weight, labels.index_select(0, valid),
                                each, chunk, want_dx, want_dw);
    } else {
      const double none = n > 0 ? 0.0 : std::numeric_limits<double>::quiet_NaN();
      result.loss = at::full({}, none, x.options().dtype(at::kFloat));
      result.dw = want_dw ? at::zeros(weight.sizes(), weight.options()) : at::Tensor();
    }
    if (want_dx) {
      at::Tensor dx = at::zeros(x.sizes(), x.options());
      if (valid.numel() > 0) {
        dx.index_copy_(0, valid, result.dx);
      }
      result.dx = dx;
    }
  }
  return result;
}

LossAndGradients compute_mean(const at::Tensor& hidden, const at::Tensor& weight,
                              const at::Tensor& labels_in, const HeadLossOptions& options,
                              bool want_dx, bool want_dw) {
  const at::Tensor x = hidden.reshape({-1, weight.size(1)});
  const at::Tensor labels = labels_in.reshape({-1}).contiguous();
  const bool on_host = acts_as_host(x.device()) && device_kernels(x) != nullptr;
  const auto compute_rows = on_host ? compute_picked_rows : compute_masked_rows;
  LossAndGradients result = compute_rows(x, weight, labels, options, want_dx, want_dw);
  if (want_dx) {
    result.dx = result.dx.view(hidden.sizes());
  }
  return result;
}

// gradient times the factor that comes from above, in place when backward runs only once.
at::Tensor scaled(const at::Tensor& gradient, const at::Tensor& factor, at::ScalarType dtype) {
  if (!gradient.defined()) {
    return {};
  }
  const bool in_place = !torch::autograd::get_current_graph_task_keep_graph();
  if (const DeviceKernels* kernels = scaling_kernels(gradient)) {
    const bool fits = in_place && gradient.scalar_type() == dtype;
    at::Tensor product =
        fits ? gradient : at::empty(gradient.sizes(), gradient.options().dtype(dtype));
    kernels->scale(gradient, factor.to(gradient.device(), at::kFloat), product);
    return product;
  }
  if (factor.is_cpu()) {
    const auto number = factor.item<double>();
    return number == 1.0 ? gradient : in_place ? gradient.mul_(number) : gradient * number;
  }
  return in_place ? gradient.mul_(factor) : gradient * factor;
}

struct HeadLoss : torch::autograd::Function<HeadLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const at::Tensor& labels,
                            const HeadLossOptions& options) {
    const LossAndGradients result = compute_mean(hidden, weight, labels, options,
                                                 hidden.requires_grad(), weight.requires_grad());
    context->save_for_backward({result.dx, result.dw});
    context->saved_data["dtype"] = hidden.scalar_type();
    return result.loss;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("the chunked loss");
    const auto saved = context->get_saved_variables();
    const at::ScalarType dtype = context->saved_data["dtype"].toScalarType();
    return {scaled(saved[0], gradients[0], dtype), scaled(saved[1], gradients[0], dtype), {}, {}};
  }
};

}  // namespace

int64_t rows_of_chunk(const at::Tensor& weight, int64_t asked) {
  const int64_t row_bytes =
      std::max<int64_t>(1, weight.size(0) * static_cast<int64_t>(weight.element_size()));
  const int64_t min_rows = kMinBytesPerWord / static_cast<int64_t>(weight.element_size());
  return asked > 0 ? asked : std::max(min_rows, kChunkBytes / row_bytes / 16 * 16);
}

void check_head_inputs(const char* function, const at::Tensor& hidden, const at::Tensor& weight,
                       const at::Tensor& labels) {
  FSDP2_CHECK(hidden.dim() >= 1 && weight.dim() == 2 && hidden.size(-1) == weight.size(1) &&
                  hidden.sizes().slice(0, hidden.dim() - 1) == labels.sizes() &&
                  labels.scalar_type() == at::kLong,
              Code::kInvalidArgument,
              "{}: expected hidden [..., {}] and int64 labels of the same leading dims, got {} "
              "hidden values and {} labels of type {}",
              function, weight.dim() == 2 ? weight.size(1) : 0, hidden.numel(), labels.numel(),
              c10::toString(labels.scalar_type()));
  FSDP2_CHECK(hidden.scalar_type() == weight.scalar_type(), Code::kInvalidArgument,
              "{}: expected hidden states in the weight's dtype {}, got {}", function,
              c10::toString(weight.scalar_type()), c10::toString(hidden.scalar_type()));
}

at::Tensor head_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                     const HeadLossOptions& options) {
  check_head_inputs("head_loss", hidden, weight, labels);
  if (c10::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad())) {
    return HeadLoss::apply(hidden, weight, labels, options);
  }
  return compute_mean(hidden, weight, labels, options, false, false).loss;
}

}  // namespace fsdp2::nn
