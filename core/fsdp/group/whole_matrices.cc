#include "core/fsdp/group/whole_matrices.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace fsdp2::fsdp {

WholeMatrices::WholeMatrices(const ParamGroup& group, std::vector<const ShardedParam*> params)
    : params_(std::move(params)),
      comm_(group.shard_comm(Lane::kGather).share("whole matrices")),
      owners_(params_.size()) {
  starts_.push_back(0);
  for (const ShardedParam* param : params_) {
    starts_.push_back(starts_.back() + param->layout().padded_numel());
  }
  choose_owners();
  std::vector<int64_t> ends(static_cast<size_t>(comm_->size()));
  for (size_t i = 0; i < params_.size(); ++i) {
    int64_t& end = ends[static_cast<size_t>(owners_[i])];
    starts_at_owner_.push_back(end);
    end += params_[i]->layout().padded_numel();
  }
}

// The dearest first, each to whoever has least to do so far: products of a matrix with its
// transpose.
void WholeMatrices::choose_owners() {
  const auto cost = [this](size_t index) {
    const auto& shape = params_[index]->layout().global_shape;
    const auto rows = static_cast<double>(shape[0]);
    const auto columns = static_cast<double>(shape[1]);
    return rows * columns * std::min(rows, columns);
  };
  std::vector<size_t> order(params_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return cost(a) > cost(b); });
  std::vector<double> loads(static_cast<size_t>(comm_->size()));
  for (const size_t index : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    owners_[index] = static_cast<int>(least - loads.begin());
    *least += cost(index);
  }
}

at::TensorOptions WholeMatrices::options() const {
  return at::device(comm_->device()).dtype(at::kBFloat16);
}

int64_t WholeMatrices::received_bytes() const {
  return comm_->counters().all_gather_bytes + comm_->counters().scatter_bytes;
}

std::vector<at::Tensor> WholeMatrices::map(const std::vector<at::Tensor>& locals,
                                           const Work& work) {
  if (comm_->size() == 1) {
    return map_alone(locals, work);
  }
  const at::Tensor packed = pack(locals);
  const at::Tensor gathered = at::empty({comm_->size(), packed.numel()}, packed.options());
  comm_->all_gather(gathered.view(-1), packed).wait_on_stream();
  const std::vector<bool> there = present(locals, gathered);
  const at::Tensor results =
      at::zeros({comm_->size(), owned_numel(comm_->rank())}, packed.options());
  for (size_t i = 0; i < params_.size(); ++i) {
    if (owners_[i] == comm_->rank() && there[i]) {
      results.narrow(1, starts_at_owner_[i], params_[i]->layout().padded_numel())
          .copy_(in_chunks(i, work(i, whole(i, gathered))));
    }
  }
  return scatter(results, there);
}

std::vector<at::Tensor> WholeMatrices::map_alone(const std::vector<at::Tensor>& locals,
                                                 const Work& work) const {
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < locals.size(); ++i) {
    results.push_back(locals[i].defined() ? work(i, locals[i].to(comm_->device())) : at::Tensor());
  }
  return results;
}

// The chunks one after the other, padded with zeros, then a one for each that is there.
at::Tensor WholeMatrices::pack(const std::vector<at::Tensor>& locals) const {
  const auto count = static_cast<int64_t>(params_.size());
  at::Tensor packed = at::zeros({starts_.back() + count}, options());
  for (size_t i = 0; i < locals.size(); ++i) {
    if (locals[i].defined()) {
      packed.narrow(0, starts_[i], locals[i].numel()).copy_(locals[i].reshape({-1}));
      packed.narrow(0, starts_.back() + static_cast<int64_t>(i), 1).fill_(1.0);
    }
  }
  return packed;
}

// What this rank has is there; of the rest the host has to ask, which is rare.
std::vector<bool> WholeMatrices::present(const std::vector<at::Tensor>& locals,
                                         const at::Tensor& gathered) const {
  std::vector<bool> there;
  for (size_t i = 0; i < locals.size(); ++i) {
    there.push_back(
        locals[i].defined() ||
        gathered.select(1, starts_.back() + static_cast<int64_t>(i)).any().item<bool>());
  }
  return there;
}

at::Tensor WholeMatrices::whole(size_t index, const at::Tensor& gathered) const {
  const ShardLayout& layout = params_[index]->layout();
  const std::vector<int64_t> chunk = layout.padded_shape();
  const at::Tensor chunks = gathered.narrow(1, starts_[index], layout.padded_numel())
                                .reshape({comm_->size(), chunk[0], chunk[1]});
  if (layout.dim == 0) {
    return chunks.reshape({comm_->size() * chunk[0], chunk[1]})
        .narrow(0, 0, layout.global_shape[0]);
  }
  return chunks.permute({1, 0, 2}).reshape({chunk[0], comm_->size() * chunk[1]});
}

// [ranks, a rank's padded chunk]. Sizes are spelt out, because a matrix may be without elements.
at::Tensor WholeMatrices::in_chunks(size_t index, const at::Tensor& whole) const {
  const ShardLayout& layout = params_[index]->layout();
  const int64_t ranks = comm_->size();
  if (layout.dim == 0) {
    const int64_t missing = layout.chunk * ranks - layout.global_shape[0];
    return at::constant_pad_nd(whole, {0, 0, 0, missing}).reshape({ranks, layout.padded_numel()});
  }
  return whole.reshape({whole.size(0), ranks, layout.chunk})
      .permute({1, 0, 2})
      .reshape({ranks, layout.padded_numel()});
}

int64_t WholeMatrices::owned_numel(int rank) const {
  int64_t numel = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    numel += owners_[i] == rank ? params_[i]->layout().padded_numel() : 0;
  }
  return numel;
}

// One scatter from each rank that owns something.
std::vector<at::Tensor> WholeMatrices::scatter(const at::Tensor& own_results,
                                               const std::vector<bool>& there) {
  std::vector<at::Tensor> from_owner(static_cast<size_t>(comm_->size()));
  std::vector<CommWork> works;
  for (int owner = 0; owner < comm_->size(); ++owner) {
    at::Tensor& out = from_owner[static_cast<size_t>(owner)];
    out = at::empty({owned_numel(owner)}, options());
    if (out.numel() > 0) {
      works.push_back(
          comm_->scatter(out, owner == comm_->rank() ? own_results.view(-1) : at::Tensor(), owner));
    }
  }
  for (CommWork& work : works) {
    work.wait_on_stream();
  }
  std::vector<at::Tensor> locals;
  for (size_t i = 0; i < params_.size(); ++i) {
    const ShardLayout& layout = params_[i]->layout();
    locals.push_back(there[i] ? from_owner[static_cast<size_t>(owners_[i])]
                                    .narrow(0, starts_at_owner_[i], layout.padded_numel())
                                    .view(layout.padded_shape())
                                    .narrow(layout.dim, 0, layout.length)
                              : at::Tensor());
  }
  return locals;
}

}  // namespace fsdp2::fsdp
