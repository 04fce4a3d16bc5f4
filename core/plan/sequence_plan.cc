#include "core/plan/sequence_plan.h"

#include <ATen/core/Tensor.h>

#include "core/fsdp/group/param_group.h"
#include "core/fsdp/scheduler.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/nn/sequence_peers.h"

namespace fsdp2::plan {

namespace {

class ExchangeCount {
 public:
  ExchangeCount(fsdp::Unit& root, int64_t ranks, int64_t rows, int64_t sequence_length)
      : members_(root.scheduler().members()),
        ranks_(ranks),
        positions_(rows * ((sequence_length + ranks - 1) / ranks)) {}

  void count(const nn::Module& module, bool is_recomputed) {
    is_recomputed = is_recomputed || nn::checkpoints_activations(module);
    if (const auto* sharer = dynamic_cast<const nn::SequenceSharer*>(&module)) {
      const nn::ExchangedNumel numel = sharer->exchanged_numel(ranks_);
      if (numel.there > 0) {
        // There and back in forward, and again in backward.
        const int64_t times = is_recomputed ? 3 : 2;
        const int64_t item_bytes = static_cast<int64_t>(c10::elementSize(dtype_of(module)));
        traffic_.units += 1;
        traffic_.calls += 2 * times;
        traffic_.bytes += times * (received_bytes(numel.there * item_bytes) +
                                   received_bytes(numel.back * item_bytes));
      }
    }
    for (const auto& [name, child] : module.child_modules()) {
      count(*child, is_recomputed);
    }
  }

  const Traffic& traffic() const { return traffic_; }

 private:
  int64_t received_bytes(int64_t of_position) const {
    return positions_ * of_position / ranks_ * (ranks_ - 1);
  }

  // That it computes in.
  at::ScalarType dtype_of(const nn::Module& module) const {
    const at::Tensor first = module.parameters().front();
    for (const fsdp::Scheduler::Member& member : members_) {
      for (const fsdp::ShardedParam* param : member.group->params()) {
        if (param->unsharded().is_same(first)) {
          return param->compute_dtype();
        }
      }
    }
    return first.scalar_type();
  }

  const std::vector<fsdp::Scheduler::Member>& members_;
  const int64_t ranks_;
  const int64_t positions_;  // of all rows of this rank's part
  Traffic traffic_;
};

}  // namespace

Traffic exchange_traffic(fsdp::Unit& root, int64_t rows, int64_t sequence_length) {
  const nn::Module& model = *root.modules().front();
  const int64_t ranks = nn::sequence_ranks(model);
  if (ranks == 1) {
    return {};
  }
  ExchangeCount count(root, ranks, rows, sequence_length);
  count.count(model, /*is_recomputed=*/false);
  return count.traffic();
}

}  // namespace fsdp2::plan
