// What may be changed about a unit's group while it is in use; the names are those of PyTorch's
// FSDPModule. All ranks set the same.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace fsdp2 {
class Mesh;
}

namespace fsdp2::fsdp {

class ParamGroup;
class ShardedParam;

// What travels in place of a parameter's shard, e.g. a quantised form of it.
struct AllGatherExtension {
  // From this rank's padded chunk (1-D, the shard's dtype) to what is sent: 1-D, of the same size
  // and dtype on every rank. `mesh` is the 1-D mesh of the shard group.
  std::function<at::Tensor(const ShardedParam& param, const at::Tensor& chunk, const Mesh& mesh)>
      pre_all_gather;
  // From the ranks' pieces [world, n] to their chunks [world, padded_numel] in compute dtype, which
  // it writes to `out`.
  std::function<void(const ShardedParam& param, const at::Tensor& pieces, const at::Tensor& out)>
      post_all_gather;
};

struct GroupSettings {
  bool requires_gradient_sync = true;
  bool requires_all_reduce = true;            // false: HSDP keeps partial sums for a later backward
  std::optional<bool> reshard_after_forward;  // unset: the policy's
  bool reshard_after_backward = true;
  bool unshard_in_backward = true;

  std::optional<double> gradient_divide_factor;  // unset: the number of data-parallel ranks
  bool force_sum_reduction = false;              // only sums on the wire, scaled by a separate pass
  bool reduce_unused_parameters = false;         // no gradient on any rank gives zeros, not none
  // What gathers and reductions send and receive is in memory that their groups give
  // (Comm::allocate).
  bool allocate_memory_from_process_group = false;

  // Sees the reduced gradients of the group before they are divided and cast: flat, changeable.
  std::function<void(const at::Tensor& flat)> all_reduce_hook;
  // Called once a parameter's sharded gradient holds this backward's.
  std::function<void(ShardedParam& param)> on_sharded_grad;
  // Null: shards travel as they are. A gather keeps the one that it began with.
  std::shared_ptr<const AllGatherExtension> all_gather_extension;

  std::vector<std::weak_ptr<ParamGroup>> forward_prefetch;
  std::vector<std::weak_ptr<ParamGroup>> backward_prefetch;
};

}  // namespace fsdp2::fsdp
