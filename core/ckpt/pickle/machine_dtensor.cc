// Tensors of classes. A rank saves its own part of a DTensor, with the mesh and the placements that
// tell where it lies: FSDP2's are cut over one dim of the mesh, and whole over the others.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "core/ckpt/pickle/machine.h"
#include "core/ckpt/pickle/names.h"
#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kShard[] = "torch.distributed.tensor.placement_types.Shard";
constexpr char kReplicate[] = "torch.distributed.tensor.placement_types.Replicate";
constexpr size_t kMaxFields = 32;
constexpr size_t kMaxSizes = 64;
constexpr int64_t kMaxRanks = int64_t{1} << 31;

// What a rank has of `size` from `offset` on, cut as torch.chunk cuts. No product overflows: chunk
// x ranks is less than size + ranks.
void cut(int64_t rank, int64_t ranks, int64_t* offset, int64_t* size) {
  const int64_t chunk = *size / ranks + (*size % ranks != 0 ? 1 : 0);
  const int64_t begin = std::min(rank * chunk, *size);
  *offset += begin;
  *size = std::min(chunk, *size - begin);
}

}  // namespace

// (function, class, its arguments, state)
PickleMachine::Id PickleMachine::typed_tensor(const std::vector<Id>& values,
                                              std::string_view name) {
  if (values.size() != 4 || kind(values[2]) != Kind::kTuple) {
    refuse_arguments(name);
  }
  const bool is_wrapper = kind(values[0]) == Kind::kName &&
                          graph_.text(values[0]) == kRebuildWrapper &&
                          kind(values[1]) == Kind::kName;
  if (is_wrapper && graph_.text(values[1]) == kDTensor) {
    return dtensor(children(values[2]), values[3]);
  }
  if (is_wrapper && graph_.text(values[1]) == kShardedTensor) {
    return sharded_tensor(values[3]);
  }
  return add_unread(fmt::format("a tensor of {} is not handled: save plain, dense tensors",
                                graph_.kind_name(values[1])));
}

// state: a dict, or what an object has beside its dict.
PickleMachine::Id PickleMachine::fields_of(Id state) const {
  const bool has_slots = kind(state) == Kind::kTuple && graph_.children(state).size() == 2;
  return has_slots ? graph_.children(state)[1] : state;
}

// arguments: (class, dtype, shape, ...)
PickleMachine::Id PickleMachine::dtensor(const std::vector<Id>& arguments, Id state) {
  const Id fields = fields_of(state);
  for (const char* name : {"_local_tensor", "_spec"}) {
    const Id* part = find_field(fields, name);
    if (part != nullptr && kind(*part) == Kind::kUnread) {
      return *part;
    }
  }
  const Id local = field(fields, "_local_tensor", Kind::kTensor);
  const Id spec = state_of(field(fields, "_spec", Kind::kObject));
  const Id mesh = state_of(field(spec, "mesh", Kind::kObject));
  const std::vector<Id>& placements = children(field(spec, "placements", Kind::kTuple));
  const Id* coordinate = find_field(mesh, "_coordinate_on_dim");
  check(arguments.size() > 2 && coordinate != nullptr, "a DTensor that says no shape or no rank");
  const std::vector<int64_t> ranks = mesh_shape(mesh);
  const std::vector<int64_t> rank = whole_numbers(*coordinate);
  TensorPart place;
  place.shape = whole_numbers(arguments[2]);
  place.offsets.assign(place.shape.size(), 0);
  std::vector<int64_t> sizes = place.shape;
  check(ranks.size() == placements.size() && rank.size() == ranks.size(),
        "a DTensor of {} placements on a mesh of {} dims", placements.size(), ranks.size());
  check(tensor_bytes(tensor(local).dtype, place.shape) >= 0, "a DTensor whose shape is too large");
  for (size_t i = 0; i < ranks.size(); ++i) {
    check(ranks[i] >= 1 && ranks[i] <= kMaxRanks && rank[i] >= 0 && rank[i] < ranks[i],
          "a DTensor of rank {} of {}", rank[i], ranks[i]);
    if (graph_.is_of(placements[i], kReplicate)) {
      continue;
    }
    if (!graph_.is_of(placements[i], kShard)) {
      return add_unread(fmt::format("a DTensor placed by {} is not handled: save full tensors",
                                    graph_.kind_name(placements[i])));
    }
    const int64_t dim = graph_.integer(field(state_of(placements[i]), "dim", Kind::kInt));
    check(dim >= 0 && dim < static_cast<int64_t>(sizes.size()), "a DTensor cut along dim {}", dim);
    const auto at = static_cast<size_t>(dim);
    cut(rank[i], ranks[i], &place.offsets[at], &sizes[at]);
  }
  StoredTensor result = tensor(local);
  check(result.shape == sizes, "a DTensor whose part has another shape than its mesh says");
  result.part = std::make_shared<const TensorPart>(std::move(place));
  return add_tensor(Kind::kTensor, std::move(result));
}

