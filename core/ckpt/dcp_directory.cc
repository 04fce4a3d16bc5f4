#include "core/ckpt/dcp_directory.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/box_parts.h"
#include "core/ckpt/checksum.h"
#include "core/ckpt/printable_name.h"
#include "core/ckpt/torch_archive.h"

namespace fsdp2::ckpt {

namespace {

std::string item_name(const DcpEntry& entry, size_t chunk) {
  const std::string name = printable_name(entry.name);
  return entry.tensor && chunk < entry.tensor->chunks.size()
             ? fmt::format("{} [{}]", name, fmt::join(entry.tensor->chunks[chunk].offsets, ", "))
             : name;
}

// Compares the block that begins at byte `at` of an item and has been read to `data`.
void check_block(const MappedFile& file, const ManifestItem& item, int64_t at,
                 const uint8_t* data) {
  const int64_t bytes = std::min(kBlockBytes, item.bytes - at);
  FSDP2_CHECK(checksum(data, static_cast<size_t>(bytes)) ==
                  item.blocks[static_cast<size_t>(at / kBlockBytes)],
              Code::kCorruptData,
              "{}: item {} is damaged: bytes {} to {} of the file are not what was written",
              file.path(), item.name, item.offset + at, item.offset + at + bytes);
}

// Compares the blocks of an item that hold bytes [begin, end) of it.
void check_blocks(const MappedFile& file, const ManifestItem& item, int64_t begin, int64_t end) {
  file.check_size();
  for (int64_t block = begin / kBlockBytes; block < block_count(end); ++block) {
    const int64_t at = block * kBlockBytes;
    check_block(file, item, at, file.bytes().data() + item.offset + at);
  }
}

// Reads bytes [begin, end) of an item, comparing whole blocks where they were read to.
void read_checked(const MappedFile& file, const ManifestItem& item, int64_t begin, int64_t end,
                  uint8_t* out) {
  for (int64_t at = begin; at < end;) {
    const int64_t block = at / kBlockBytes * kBlockBytes;
    const int64_t block_end = std::min(block + kBlockBytes, item.bytes);
    const int64_t stop = std::min(block_end, end);
    if (at != block || stop != block_end) {
      check_blocks(file, item, at, stop);
    }
    file.read(item.offset + at, stop - at, out + (at - begin));
    if (at == block && stop == block_end) {
      check_block(file, item, block, out + (at - begin));
    }
    at = stop;
  }
}

// A box within another, in elements, row-major: from its first to behind its last.
std::pair<int64_t, int64_t> element_range(at::IntArrayRef shape, at::IntArrayRef begin,
                                          at::IntArrayRef sizes) {
  int64_t first = 0;
  int64_t last = 0;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    first = first * shape[dim] + begin[dim];
    last = last * shape[dim] + begin[dim] + sizes[dim] - 1;
  }
  return {first, last + 1};
}

std::string read_whole(const std::string& path, int64_t max_bytes) {
  try {
    return read_text_file(path, max_bytes);
  } catch (const Error& error) {
    if (error.code() == Code::kNotFound) {
      fail(Code::kNotFound, "{}: is not there: the directory holds no complete checkpoint", path);
    }
    throw;
  }
}

}  // namespace

struct DcpDirectory::OpenFile {
  explicit OpenFile(const std::string& path)
      : mapped(std::make_shared<const MappedFile>(path)), items(path) {}

  std::shared_ptr<const MappedFile> mapped;
  DcpItemFile items;
};

