// Work that needs sharded matrices whole, with no matrix worked on twice in a shard group: the
// ranks gather the matrices of a unit, each is worked on by one rank alone, and the results are
// scattered again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/comm/comm.h"
#include "core/fsdp/group/param_group.h"
#include "core/fsdp/group/sharded_param.h"

namespace fsdp2::fsdp {

class WholeMatrices {
 public:
  // From a matrix, the index of which is that of its parameter, to one of the same shape and dtype.
  using Work = std::function<at::Tensor(size_t index, const at::Tensor& whole)>;

  // params: those of the group that are meant, of two dims. All ranks give the same.
  WholeMatrices(const ParamGroup& group, std::vector<const ShardedParam*> params);

  // locals: this rank's rows of each matrix, in bf16 and the shape of the shard; undefined where it
  // has none, which counts as zeros. Returns its rows of the results, on the group's device,
  // undefined where no rank has any. Collective over the shard group, whatever is defined.
  std::vector<at::Tensor> map(const std::vector<at::Tensor>& locals, const Work& work);

  // The rank of the shard group that works on a matrix: those of a group have about as much to do.
  int owner(size_t index) const { return owners_[index]; }
  // What this rank has received from others.
  int64_t received_bytes() const;

 private:
  std::vector<at::Tensor> map_alone(const std::vector<at::Tensor>& locals, const Work& work) const;
  void choose_owners();
  at::TensorOptions options() const;  // of what travels
  at::Tensor pack(const std::vector<at::Tensor>& locals) const;
  std::vector<bool> present(const std::vector<at::Tensor>& locals,
                            const at::Tensor& gathered) const;
  at::Tensor whole(size_t index, const at::Tensor& gathered) const;
  at::Tensor in_chunks(size_t index, const at::Tensor& whole) const;
  int64_t owned_numel(int rank) const;
  std::vector<at::Tensor> scatter(const at::Tensor& own_results, const std::vector<bool>& there);

  std::vector<const ShardedParam*> params_;
  std::shared_ptr<Comm> comm_;
  std::vector<int> owners_;
  std::vector<int64_t> starts_;           // of each in what a rank sends; the last is their end
  std::vector<int64_t> starts_at_owner_;  // of each in what its owner has to scatter to a rank
};

}  // namespace fsdp2::fsdp