const PickleMachine::Id* PickleMachine::find_field(Id dict, std::string_view name) const {
  check(kind(dict) == Kind::kDict, "a tensor of a class with {} for a state",
        graph_.kind_name(dict));
  const std::vector<Id>& items = graph_.children(dict);
  check(items.size() <= 2 * kMaxFields, "a tensor of a class with {} fields", items.size() / 2);
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (graph_.is_text(items[i], name)) {
      return &items[i + 1];
    }
  }
  return nullptr;
}

PickleMachine::Id PickleMachine::field(Id dict, std::string_view name, Kind expected) const {
  const Id* found = find_field(dict, name);
  check(found != nullptr && kind(*found) == expected,
        "a tensor of a class without a {} that is read", name);
  return *found;
}

PickleMachine::Id PickleMachine::state_of(Id object) const {
  check(kind(object) == Kind::kObject && graph_.children(object).size() == 2,
        "a tensor of a class with {} that has no state", graph_.kind_name(object));
  return graph_.children(object)[1];
}

// Older meshes (torch 2.8) hold a tensor of their ranks, newer ones a layout, and the newest (2.15)
// a layout for each dim.
std::vector<int64_t> PickleMachine::mesh_shape(Id mesh) const {
  const Id* found = find_field(mesh, "_layout");
  if (found == nullptr) {
    return graph_.tensor(field(mesh, "mesh", Kind::kTensor)).shape;
  }
  const Id layout = state_of(*found);
  if (const Id* shape = find_field(layout, "shape")) {
    return whole_numbers(*shape);
  }
  std::vector<int64_t> sizes;
  for (const Id axis : graph_.children(field(layout, "axes", Kind::kTuple))) {
    const Id* shape = find_field(state_of(axis), "shape");
    check(shape != nullptr, "a mesh with a dim without a shape");
    sizes.push_back(product_of(whole_numbers(*shape)));
  }
  return sizes;
}

// The size of a dim that is several others in one; 1 if there are none.
int64_t PickleMachine::product_of(const std::vector<int64_t>& factors) const {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    check(factor >= 1 && factor <= kMaxRanks / product, "a mesh with a dim of {} ranks", factor);
    product *= factor;
  }
  return product;
}

// A tuple, a list, or one number alone.
std::vector<int64_t> PickleMachine::whole_numbers(Id list) const {
  if (kind(list) == Kind::kInt) {
    return {graph_.integer(list)};
  }
  check(kind(list) == Kind::kTuple || kind(list) == Kind::kList,
        "{} for sizes of a tensor of a class", graph_.kind_name(list));
  std::vector<int64_t> numbers;
  const std::vector<Id>& items = graph_.children(list);
  check(items.size() <= kMaxSizes, "a tensor of a class with {} dims", items.size());
  for (const Id item : items) {
    check(kind(item) == Kind::kInt, "{} for a size of a tensor of a class", graph_.kind_name(item));
    numbers.push_back(graph_.integer(item));
  }
  return numbers;
}

}  // namespace fsdp2::ckpt