DcpDirectory::DcpDirectory(const std::string& path)
    : StateSource(path), manifest_(read_manifest(path)) {
  const std::string metadata_path = path + "/" + kDcpMetadataName;
  const std::string bytes = read_whole(metadata_path, kMaxDcpMetadataBytes);
  if (manifest_) {
    const auto said = manifest_->files.find(kDcpMetadataName);
    FSDP2_CHECK(said != manifest_->files.end() &&
                    said->second.checksum == checksum(bytes.data(), bytes.size()),
                Code::kCorruptData,
                "{}: is not the one that {} describes: it is damaged, or another program has "
                "written over the checkpoint (fsdp2 inspect --rebuild-manifest then)",
                metadata_path, kManifestFile);
  }
  metadata_ = decode_dcp_metadata(bytes, metadata_path);
  std::vector<StateEntry> entries;
  for (size_t i = 0; i < metadata_.entries().size(); ++i) {
    const DcpEntry& entry = metadata_.entries()[i];
    FSDP2_CHECK(!entry.tensor || covers(*entry.tensor), Code::kCorruptData,
                "{}: the chunks of {} do not hold all of it", metadata_path,
                printable_name(entry.name));
    check_storage(entry);
    StateEntry listed{entry.name, entry.path, std::nullopt, {}, i};
    if (entry.tensor) {
      listed.dtype = entry.tensor->dtype;
      listed.shape = entry.tensor->shape;
    }
    if (listed.path.empty()) {
      listed.path = {entry.name};
    }
    entries.push_back(std::move(listed));
  }
  set_entries(std::move(entries));
}

DcpDirectory::~DcpDirectory() = default;

// Before anything is read: a missing or short file is known at once.
void DcpDirectory::check_storage(const DcpEntry& entry) const {
  for (size_t i = 0; i < entry.storage.size(); ++i) {
    const DcpStorage& storage = entry.storage[i];
    const int64_t size = file(storage.relative_path).items.size();
    FSDP2_CHECK(storage.offset >= 0 && storage.length >= 0 && storage.offset <= size &&
                    storage.length <= size - storage.offset,
                Code::kCorruptData, "{}/{}: has {} bytes, item {} should lie at {} with {} bytes",
                path(), storage.relative_path, size, item_name(entry, i), storage.offset,
                storage.length);
    if (manifest_) {
      const ManifestItem* item = manifest_item(storage);
      FSDP2_CHECK(item != nullptr && item->bytes == storage.length, Code::kCorruptData,
                  "{}/{}: {} does not know item {}: another program has changed the checkpoint "
                  "(fsdp2 inspect --rebuild-manifest)",
                  path(), storage.relative_path, kManifestFile, item_name(entry, i));
    }
  }
}

const DcpDirectory::OpenFile& DcpDirectory::file(const std::string& name) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<OpenFile>& entry = files_[name];
  if (!entry) {
    try {
      entry = std::make_unique<OpenFile>(path() + "/" + name);
    } catch (const Error& error) {
      FSDP2_CHECK(error.code() != Code::kNotFound, Code::kCorruptData,
                  "{}/{}: is missing, {} says that items are in it", path(), name,
                  kDcpMetadataName);
      throw;
    }
  }
  return *entry;
}

const ManifestItem* DcpDirectory::manifest_item(const DcpStorage& storage) const {
  return manifest_ ? manifest_->find(storage.relative_path, storage.offset) : nullptr;
}

void DcpDirectory::read_chunk_box(const DcpEntry& entry, size_t chunk, at::IntArrayRef begin,
                                  const at::Tensor& out) const {
  const DcpStorage& storage = entry.storage[chunk];
  const DcpChunk& box = entry.tensor->chunks[chunk];
  const OpenFile& from = file(storage.relative_path);
  const ManifestItem* item = manifest_item(storage);
  if (item == nullptr) {
    if (out.sizes() != at::IntArrayRef(box.sizes)) {
      from.items.verify(entry, chunk);  // a part of an item has no checksum of its own
    }
    from.items.read_box(entry, chunk, begin, out);
    return;
  }
  // What describes the tensor stands in front of it and behind.
  check_blocks(*from.mapped, *item, 0, std::min<int64_t>(1, item->bytes));
  check_blocks(*from.mapped, *item, std::max<int64_t>(0, item->bytes - kBlockBytes), item->bytes);
  const TorchArchive archive(from.mapped, storage.offset, storage.length, item->name);
  const auto* tensor = archive.root().as<PickleTensor>();
  FSDP2_CHECK(
      tensor != nullptr && tensor->dtype == entry.tensor->dtype && tensor->shape == box.sizes,
      Code::kCorruptData, "{}: is not the tensor that {} describes", archive.label(),
      kDcpMetadataName);
  if (tensor->stride != describe_tensor(0, tensor->dtype, tensor->shape).stride) {
    // Python keeps the strides of a transposed tensor.
    check_blocks(*from.mapped, *item, 0, item->bytes);
    archive.read_box(*tensor, begin, out);
    return;
  }
  const auto [first, last] = element_range(box.sizes, begin, out.sizes());
  const auto item_size = static_cast<int64_t>(c10::elementSize(tensor->dtype));
  const int64_t data = archive.file_offset(*tensor) - storage.offset;
  const bool one_piece = out.is_cpu() && out.is_contiguous() &&
                         out.scalar_type() == tensor->dtype && tensor->dtype != at::kBool &&
                         out.numel() == last - first;
  if (one_piece) {
    read_checked(*from.mapped, *item, data + first * item_size, data + last * item_size,
                 static_cast<uint8_t*>(out.mutable_data_ptr()));
    return;
  }
  check_blocks(*from.mapped, *item, data + first * item_size, data + last * item_size);
  archive.read_box(*tensor, begin, out);
}

