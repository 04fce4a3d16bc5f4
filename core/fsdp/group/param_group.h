// The parameters of one fully_shard call, which travel together.
//
//   kSharded ── start_unshard ──▶ kGathering ── wait_unshard ──▶ kUnsharded ── reshard ──▶ kSharded
//                    ▲                                               │
//                    └──────────── kPostForward ◀── reshard_to_slices ┘
//
// A reduction is independent of that: start_reduce takes the gradients, finish_reduce puts the
// reduced ones on the shards. At most one is under way per group.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/mesh.h"
#include "core/fsdp/group/collectives.h"
#include "core/fsdp/group/group_settings.h"
#include "core/fsdp/group/group_state.h"
#include "core/fsdp/group/kept_buffers.h"
#include "core/fsdp/group/policy.h"
#include "core/fsdp/group/reduction.h"
#include "core/fsdp/group/sharded_param.h"
#include "core/fsdp/group/side_streams.h"

namespace fsdp2::fsdp {

class ParamGroup {
 public:
  ParamGroup(std::vector<std::unique_ptr<ShardedParam>> params, std::shared_ptr<Mesh> mesh,
             Policy policy);
  ParamGroup(const ParamGroup&) = delete;
  ParamGroup& operator=(const ParamGroup&) = delete;

  const std::vector<ShardedParam*>& params() const { return views_; }
  const std::vector<ShardedParam*>& trainable() const { return trainable_; }
  GroupState state() const { return state_; }
  const Policy& policy() const { return policy_; }
  GroupSettings& settings() { return settings_; }
  const GroupSettings& settings() const { return settings_; }
  const Mesh& mesh() const { return *mesh_; }
  // The mesh's groups, with this unit's own counters.
  Comm& shard_comm(Lane lane) const {
    return lane == Lane::kGather ? *gather_comm_ : *reduce_comm_;
  }
  Comm* replicate_comm() const { return replicate_comm_.get(); }  // null: one replica
  // Silences its own collectives, or lets them be heard again (Comm::set_silent).
  void set_silent(bool flag);
  // Throws if one of its collectives has failed on a stream (Comm::check_streams).
  void check_streams() const;
  // Bytes and calls of this unit's gathers and reductions.
  CommCounters comm_counters() const;
  // The neighbours that share the slices of kPostForward: this rank's reshard_world-sized part of
  // the shard group. Set before the first use if the policy is kSmaller.
  void set_slice_comm(const Comm& comm) { slice_comm_ = comm.share(comm.name()); }
  // The streams and buffers of the tree. Without them all runs on the current stream, and nothing
  // is kept.
  void share(std::shared_ptr<SideStreams> streams, std::shared_ptr<TreeBuffers> buffers) {
    streams_ = std::move(streams);
    buffers_ = std::move(buffers);
  }
  // Reductions use the connections of the gathers. Before the first use.
  void reduce_on_gather_lane();

  // Whether the groups of its collectives give memory for them (GroupSettings::
  // allocate_memory_from_process_group); one of one rank has none, and need not. Error:
  // kUnsupported, with `unit`, the unit's name.
  void check_groups_give_memory(const std::string& unit) const;
  // Whether gathers (reductions) are to take place in such memory.
  bool gathers_in_group_memory() const;
  bool reduces_in_group_memory() const;
  // What the groups have given and nobody uses goes back to the device (Comm::release_memory).
  void release_group_memory();

  // The dtype of the gradients on the wire. REQUIRES: a trainable parameter.
  at::ScalarType reduce_dtype() const;
  int64_t unsharded_bytes() const { return unsharded_bytes_; }
  // The bytes of gathered parameters and slices that are alive now.
  int64_t live_bytes() const;

  // See ShardedParam::cast_shard.
  void cast_shards(at::ScalarType dtype);

  void start_unshard();      // no-op if gathering or unsharded
  void wait_unshard();       // no-op unless kGathering
  void reshard();            // waits first if kGathering; no-op if kSharded
  void reshard_to_slices();  // from kUnsharded
  // If kGathering: what is done to the shards from here on comes after what the gather reads of
  // them.
  void stop_reading_shards();
  // After an error: sharded, no gradients under way or unreduced, whatever the state was. The
  // current stream comes after the side streams.
  void abandon() noexcept;

  void begin_backward();    // what was reduced before stays apart from what is to come
  void accumulate_grads();  // keep this backward's gradients for a later reduction
  bool has_unsharded_grads() const;
  void start_reduce();
  void finish_reduce();  // no-op if none is under way
  // The host waits until gradients of shards in its memory, whose reductions have been finished,
  // are there.
  void receive_gradients() { arriving_.arrive(); }
  // Waits for the reduction under way, if there is one, and drops it with all else that has not
  // come to the sharded gradients. Begins no collective.
  void forget_unreduced();
  void end_backward();
  bool reducing() const { return reduction_.has_value(); }
  // Whether there are gradients that have not come to the shards, wherever they are.
  bool has_unreduced() const {
    return reducing() || !partial_.chunks.empty() || has_unsharded_grads();
  }

  // A line for the unit table: parameters, bytes, dtypes, shard dims, how many travel direct.
  std::string describe() const;

 private:
  // See Note [Waits] in collectives.h.
  bool waits_on_host() const { return gather_comm_->waits_on_host(); }
  void finish_gather();
  Comm& gather_comm_in_use() const;
  // The group that reductions end on with more than one rank: of the shards, or of the replicas.
  const std::shared_ptr<Comm>& reducing_comm() const;
  KeptBuffers& memory_of_parameter(const ShardedParam& param);
  bool reduces_nothing() const;
  void keep_gradients_as_they_are();
  void count_unsharded_bytes();

  std::vector<std::unique_ptr<ShardedParam>> params_;
  std::vector<ShardedParam*> views_;
  std::vector<ShardedParam*> trainable_;
  std::shared_ptr<Mesh> mesh_;
  std::shared_ptr<Mesh> shard_mesh_;  // its last dim alone
  std::shared_ptr<Comm> gather_comm_;
  std::shared_ptr<Comm> reduce_comm_;
  std::shared_ptr<Comm> replicate_comm_;
  std::shared_ptr<Comm> slice_comm_;
  std::shared_ptr<SideStreams> streams_ = std::make_shared<SideStreams>();
  std::shared_ptr<TreeBuffers> buffers_ = std::make_shared<TreeBuffers>();
  Policy policy_;
  GroupSettings settings_;
  int64_t unsharded_bytes_ = 0;
  GroupState state_ = GroupState::kSharded;
  bool from_slices_ = false;  // the gather under way
  // Whether what is gathered now, or was gathered last, was gathered straight into group memory.
  bool direct_in_group_memory_ = false;
  KeptBuffers gather_memory_;  // the groups'
  KeptBuffers reduce_memory_;
  GatherInFlight gather_;
  StreamMark gathered_;  // behind the last gather
  std::optional<ReduceInFlight> reduction_;
  ArrivingGradients arriving_;
  PartialReduction partial_;
};

}  // namespace fsdp2::fsdp
