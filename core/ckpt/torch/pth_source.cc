#include "core/ckpt/torch/pth_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/state/state_tree.h"
#include "core/ckpt/value/chunked_tensor.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

// An expanded tensor: a few bytes that claim to be many. Small ones are of no harm.
constexpr int64_t kMaxExpandedBytes = int64_t{1} << 26;

bool is_unduly_expanded(const StoredTensor& tensor) {
  const int64_t numel = numel_of(tensor.shape);
  return numel > tensor.storage_numel &&
         numel > kMaxExpandedBytes / static_cast<int64_t>(c10::elementSize(tensor.dtype));
}

// A list of integers, as many as `count`; nullopt for anything else.
std::optional<std::vector<int64_t>> integers(const PythonValue* value, size_t count) {
  const PythonList* list = value != nullptr ? value->as<PythonList>() : nullptr;
  if (list == nullptr || list->items.size() != count) {
    return std::nullopt;
  }
  std::vector<int64_t> numbers;
  for (const PythonValue& item : list->items) {
    const int64_t* number = item.as<int64_t>();
    if (number == nullptr || *number < 0) {
      return std::nullopt;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

PthSource::PthSource(const std::string& path, PthFiles files)
    : PthSource(path, files,
                files == PthFiles::kOne ? std::vector<std::string>{path} : per_rank_files(path)) {}

PthSource::PthSource(const std::string& path, PthFiles kind, const std::vector<std::string>& files)
    : StateSource(path), kind_(kind) {
  for (const std::string& file : files) {
    add_file(file);
  }
  check_pieces();
  set_entries(std::move(listed_));
}

void PthSource::add_file(const std::string& file) {
  const size_t archive = archives_.size();
  archives_.push_back(
      std::make_unique<TorchArchive>(std::make_shared<const RecentFileBytes>(files_, file)));
  const PythonValue& root = archives_.back()->root();
  const PythonValue* shards = nullptr;
  if (kind_ == PthFiles::kOnePerRank) {
    const PythonValue* own = ckpt::find(root, kPerRankKey);
    shards = own != nullptr ? ckpt::find(*own, kPerRankShards) : nullptr;
    FSDP2_CHECK(shards != nullptr && shards->as<PythonDict>() != nullptr, Code::kCorruptData,
                "{}: has no description of its shards (\"{}\" -> \"{}\")", file, kPerRankKey,
                kPerRankShards);
  }
  for (const TreeLeaf& leaf : flatten_tree(root)) {
    if (shards != nullptr && describes_rank(leaf.path)) {
      continue;
    }
    if (const auto* tensor = leaf.value->as<StoredTensor>()) {
      add_tensor(archive, *tensor, leaf.path, shards);
    } else if (index_of_.emplace(name_of(leaf.path), places_.size()).second) {
      listed_.push_back({name_of(leaf.path), leaf.path, std::nullopt, {}, places_.size()});
      places_.push_back({{}, {}, leaf.value});
    }
  }
}

void PthSource::add_tensor(size_t archive, const StoredTensor& tensor, const StatePath& path,
                           const PythonValue* shards) {
  const std::string name = name_of(path);
  FSDP2_CHECK(!is_unduly_expanded(tensor), Code::kUnsupported,
              "{}: {} is a tensor of [{}] over {} stored elements: save it after contiguous()",
              archives_[archive]->label(), printable_name(name), fmt::join(tensor.shape, ", "),
              tensor.storage_numel);
  std::vector<int64_t> shape = tensor.shape;
  std::vector<int64_t> offsets(shape.size(), 0);
  const PythonValue* shard = shards != nullptr ? ckpt::find(*shards, name) : nullptr;
  if (tensor.part != nullptr) {
    shape = tensor.part->shape;
    offsets = tensor.part->offsets;
    has_parts_ = true;
  }
  if (shard != nullptr) {
    const auto global = integers(ckpt::find(*shard, "shape"), tensor.shape.size());
    const auto begin = integers(ckpt::find(*shard, "offsets"), tensor.shape.size());
    bool fits = global && begin;
    for (size_t dim = 0; fits && dim < tensor.shape.size(); ++dim) {
      fits = (*begin)[dim] <= (*global)[dim] && tensor.shape[dim] <= (*global)[dim] - (*begin)[dim];
    }
    FSDP2_CHECK(fits, Code::kCorruptData, "{}: shape and offsets of {} do not fit its values",
                archives_[archive]->label(), printable_name(name));
    shape = *global;
    offsets = *begin;
  }
  const auto [found, is_new] = index_of_.emplace(name, places_.size());
  if (is_new) {
    listed_.push_back({name, path, tensor.dtype, shape, places_.size()});
    places_.emplace_back();
  }
  const StateEntry& entry = listed_[found->second];
  FSDP2_CHECK(entry.dtype == tensor.dtype && entry.shape == shape, Code::kCorruptData,
              "{}: {} is {} [{}], another rank's file says otherwise", archives_[archive]->label(),
              printable_name(name), c10::toString(tensor.dtype), fmt::join(shape, ", "));
  // What is whole is in each rank's file, and replicas hold the same box: the first will do.
  Place& place = places_[found->second];
  const auto is_same = [&](const Box& box) {
    return box.offsets == offsets && box.sizes == tensor.shape;
  };
  if (std::none_of(place.boxes.begin(), place.boxes.end(), is_same)) {
    place.chunks.push_back({archive, &tensor});
    place.boxes.push_back({std::move(offsets), tensor.shape});
  }
}

void PthSource::check_pieces() const {
  // Counters of an optimizer are whole on each rank.
  const bool has_rows = std::any_of(listed_.begin(), listed_.end(), [](const StateEntry& entry) {
    return entry.dtype && !entry.shape.empty();
  });
  FSDP2_CHECK(kind_ != PthFiles::kOneOfEachRank || has_parts_ || archives_.size() == 1 || !has_rows,
              Code::kUnsupported,
              "{}: its files hold no DTensors or ShardedTensors, and nothing else tells which part "
              "of a tensor a rank has: save full tensors, or with torch.distributed.checkpoint",
              path());
  for (const StateEntry& entry : listed_) {
    if (!entry.dtype) {
      continue;
    }
    const ChunkedTensor tensor{*entry.dtype, entry.shape, places_[entry.index].boxes};
    const std::string fault = find_fault(tensor);
    FSDP2_CHECK(fault.empty(), Code::kCorruptData, "{}: {} {}", path(), printable_name(entry.name),
                fault);
    const bool is_whole = covers(tensor);
    FSDP2_CHECK(is_whole || kind_ != PthFiles::kOne, Code::kInvalidArgument,
                "{}: holds one rank's part of {}: name the directory with the files of all ranks",
                path(), printable_name(entry.name));
    FSDP2_CHECK(is_whole, Code::kCorruptData,
                "{}: the files of all ranks together do not hold all of {}", path(),
                printable_name(entry.name));
  }
}

void PthSource::read(const StateEntry& entry, at::IntArrayRef begin, const at::Tensor& out) const {
  FSDP2_CHECK(entry.dtype && begin.size() == entry.shape.size() &&
                  out.dim() == static_cast<int64_t>(begin.size()),
              Code::kInvalidArgument, "{}: {} has {} dims, a box of {} was asked for", path(),
              printable_name(entry.name), entry.shape.size(), begin.size());
  const Place& place = places_[entry.index];
  int64_t read = 0;
  for (const BoxPart& part : parts_of_box(place.boxes, begin, out.sizes())) {
    const Chunk& chunk = place.chunks[part.chunk];
    const at::Tensor to = narrowed(out, part.in_box, part.sizes);
    archives_[chunk.archive]->read_box(*chunk.tensor, part.in_chunk, to);
    read += to.numel();
  }
  FSDP2_CHECK(read == out.numel(), Code::kCorruptData,
              "{}: {} of {} elements asked for of {} are there", path(), read, out.numel(),
              printable_name(entry.name));
}

PythonValue PthSource::read_object(const StateEntry& entry) const {
  const PythonValue* object = places_[entry.index].object;
  FSDP2_CHECK(object != nullptr, Code::kInvalidArgument, "{}: {} is a tensor, expected an object",
              path(), printable_name(entry.name));
  check_is_read(*object, fmt::format("{}: {}", path(), printable_name(entry.name)));
  return *object;
}

void PthSource::verify() const {
  for (const auto& archive : archives_) {
    archive->verify();
  }
}

}  // namespace fsdp2::ckpt