void DcpDirectory::read(const StateEntry& listed, at::IntArrayRef begin,
                        const at::Tensor& out) const {
  const DcpEntry& entry = metadata_.entries()[listed.index];
  FSDP2_CHECK(entry.tensor && begin.size() == entry.tensor->shape.size() &&
                  out.dim() == static_cast<int64_t>(begin.size()),
              Code::kInvalidArgument, "{}: {} has {} dims, a box of {} was asked for", path(),
              printable_name(entry.name), entry.tensor ? entry.tensor->shape.size() : 0,
              begin.size());
  int64_t read = 0;
  for (const BoxPart& part : parts_of_box(entry.tensor->chunks, begin, out.sizes())) {
    const at::Tensor to = narrowed(out, part.in_box, part.sizes);
    read_chunk_box(entry, part.chunk, part.in_chunk, to);
    read += to.numel();
  }
  FSDP2_CHECK(read == out.numel(), Code::kCorruptData,
              "{}: the chunks of {} hold {} of {} elements asked for", path(),
              printable_name(entry.name), read, out.numel());
}

PickleValue DcpDirectory::read_object(const StateEntry& listed) const {
  const DcpEntry& entry = metadata_.entries()[listed.index];
  FSDP2_CHECK(!entry.tensor && entry.storage.size() == 1, Code::kInvalidArgument,
              "{}: {} is a tensor, expected an object", path(), printable_name(entry.name));
  const OpenFile& from = file(entry.storage[0].relative_path);
  if (const ManifestItem* item = manifest_item(entry.storage[0])) {
    check_blocks(*from.mapped, *item, 0, item->bytes);
  } else {
    from.items.verify(entry, 0);
  }
  return from.items.read_object(entry).value();
}

void DcpDirectory::verify() const {
  for (const DcpEntry& entry : metadata_.entries()) {
    for (size_t i = 0; i < entry.storage.size(); ++i) {
      const OpenFile& from = file(entry.storage[i].relative_path);
      if (const ManifestItem* item = manifest_item(entry.storage[i])) {
        check_blocks(*from.mapped, *item, 0, item->bytes);
      }
      from.items.verify(entry, i);
    }
  }
}

void rebuild_manifest(const std::string& path) {
  const std::string metadata_path = path + "/" + kDcpMetadataName;
  const std::string bytes = read_whole(metadata_path, kMaxDcpMetadataBytes);
  const DcpMetadata metadata = decode_dcp_metadata(bytes, metadata_path);
  Manifest manifest;
  manifest.files[kDcpMetadataName] = {static_cast<int64_t>(bytes.size()),
                                      checksum(bytes.data(), bytes.size())};
  for (const DcpEntry& entry : metadata.entries()) {
    for (size_t i = 0; i < entry.storage.size(); ++i) {
      const DcpStorage& storage = entry.storage[i];
      const MappedFile file(path + "/" + storage.relative_path);
      DcpItemFile(file.path()).verify(entry, i);
      BlockChecksums sums;
      sums.add(file.bytes().data() + storage.offset, static_cast<size_t>(storage.length));
      manifest.files[storage.relative_path] = {file.size(), std::nullopt};
      manifest.items.push_back({storage.relative_path, storage.offset, storage.length,
                                item_name(entry, i), sums.finish()});
    }
  }
  const std::string text = encode_manifest(manifest);
  AtomicFile file(path + "/" + kManifestFile);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace fsdp2::ckpt
