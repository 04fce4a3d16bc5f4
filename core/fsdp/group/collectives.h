// The data paths of a unit's all-gather: free functions over parameters and groups that know
// nothing of modules, autograd or hooks. Those of its reduction are in reduction.h.
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
// Note [Waits]
// What follows a collective of a device is work of the device, so its streams wait and the host
// does not: it is issued with the collective, on a side stream (side_streams.h). A wait for a
// collective of the host blocks, wherever the tensors are, so it comes when the result is asked
// for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/comm.h"
#include "core/fsdp/group/group_settings.h"
#include "core/fsdp/group/kept_buffers.h"
#include "core/fsdp/group/policy.h"
#include "core/fsdp/group/sharded_param.h"

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
  KeptBuffers* buffers = nullptr;  // where the packed buffer is from
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
// "model.norm.weight and 3 more", which messages name; empty while the root is not known.
std::string names_of(const std::vector<ShardedParam*>& params);
// Whether its gradient is reduced straight from where autograd left it.
bool reduces_direct(const ShardedParam& param, CommPath path);

struct GatherOptions {
  GatherSource source = GatherSource::kShards;
  CommPath path = CommPath::kAuto;
  std::shared_ptr<const AllGatherExtension> extension;  // of kShards; or null
  const Mesh* mesh = nullptr;                           // what the extension is told
  KeptBuffers* buffers = nullptr;                       // for what is gone when it is finished
  // Whether they are the group's own memory, in which all that the ranks send then is, too: their
  // pieces travel from their places in what is gathered.
  bool in_group_memory = false;
};

// Issues the all-gather of the parameters, whose unsharded storage is allocated, over the ranks of
// `comm`. Group of one rank: copies (casts). Until it is finished the current stream is the one
// that the storage was allocated on.
GatherInFlight start_all_gather(const std::vector<ShardedParam*>& params, Comm& comm,
                                const GatherOptions& options);
// Waits and copies out what was packed: the unsharded parameters hold their values.
void finish_all_gather(GatherInFlight& in_flight, Comm& comm);

}  // namespace fsdp2::fsdp
