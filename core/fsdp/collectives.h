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
// parameter behind each chunk of the packed buffer, so that it costs no collective of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/comm/comm.h"
#include "core/fsdp/policy.h"
#include "core/fsdp/sharded_param.h"

namespace fsdp2::fsdp {

// Bytes of an unsharded parameter from which the direct path is taken by CommPath::kAuto.
inline constexpr int64_t kDirectBytes = 512 * 1024;

// The collectives of one gather or reduction under way and the buffers they use.
struct GatherInFlight {
  std::vector<CommWork> direct;
  CommWork packed;
  at::Tensor packed_buffer;
  std::vector<ShardedParam*> packed_params;
};

// Whether a parameter is gathered straight into its storage.
bool gathers_direct(const ShardedParam& param, CommPath path);
// Whether its gradient is reduced straight from where autograd left it.
bool reduces_direct(const ShardedParam& param, CommPath path);

// Issues the all-gather of the parameters, whose unsharded storage is allocated. Group of one rank:
// copies (casts).
GatherInFlight start_all_gather(const std::vector<ShardedParam*>& params, Comm& comm,
                                CommPath path);
// Waits and copies out what was packed: the unsharded parameters hold their values.
void finish_all_gather(GatherInFlight& in_flight, Comm& comm);

struct ReduceInFlight {
  struct Direct {
    ShardedParam* param;
    CommWork work;
    at::Tensor sharded_grad;  // flat, padded
    at::Tensor input;         // kept until the collective has read it
  };
  std::vector<Direct> direct;
  CommWork packed;
  at::Tensor packed_input;
  at::Tensor packed_output;  // this rank's chunk: parameters in order, then one flag each
  std::vector<ShardedParam*> packed_params;
  std::vector<ShardedParam*> flagged_params;  // all, in the order of the flags
  at::ScalarType reduce_dtype = at::kFloat;
};

// Takes the gradients of the trainable parameters of a unit and issues their average over the shard
// group, in reduce_dtype. Every rank passes the same parameters in the same order.
ReduceInFlight start_reduce_scatter(const std::vector<ShardedParam*>& params, Comm& shard,
                                    CommPath path, at::ScalarType reduce_dtype);
// Waits, averages over the replicas if there are any (replicate: null or the group of the mesh's
// replicate dim), and adds the results to the sharded gradients.
void finish_reduce_scatter(ReduceInFlight& in_flight, Comm* replicate);

}  // namespace fsdp2::fsdp
