// ShardedTensors, of which FSDP1 saves a rank's own part: a list of shards, each a tensor with its
// place. A rank has one, or none of a tensor with too few rows.
#include <memory>
#include <utility>

#include "core/ckpt/pickle/machine.h"
#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

// state: (shards, metadata, group, how it was cut, ...)
PickleMachine::Id PickleMachine::sharded_tensor(Id state) {
  check(kind(state) == Kind::kTuple && children(state).size() >= 2 &&
            kind(children(state)[0]) == Kind::kList,
        "a ShardedTensor with {} for a state", graph_.kind_name(state));
  const std::vector<Id>& shards = children(children(state)[0]);
  if (shards.size() != 1) {
    return add_unread(fmt::format("a ShardedTensor with {} shards of a rank", shards.size()));
  }
  const Id shard = fields_of(state_of(shards[0]));
  const Id metadata = fields_of(state_of(field(shard, "metadata", Kind::kObject)));
  const Id whole = fields_of(state_of(children(state)[1]));
  const Id* shape = find_field(whole, "size");
  const Id* offsets = find_field(metadata, "shard_offsets");
  check(shape != nullptr && offsets != nullptr, "a ShardedTensor that says no size or no place");
  const Id* part = find_field(shard, "tensor");
  if (part != nullptr && kind(*part) == Kind::kUnread) {
    return *part;
  }
  StoredTensor result = tensor(field(shard, "tensor", Kind::kTensor));
  if (result.part != nullptr) {
    return add_unread("a ShardedTensor of DTensors is not handled: save full tensors");
  }
  TensorPart place{whole_numbers(*shape), whole_numbers(*offsets)};
  bool fits = place.shape.size() == result.shape.size() &&
              place.offsets.size() == result.shape.size() &&
              tensor_bytes(result.dtype, place.shape) >= 0;
  for (size_t dim = 0; fits && dim < result.shape.size(); ++dim) {
    fits = place.offsets[dim] >= 0 && place.offsets[dim] <= place.shape[dim] &&
           result.shape[dim] <= place.shape[dim] - place.offsets[dim];
  }
  check(fits, "a ShardedTensor whose shard does not lie in it");
  result.part = std::make_shared<const TensorPart>(std::move(place));
  return add_tensor(Kind::kTensor, std::move(result));
}

}  // namespace fsdp2::ckpt
