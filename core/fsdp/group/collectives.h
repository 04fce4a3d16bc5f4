// The data paths of a unit's all-gather and reduction: free functions over parameters and groups
// that know nothing of modules, autograd or hooks.
//
// Note [Direct and packed]
// A dim-0 shard's gathered chunks are the parameter itself, so the all-gather can write straight
// into its storage and, where rows divide evenly, the reduce-scatter can read straight from its
// gradient: no copy, one collective per parameter, all in flight together. Packing copies in and
// out of one buffer but pays one collective's latency for all. A parameter goes direct if copying
// it costs more than one more collective: above kDirectBytes (measured by
// bench/comm_path_benchmark). The rule is a constant and not a measurement at run time, so that all
// ranks and all runs choose alike and sums have the same order. Both paths give the same bits.
//
// Note [Gradient flags]
// Ranks may disagree on which parameters got a gradient. A missing one counts as zero if any rank
// has one, and stays missing if none has. Each rank's "I have one" travels as one element per
// parameter behind each chunk of the packed buffer, so that it costs no collective of its own. The
// host reads the sums, and so waits for a device, only if this rank lacks a gradient: those that it
// has are known to be there.
//
// Note [Waits]
// What follows a collective is work of the device, so its streams wait and the host does not: it is
// issued with the collective, on a side stream (side_streams.h). On the host a wait blocks, so
// there it comes when the result is asked for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/comm/comm.h"
#include "core/fsdp/group/group_settings.h"
#include "core/fsdp/group/policy.h"
#include "core/fsdp/group/sharded_param.h"
#include "core/fsdp/group/side_streams.h"

namespace fsdp2::fsdp {

// Bytes of an unsharded parameter from which the direct path is taken by CommPath::kAuto.
inline constexpr int64_t kDirectBytes = 512 * 1024;

// Where the pieces of a gather come from: the ranks' shards, or the slices that a forward left on
// the ranks of a smaller group.
enum class GatherSource { kShards, kSlices };

// One all-gather of a group under way and the buffers it uses.
struct GatherInFlight {
  struct Separate {  // gathered as rows that are not the parameter's own layout
    ShardedParam* param;
    CommWork work;
    at::Tensor rows;
  };
  GatherSource source = GatherSource::kShards;
  std::vector<CommWork> direct;
  std::shared_ptr<const AllGatherExtension> extension;  // who makes parameters of `extended`
  std::vector<Separate> extended;
  CommWork packed;
  at::Tensor packed_buffer;  // [world, bytes of a row]
  std::vector<ShardedParam*> packed_params;
};

// Whether a parameter is gathered straight into its storage.
bool gathers_direct(const ShardedParam& param, CommPath path,
                    GatherSource source = GatherSource::kShards);
// Bytes that a piece takes in the packed gather buffer.
int64_t packed_slot_bytes(int64_t piece_bytes);
// Whether its gradient is reduced straight from where autograd left it.
bool reduces_direct(const ShardedParam& param, CommPath path);

struct GatherOptions {
  GatherSource source = GatherSource::kShards;
  CommPath path = CommPath::kAuto;
  std::shared_ptr<const AllGatherExtension> extension;  // of kShards; or null
  const Mesh* mesh = nullptr;                           // what the extension is told
};

// Issues the all-gather of the parameters, whose unsharded storage is allocated, over the ranks of
// `comm`. Group of one rank: copies (casts). Until it is finished the current stream is the one
// that the storage was allocated on.
GatherInFlight start_all_gather(const std::vector<ShardedParam*>& params, Comm& comm,
                                const GatherOptions& options);
// Waits and copies out what was packed: the unsharded parameters hold their values.
void finish_all_gather(GatherInFlight& in_flight, Comm& comm);

struct ReduceOptions {
  SideStreams* streams = nullptr;
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
    at::Tensor input;  // flat; memory of the stream that computes
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
  bool put_off = false;                       // its results have become a partial reduction
  StreamMark reduced;                         // behind the last of it
};

// Takes the gradients of the trainable parameters of a unit and issues their reduction over the
// shard group. Every rank passes the same parameters in the same order and the same options.
ReduceInFlight start_reduce_scatter(const std::vector<ShardedParam*>& params,
                                    const ReduceOptions& options);
// Waits for that, adds `partial`, reduces over the replicas if there are any, and scales; with
// all_reduce off, makes the results `partial` instead. See Note [Waits] for when to call it.
void continue_reduction(ReduceInFlight& in_flight, PartialReduction& partial);
// Waits for that, and adds the results to the sharded gradients.
void finish_reduction(ReduceInFlight& in_flight);
// Waits for what has been issued, since others count on this rank's part in it, and drops it.
void discard_reduce_scatter(ReduceInFlight& in_flight);

}  // namespace fsdp2::fsdp
