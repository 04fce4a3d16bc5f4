// One parameter of a unit and its tensors.
//
//   unsharded   the module's own parameter, an autograd leaf. Never replaced; its storage is
//               allocated for a gather and freed by a reshard, so what autograd saved of it stays
//               valid. In compute dtype.
//   sharded     this rank's rows, an autograd leaf in the original dtype: what optimizers and
//               checkpoints see. A view of the front of `shard_flat`.
//   shard_flat  the rank's padded chunk, 1-D: the all-gather input.
//   slice       after a forward that reshards to a smaller group: a part of the unsharded storage.
//
// State, by who owns memory:
//   kSharded ── allocate_unsharded ──▶ kUnsharded ── free_unsharded ──▶ kSharded
//
// On a shard group of one rank, with one dtype and no offload, the sharded parameter *is* the
// module's own: no second copy, no states. Its gradient is the engine's own sum then;
// set_reduced_aside keeps what earlier backwards have reduced apart from it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/fsdp/group/kept_buffers.h"
#include "core/fsdp/group/policy.h"
#include "core/fsdp/group/shard_layout.h"

namespace fsdp2::fsdp {

class ShardedParam {
 public:
  // Takes over the module's parameter: cuts it to this rank's chunk (or leaves it without values if
  // it is deferred), casts it to compute_dtype and frees it. The unsharded parameter is on `device`
  // from then on, and so is the shard if it is not offloaded. compute_dtype: unset, that of the
  // shard, also after cast_shard.
  ShardedParam(at::Tensor parameter, ShardLayout layout,
               std::optional<at::ScalarType> compute_dtype, at::Device device,
               const Offload& offload);
  ~ShardedParam();
  ShardedParam(const ShardedParam&) = delete;
  ShardedParam& operator=(const ShardedParam&) = delete;

  const ShardLayout& layout() const { return layout_; }
  // A shard that was cut from a deferred parameter gets its memory, zeros, when one of these or
  // local_values is first called: until then a model of any size can be sharded for its plan.
  const at::Tensor& sharded() const;
  const at::Tensor& shard_flat() const;
  const at::Tensor& unsharded() const { return unsharded_; }
  at::ScalarType dtype() const { return sharded_.scalar_type(); }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  bool requires_grad() const { return sharded_.requires_grad(); }
  bool is_whole() const { return whole_; }  // sharded is unsharded

  // Dotted, from the root; [0] is its own, the rest are ties. Set when the root is known.
  const std::vector<std::string>& names() const { return names_; }
  const std::string& name() const { return names_.front(); }
  void set_names(std::vector<std::string> names) { names_ = std::move(names); }

  // Whether some ShardedParam has taken over this parameter of a module.
  static bool manages(const at::Tensor& parameter);
  // Called in backward, each time the engine has added the whole of a backward's gradient to the
  // unsharded parameter (or found that there is none). Empty: nobody.
  void set_on_gradient(std::function<void()> callback) { on_gradient_ = std::move(callback); }

  // False until values have been read into a shard that was cut from a deferred parameter.
  bool has_values() const { return has_values_; }
  void mark_has_values(bool has = true) { has_values_ = has; }
  // This rank's chunk without padding as it is stored, outside autograd.
  at::Tensor local_values() const;
  // What the chunk and its padding are stored in, with no memory before there are values.
  const at::Tensor& stored() const { return whole_ ? unsharded_ : shard_flat_; }
  // The elements of stored() behind the chunk, which are to be zeros. REQUIRES: !is_whole()
  at::Tensor padding() const;
  // Casts the shard, and the compute dtype with it unless one was given. Only while sharded, and
  // without gradients. Optimizers made before keep the old shard. Error: kUnsupported if is_whole()
  // and the compute dtype was given.
  void cast_shard(at::ScalarType dtype);

  // All that has memory for it now; some share theirs, some have none, some are undefined.
  std::vector<at::Tensor> held() const;
  // Bytes that the unsharded parameter takes while it is there, padding included.
  int64_t unsharded_bytes() const;
  // Out of the tree's buffers, and back to them.
  void allocate_unsharded(KeptBuffers& buffers);
  void free_unsharded(KeptBuffers& buffers);
  // Takes a new, empty storage and leaves the old one, and the slice, to whoever holds them: after
  // an error a gather that has not ended may still read and write there.
  void forsake_unsharded();
  // Keeps part `index` of `count` of the unsharded storage; free_unsharded may follow.
  void keep_slice(int index, int count, KeptBuffers& buffers);
  void drop_slice(KeptBuffers& buffers) { buffers.drop(slice_); }
  const at::Tensor& slice() const { return slice_; }
  // The unsharded storage as one flat tensor of world * padded_numel elements, outside autograd and
  // with a version counter of its own. Only while allocated.
  at::Tensor unsharded_flat() const;

  // Before a backward, if is_whole(): puts the gradient that earlier backwards have reduced aside,
  // until the next take_ or accumulate_unsharded_grad or put_reduced_back.
  void set_reduced_aside();
  void put_reduced_back();
  // Whether there is a gradient to reduce.
  bool has_unsharded_grad() const;
  // The gradient to reduce, in whichever dtype it was accumulated; undefined if there is none.
  // Moves it out.
  at::Tensor take_unsharded_grad();
  // Moves the unsharded gradient into an accumulator of `dtype` (accumulation without communication
  // in a reduce dtype that is wider than the compute dtype).
  void accumulate_unsharded_grad(at::ScalarType dtype);
  // Forgets unreduced gradients.
  void clear_unsharded_grad();
  // Sets or adds to the sharded gradient; `grad` has the local shape and the sharded dtype.
  void add_sharded_grad(at::Tensor grad);

 private:
  class GradientHook;

  void ensure_memory() const;
  at::Tensor view_local() const;
  // This backward's gradient out of the engine's hands.
  at::Tensor move_engine_grad();

  ShardLayout layout_;
  const bool computes_in_own_dtype_;
  at::ScalarType compute_dtype_;
  bool whole_ = false;
  bool has_values_ = true;
  at::Tensor unsharded_;
  at::Tensor shard_flat_;
  at::Tensor sharded_;
  at::Tensor slice_;
  at::Tensor accumulated_grad_;
  at::Tensor reduced_aside_;
  std::vector<std::string> names_;
  std::function<void()> on_gradient_;
};

}  // namespace fsdp2::fsdp
