// The parameters of one fully_shard call, which travel together.
//
//   kSharded ── start_unshard ──▶ kGathering ── wait_unshard ──▶ kUnsharded ── reshard ──▶ kSharded
//
// A reduction is independent of that: start_reduce takes the gradients, finish_reduce puts the
// averages on the shards. At most one is under way per group.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/mesh.h"
#include "core/fsdp/collectives.h"
#include "core/fsdp/policy.h"
#include "core/fsdp/sharded_param.h"

namespace fsdp2::fsdp {

enum class GroupState { kSharded, kGathering, kUnsharded };

class ParamGroup {
 public:
  ParamGroup(std::vector<std::unique_ptr<ShardedParam>> params, std::shared_ptr<Mesh> mesh,
             Policy policy);

  const std::vector<ShardedParam*>& params() const { return views_; }
  const std::vector<ShardedParam*>& trainable() const { return trainable_; }
  GroupState state() const { return state_; }
  const Policy& policy() const { return policy_; }
  const Mesh& mesh() const { return *mesh_; }
  Comm& shard_comm(Lane lane) const;
  Comm* replicate_comm() const;  // null on a 1-D mesh or one replica

  int64_t unsharded_bytes() const { return unsharded_bytes_; }

  void start_unshard();  // no-op unless kSharded
  void wait_unshard();   // no-op unless kGathering
  void reshard();        // waits first if kGathering; no-op if kSharded
  // After an error: sharded, no gradients under way or unreduced, whatever the state was.
  void abandon() noexcept;

  void accumulate_grads();  // keep this backward's gradients for a later reduction
  void start_reduce();
  void finish_reduce();  // no-op if none is under way
  bool reducing() const { return reduction_.has_value(); }

  // A line for the unit table: parameters, bytes, dtypes, how many travel direct.
  std::string describe() const;

 private:
  at::ScalarType reduce_dtype() const;

  std::vector<std::unique_ptr<ShardedParam>> params_;
  std::vector<ShardedParam*> views_;
  std::vector<ShardedParam*> trainable_;
  std::shared_ptr<Mesh> mesh_;
  Policy policy_;
  int64_t unsharded_bytes_ = 0;
  GroupState state_ = GroupState::kSharded;
  GatherInFlight gather_;
  std::optional<ReduceInFlight> reduction_;
};

}  // namespace fsdp2::fsdp
