#include "core/nn/experts/expert_rows.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/nn/kernels/cpu_kernels.h"
#include "core/nn/layers/layers.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool runs_own_loops(const at::Tensor& tensor) {
  return cpu_kernels::supports(tensor) || tensor.is_meta();
}

variable_list made_contiguous(variable_list tensors) {
  for (at::Tensor& tensor : tensors) {
    tensor = tensor.contiguous();
  }
  return tensors;
}

// [T,K,D] of rows that lie in parts.
at::Tensor rows_by_pick(at::TensorList parts, const at::Tensor& row_of_pick) {
  const at::Tensor rows = parts.size() == 1 ? parts.front() : at::cat(parts);
  return rows.index_select(0, row_of_pick.flatten()).unflatten(0, row_of_pick.sizes());
}

// [T,D]: sums over the picks of a token; without weights each counts once.
at::Tensor sum_of_picks(at::TensorList parts, const at::Tensor& row_of_pick,
                        const at::Tensor& weights) {
  const at::Tensor& first = parts.front();
  if (!runs_own_loops(first)) {
    const at::Tensor rows = rows_by_pick(parts, row_of_pick);
    return (weights.defined() ? rows * weights.unsqueeze(-1) : rows).sum(1);
  }
  const at::Tensor sums = at::empty({row_of_pick.size(0), first.size(1)}, first.options());
  const at::Tensor wide = weights.defined() ? weights.to(at::kFloat).contiguous() : weights;
  if (!sums.is_meta()) {
    cpu_kernels::sum_rows(parts, row_of_pick, wide, sums);
  }
  return sums;
}

struct RowsForExperts : torch::autograd::Function<RowsForExperts> {
  static variable_list forward(AutogradContext* context, const at::Tensor& tokens,
                               const at::Tensor& pick_of_row, const at::Tensor& row_of_pick,
                               const std::vector<int64_t>& counts) {
    context->save_for_backward({row_of_pick});
    const at::Tensor token_of_row = pick_of_row.floor_divide(row_of_pick.size(1));
    return tokens.index_select(0, token_of_row).split_with_sizes(counts);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("a mixture of experts");
    const at::Tensor row_of_pick = context->get_saved_variables()[0];
    return {sum_of_picks(made_contiguous(std::move(gradients)), row_of_pick, {}), at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

struct WeightedSums : torch::autograd::Function<WeightedSums> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weights,
                            const at::Tensor& pick_of_row, const at::Tensor& row_of_pick,
                            const at::TensorList& outputs) {
    variable_list parts = made_contiguous(outputs.vec());
    variable_list saved{weights, pick_of_row, row_of_pick};
    saved.insert(saved.end(), parts.begin(), parts.end());
    context->save_for_backward(std::move(saved));
    return sum_of_picks(parts, row_of_pick, weights);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("a mixture of experts");
    const variable_list saved = context->get_saved_variables();
    const at::TensorList parts = at::TensorList(saved).slice(3);
    auto [of_rows, of_weights] =
        gradients_of(gradients[0].contiguous(), parts, saved[0], saved[1], saved[2]);
    variable_list result{of_weights, at::Tensor(), at::Tensor()};
    int64_t begin = 0;
    for (const at::Tensor& part : parts) {
      result.push_back(of_rows.narrow(0, begin, part.size(0)));
      begin += part.size(0);
    }
    return result;
  }

 private:
  // Those of the rows [n,D], in one buffer, and those of the weights [T,K].
  static std::pair<at::Tensor, at::Tensor> gradients_of(const at::Tensor& gradient,
                                                        at::TensorList parts,
                                                        const at::Tensor& weights,
                                                        const at::Tensor& pick_of_row,
                                                        const at::Tensor& row_of_pick) {
    if (!runs_own_loops(gradient)) {
      const at::Tensor by_pick = gradient.unsqueeze(1);
      return {(by_pick * weights.unsqueeze(-1)).flatten(0, 1).index_select(0, pick_of_row),
              (by_pick * rows_by_pick(parts, row_of_pick)).sum(-1)};
    }
    const at::Tensor of_rows =
        at::empty({pick_of_row.numel(), gradient.size(1)}, gradient.options());
    const at::Tensor of_weights = at::empty(weights.sizes(), weights.options().dtype(at::kFloat));
    if (!of_rows.is_meta()) {
      cpu_kernels::sum_rows_backward(gradient, parts, row_of_pick,
                                     weights.to(at::kFloat).contiguous(), of_rows, of_weights);
    }
    return {of_rows, of_weights.to(weights.scalar_type())};
  }
};

// Without values, as many rows for each expert as for the others.
std::vector<int64_t> even_counts(int64_t rows, int64_t experts) {
  std::vector<int64_t> counts;
  for (int64_t expert = 0; expert < experts; ++expert) {
    counts.push_back(rows * (expert + 1) / experts - rows * expert / experts);
  }
  return counts;
}

}  // namespace

ExpertRows sort_by_expert(const at::Tensor& picks, int64_t experts) {
  const at::Tensor flat = picks.flatten();
  const at::Tensor pick_of_row = flat.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor row_of_pick =
      at::empty_like(pick_of_row)
          .scatter_(0, pick_of_row, at::arange(flat.numel(), pick_of_row.options()));
  // bincount would wait for the device, to look at the smallest and the largest.
  const at::Tensor counts =
      at::zeros({experts}, flat.options()).scatter_add_(0, flat, at::ones_like(flat));
  return {pick_of_row, row_of_pick.view(picks.sizes()), counts.cumsum(0, at::kInt), {flat.numel()}};
}

void split_by_expert(ExpertRows& rows) {
  if (rows.ends.is_meta()) {
    rows.counts = even_counts(rows.pick_of_row.numel(), rows.ends.numel());
    return;
  }
  const at::Tensor ends = rows.ends.to(at::kCPU);
  const auto* first = ends.const_data_ptr<int32_t>();
  rows.counts.resize(static_cast<size_t>(ends.numel()));
  std::adjacent_difference(first, first + ends.numel(), rows.counts.begin());
}

std::vector<at::Tensor> rows_for_experts(const at::Tensor& tokens, const ExpertRows& rows) {
  return RowsForExperts::apply(tokens, rows.pick_of_row, rows.row_of_pick, rows.counts);
}

at::Tensor weighted_sums(const std::vector<at::Tensor>& outputs, const at::Tensor& weights,
                         const ExpertRows& rows) {
  const bool fits = outputs.size() == rows.counts.size() &&
                    weights.sizes() == rows.row_of_pick.sizes() &&
                    std::equal(outputs.begin(), outputs.end(), rows.counts.begin(),
                               [&](const at::Tensor& output, int64_t count) {
                                 return output.dim() == 2 && output.size(0) == count &&
                                        output.size(1) == outputs.front().size(1) &&
                                        output.scalar_type() == weights.scalar_type();
                               });
  FSDP2_CHECK(fits, Code::kInvalidArgument,
              "weighted_sums: expected rows of one dtype for each of {} parts, as many as tokens "
              "have picked its experts, and a weight for each",
              rows.counts.size());
  return WeightedSums::apply(weights, rows.pick_of_row, rows.row_of_pick, at::TensorList(outputs));
}

}  // namespace fsdp2::nn
