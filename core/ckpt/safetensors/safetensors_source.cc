#include "core/ckpt/safetensors/safetensors_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/bytes/tensor_box.h"
#include "core/ckpt/safetensors/sharding.h"
#include "core/ckpt/value/box.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

// The whole that a chunk says it belongs to; what is not said ends where the chunk does.
std::vector<int64_t> shape_of_whole(const SafetensorsEntry& chunk, const SafetensorsShard& shard,
                                    const std::string& file) {
  std::vector<int64_t> shape = shard.shape.value_or(chunk.shape);
  bool fits = shard.offsets.size() == chunk.shape.size() && shape.size() == chunk.shape.size();
  for (size_t dim = 0; fits && !shard.shape && dim < shape.size(); ++dim) {
    fits = !__builtin_add_overflow(shard.offsets[dim], chunk.shape[dim], &shape[dim]);
  }
  FSDP2_CHECK(fits, Code::kCorruptData, "{}: {} does not lie where the file says", file,
              printable_name(chunk.name));
  return shape;
}

}  // namespace

SafetensorsSource::SafetensorsSource(const std::string& path, SafetensorsFiles files)
    : StateSource(path) {
  if (files == SafetensorsFiles::kOnePerRank) {
    add_shards(path);
  } else {
    const SafetensorsFile file(path);
    for (const SafetensorsEntry& entry : file.tensors()) {
      add_whole(entry, path);
    }
  }
  list_entries();
}

SafetensorsSource::SafetensorsSource(const std::string& path,
                                     const std::vector<PlacedSafetensors>& tensors)
    : StateSource(path) {
  for (const PlacedSafetensors& tensor : tensors) {
    add_whole(tensor.entry, tensor.file);
  }
  list_entries();
}

void SafetensorsSource::list_entries() {
  std::vector<StateEntry> entries;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i];
    entries.push_back({tensor.name, {tensor.name}, tensor.whole.dtype, tensor.whole.shape, i});
  }
  set_entries(std::move(entries));
}

void SafetensorsSource::add_whole(const SafetensorsEntry& entry, const std::string& file) {
  const std::vector<int64_t> zeros(entry.shape.size(), 0);
  tensors_.push_back(
      {entry.name, {entry.dtype, entry.shape, {{zeros, entry.shape}}}, {{file, entry}}});
}

void SafetensorsSource::add_shards(const std::string& directory) {
  std::unordered_map<std::string, size_t> index;
  for (const std::string& name : names_in(directory)) {
    if (!is_shard_file(name)) {
      continue;
    }
    const std::string path = directory + "/" + name;
    const SafetensorsFile file(path);
    const SafetensorsShards shards = read_shards(file.metadata(), path);
    for (const SafetensorsEntry& chunk : file.tensors()) {
      const auto said = shards.find(chunk.name);
      const SafetensorsShard shard =
          said != shards.end()
              ? said->second
              : SafetensorsShard{std::vector<int64_t>(chunk.shape.size(), 0), chunk.shape};
      const std::vector<int64_t> shape = shape_of_whole(chunk, shard, path);
      const auto [found, is_new] = index.emplace(chunk.name, tensors_.size());
      if (is_new) {
        tensors_.push_back({chunk.name, {chunk.dtype, shape, {}}, {}});
      }
      Tensor& tensor = tensors_[found->second];
      ChunkedTensor& whole = tensor.whole;
      FSDP2_CHECK(whole.dtype == chunk.dtype && whole.shape.size() == shape.size() &&
                      (!shard.shape || whole.shape == shape),
                  Code::kCorruptData, "{}: {} has another dtype or shape than in {}", path,
                  printable_name(chunk.name), tensor.chunks.front().file);
      for (size_t dim = 0; dim < shape.size(); ++dim) {
        whole.shape[dim] = std::max(whole.shape[dim], shape[dim]);
      }
      whole.chunks.push_back({shard.offsets, chunk.shape});
      tensor.chunks.push_back({path, chunk});
    }
  }
  check_shards();
}

void SafetensorsSource::check_shards() const {
  for (const Tensor& tensor : tensors_) {
    const std::string fault = find_fault(tensor.whole);
    FSDP2_CHECK(fault.empty(), Code::kCorruptData, "{}: {} {}", path(), printable_name(tensor.name),
                fault);
    FSDP2_CHECK(covers(tensor.whole), Code::kCorruptData,
                "{}: the files do not hold all of {}: is that of a rank missing?", path(),
                printable_name(tensor.name));
  }
}

void SafetensorsSource::read(const StateEntry& listed, at::IntArrayRef begin,
                             const at::Tensor& out) const {
  const Tensor& tensor = tensors_[listed.index];
  const ChunkedTensor& whole = tensor.whole;
  bool fits = begin.size() == whole.shape.size() && out.dim() == static_cast<int64_t>(begin.size());
  for (size_t dim = 0; fits && dim < begin.size(); ++dim) {
    fits = begin[dim] >= 0 && begin[dim] <= whole.shape[dim] - out.size(static_cast<int64_t>(dim));
  }
  FSDP2_CHECK(fits, Code::kInvalidArgument, "{}: {} is [{}], a box of [{}] at [{}] was asked for",
              path(), printable_name(listed.name), fmt::join(whole.shape, ", "),
              fmt::join(out.sizes(), ", "), fmt::join(begin, ", "));
  for (const BoxPart& part : parts_of_box(whole.chunks, begin, out.sizes())) {
    const Chunk& chunk = tensor.chunks[part.chunk];
    const auto source = source_of(open(chunk), chunk.entry);
    const StoredTensor stored = describe_tensor(0, whole.dtype, chunk.entry.shape);
    read_tensor_box(*source, chunk.entry.offset, stored, part.in_chunk,
                    narrowed(out, part.in_box, part.sizes),
                    fmt::format("{}: {}", chunk.file, printable_name(listed.name)));
  }
}

PythonValue SafetensorsSource::read_object(const StateEntry& entry) const {
  fail(Code::kInvalidArgument, "{}: {} is a tensor, expected an object", path(),
       printable_name(entry.name));
}

void SafetensorsSource::verify() const {
  std::vector<char> block(static_cast<size_t>(kBlockBytes));
  for (const Tensor& tensor : tensors_) {
    for (const Chunk& chunk : tensor.chunks) {
      const auto source = source_of(open(chunk), chunk.entry);
      for (int64_t at = 0; at < chunk.entry.bytes; at += kBlockBytes) {
        const int64_t now = std::min(kBlockBytes, chunk.entry.bytes - at);
        source->read(chunk.entry.offset + at, now, block.data());
      }
    }
  }
}

// The file may have been replaced since its header was read.
std::shared_ptr<const MappedFile> SafetensorsSource::open(const Chunk& chunk) const {
  auto file = files_.open(chunk.file);
  FSDP2_CHECK(chunk.entry.offset + chunk.entry.bytes <= file->size(), Code::kIo,
              "{}: has {} bytes now, {} is expected at {} with {}: it was cut while in use",
              chunk.file, file->size(), printable_name(chunk.entry.name), chunk.entry.offset,
              chunk.entry.bytes);
  return file;
}

}  // namespace fsdp2::ckpt
