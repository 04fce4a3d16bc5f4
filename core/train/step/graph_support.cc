#include "core/train/step/graph_support.h"

#include <memory>
#include <string>

#include "core/base/error.h"
#include "core/fsdp/group/param_group.h"
#include "core/nn/custom_module.h"
#include "core/nn/sequence_peers.h"

namespace fsdp2::train {

namespace {

void check_module(const nn::Module& module) {
  const auto* custom = dynamic_cast<const nn::CustomModule*>(&module);
  FSDP2_CHECK(
      custom == nullptr || custom->is_stock(), Code::kUnsupported,
      "cuda_graph: '{}' is a module of the caller's, whose forward a replay would not call: "
      "leave the option out",
      module.kind());
  for (const auto& hooks : module.hooks()) {
    FSDP2_CHECK(
        std::dynamic_pointer_cast<fsdp::Unit>(hooks) != nullptr, Code::kUnsupported,
        "cuda_graph: '{}' has hooks around its forward, which a replay would not call: leave "
        "the option out",
        module.kind());
  }
}

void check_group(const fsdp::ParamGroup& group, const std::string& unit) {
  FSDP2_CHECK(!group.policy().offload.to_cpu, Code::kUnsupported,
              "cuda_graph: the shards of '{}' are on the host (offload), for whose copies a step "
              "waits: leave one of the two out",
              unit);
  const Comm& comm = group.shard_comm(Lane::kGather);
  FSDP2_CHECK(comm.size() == 1 || !comm.waits_on_host(), Code::kUnsupported,
              "cuda_graph: the host moves what group {} communicates, and waits for it: expected "
              "backend nccl, with a GPU for each rank",
              comm.name());
}

}  // namespace

void check_graphs_are_supported(const nn::Module& module, fsdp::Unit& root,
                                const DeviceGraphs* graphs) {
  FSDP2_CHECK(graphs != nullptr, Code::kUnsupported,
              "cuda_graph: expected a mesh of GPUs (device cuda), found one of {}",
              c10::DeviceTypeName(root.mesh().device().type(), /*lower_case=*/true));
  FSDP2_CHECK(!root.mesh().team().compares_collectives(), Code::kUnsupported,
              "cuda_graph: FSDP2_DEBUG=detail compares each collective on the host, which a replay "
              "does not call: leave one of the two out");
  FSDP2_CHECK(nn::sequence_ranks(module) == 1, Code::kUnsupported,
              "cuda_graph: ranks that share sequences compare their inputs on the host: leave the "
              "option out, or let each rank have its own sequences");
  for (const auto& each : module.modules()) {
    if (const auto* own = dynamic_cast<const nn::Module*>(each.get())) {
      check_module(*own);
    }
  }
  for (const fsdp::Scheduler::Member& member : root.scheduler().members()) {
    check_group(*member.group, member.name);
  }
  for (const auto& parameter : module.named_parameters()) {
    FSDP2_CHECK(
        !parameter.value().requires_grad() || fsdp::ShardedParam::manages(parameter.value()),
        Code::kUnsupported,
        "cuda_graph: {} is trained and not sharded, so its gradient is the caller's: shard "
        "it, freeze it, or leave the option out",
        parameter.key());
  }
}

}  // namespace fsdp2::train
