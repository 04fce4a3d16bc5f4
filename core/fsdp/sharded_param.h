// One parameter of a unit and its tensors.
//
//   unsharded   the module's own parameter, an autograd leaf. Never replaced; its storage is
//               allocated for a gather and freed by a reshard, so what autograd saved of it stays
//               valid. In compute dtype.
//   sharded     this rank's rows, an autograd leaf in the original dtype: what optimizers and
//               checkpoints see. A view of the front of `shard_flat`.
//   shard_flat  the rank's padded chunk, 1-D: the all-gather input.
//
// State, by who owns memory:
//   kSharded ── allocate_unsharded ──▶ kUnsharded ── free_unsharded ──▶ kSharded
//
// On a shard group of one rank, with one dtype, the sharded parameter *is* the module's own: no
// second copy, no states.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/fsdp/shard_layout.h"

namespace fsdp2::fsdp {

class ShardedParam {
 public:
  // Takes over the module's parameter: cuts it to this rank's rows (or leaves them without values
  // if it is deferred), casts it to compute_dtype and frees it.
  ShardedParam(at::Tensor parameter, ShardLayout layout, at::ScalarType compute_dtype);
  ~ShardedParam();
  ShardedParam(const ShardedParam&) = delete;
  ShardedParam& operator=(const ShardedParam&) = delete;

  const ShardLayout& layout() const { return layout_; }
  const at::Tensor& sharded() const { return sharded_; }
  const at::Tensor& unsharded() const { return unsharded_; }
  const at::Tensor& shard_flat() const { return shard_flat_; }
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
  void mark_has_values() { has_values_ = true; }
  // This rank's rows as they are stored, outside autograd.
  at::Tensor local_values() const;

  // Bytes that the unsharded parameter takes while it is there, padding included.
  int64_t unsharded_bytes() const;
  void allocate_unsharded();
  void free_unsharded();
  // Takes a new, empty storage and leaves the old one to whoever holds it: after an error a gather
  // that has not ended may still write there.
  void forsake_unsharded();
  // The unsharded storage as one flat tensor of world * padded_numel elements, outside autograd and
  // with a version counter of its own. Only while allocated.
  at::Tensor unsharded_flat() const;

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

  ShardLayout layout_;
  at::ScalarType compute_dtype_;
  bool whole_ = false;
  bool has_values_ = true;
  at::Tensor unsharded_;
  at::Tensor shard_flat_;
  at::Tensor sharded_;
  at::Tensor accumulated_grad_;
  std::vector<std::string> names_;
  std::function<void()> on_gradient_;
};

}  // namespace fsdp2::fsdp
