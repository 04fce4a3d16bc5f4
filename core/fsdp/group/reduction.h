// The data paths of a unit's reduction: free functions over parameters and groups that know nothing
// of modules, autograd or hooks. Note [Direct and packed] and Note [Waits] in collectives.h say
// which path a gradient takes, and who waits when.
//
// Note [Gradient flags]
// Ranks may disagree on which parameters got a gradient. A missing one counts as zero if any rank
// has one, and stays missing if none has. Each rank's "I have one" travels as one element per
// parameter behind each chunk of the packed buffer, so that it costs no collective of its own. The
// host reads the sums, and so waits for a device, only if this rank lacks a gradient: those that it
// has are known to be there.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/comm/comm.h"
#include "core/fsdp/group/kept_buffers.h"
#include "core/fsdp/group/policy.h"
#include "core/fsdp/group/sharded_param.h"
#include "core/fsdp/group/side_streams.h"

namespace fsdp2::fsdp {

struct ReduceOptions {
  SideStreams* streams = nullptr;
  KeptBuffers* buffers = nullptr;  // for what the reduction reads
  // Whether they are the group's own memory. What the reduction gives is in it then, too, and no
  // gradient is read from where autograd left it.
  bool in_group_memory = false;
  Comm* shard = nullptr;
  Comm* replicate = nullptr;  // of the mesh's replicate dim; null: there is none
  bool all_reduce = true;     // false: leave out the replicas
  CommPath path = CommPath::kAuto;
  at::ScalarType dtype = at::kFloat;  // on the wire
  std::optional<double> divide_factor;
  bool force_sum = false;
  bool zeros_for_unused = false;
  std::function<void(const at::Tensor& flat)> hook;  // see GroupSettings::all_reduce_hook
  std::function<void(ShardedParam& param)>
      on_grad;  // called for each parameter that got a gradient
};

// What reductions without all-reduce have left on this rank, to be added to the next ones'. By
// parameter, since the next one may take another path (a hook comes or goes).
struct PartialReduction {
  std::vector<at::Tensor>
      chunks;  // flat, padded, in the order of the flags; empty: nothing is held
  at::Tensor flags;
};

struct ReduceInFlight {
  struct Direct {
    ShardedParam* param;
    at::Tensor input;   // flat; memory of the stream that computes
    bool from_buffers;  // else it is autograd's, or the sharded gradient itself
    CommWork work;
    at::Tensor sharded_grad;  // flat, padded
  };
  ReduceOptions options;
  std::vector<Direct> direct;
  CommWork packed;
  at::Tensor packed_input;   // memory of the stream that computes
  at::Tensor packed_output;  // this rank's chunk: parameters in order, then one flag each
  std::vector<ShardedParam*> packed_params;
  std::vector<ShardedParam*> flagged_params;  // all, in the order of the flags
  std::vector<bool> has_grad;                 // of each of them, on this rank
  PartialReduction added;                     // what this reduction has taken over
  // In the order of the flags: of shards in the host's memory, their gradients there; else empty.
  std::vector<at::Tensor> on_host;
  bool put_off = false;  // its results have become a partial reduction
  StreamMark reduced;    // behind the last of it
};

// Gradients on their way to shards in the host's memory. Their copies run behind the reduction, so
// that the host need not wait before somebody reads them.
class ArrivingGradients {
 public:
  void add(ShardedParam& param, at::Tensor grad) { grads_.emplace_back(&param, std::move(grad)); }
  // Behind the copies of all that has been added.
  void set_copied(StreamMark copied) { copied_ = std::move(copied); }
  // The host waits for them, and adds them to the sharded gradients. No-op if there are none.
  void arrive();
  void drop() { grads_.clear(); }

 private:
  std::vector<std::pair<ShardedParam*, at::Tensor>> grads_;
  StreamMark copied_;
};

// Takes the gradients of the trainable parameters of a unit and issues their reduction over the
// shard group. Every rank passes the same parameters in the same order and the same options.
ReduceInFlight start_reduce_scatter(const std::vector<ShardedParam*>& params,
                                    const ReduceOptions& options);
// Waits for that, adds `partial`, reduces over the replicas if there are any, and scales; with
// all_reduce off, makes the results `partial` instead. See Note [Waits] for when to call it.
void continue_reduction(ReduceInFlight& in_flight, PartialReduction& partial);
// Waits for that, and adds the results to the sharded gradients, or to `arriving` where the shards
// are in the host's memory and no callback wants them now.
void finish_reduction(ReduceInFlight& in_flight, ArrivingGradients& arriving);
// Waits for what has been issued, since others count on this rank's part in it, and drops it.
void discard_reduce_scatter(ReduceInFlight& in_flight);

}  // namespace fsdp2::fsdp
