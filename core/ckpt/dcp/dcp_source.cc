#include "core/ckpt/dcp/dcp_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/ckpt/bytes/checked_item.h"
#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/value/box.h"
#include "core/ckpt/value/printable_name.h"
#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

namespace {

std::string name_of_item(const DcpEntry& entry, size_t chunk) {
  const std::string name = printable_name(entry.name);
  return entry.tensor && chunk < entry.tensor->chunks.size()
             ? fmt::format("{} [{}]", name, fmt::join(entry.tensor->chunks[chunk].offsets, ", "))
             : name;
}

std::vector<uint64_t> block_checksums(const MappedFile& file, int64_t offset, int64_t bytes) {
  BlockChecksums sums;
  std::vector<uint8_t> block(static_cast<size_t>(std::min(kBlockBytes, bytes)));
  for (int64_t at = 0; at < bytes; at += kBlockBytes) {
    const int64_t now = std::min(kBlockBytes, bytes - at);
    file.read(offset + at, now, block.data());
    sums.add(block.data(), static_cast<size_t>(now));
  }
  return sums.finish();
}

int64_t file_size(const std::string& directory, const std::string& name) {
  std::error_code error;
  const auto size = std::filesystem::file_size(directory + "/" + name, error);
  FSDP2_CHECK(error != std::errc::no_such_file_or_directory, Code::kCorruptData,
              "{}/{}: is missing, {} says that items are in it", directory, name, kDcpMetadataName);
  FSDP2_CHECK(error != std::errc::filename_too_long, Code::kCorruptData,
              "{}: {} says that items are in a file of {} letters, which none can have", directory,
              kDcpMetadataName, name.size());
  FSDP2_CHECK(!error, Code::kIo, "{}/{}: cannot read its size: {}", directory, name,
              error.message());
  return static_cast<int64_t>(size);
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

DcpSource::DcpSource(const std::string& path) : StateSource(path), manifest_(read_manifest(path)) {
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
  FileSizes sizes;
  for (const DcpEntry& entry : metadata_.entries()) {
    for (const DcpStorage& storage : entry.storage) {
      if (sizes.count(storage.relative_path) == 0) {
        sizes.emplace(storage.relative_path, file_size(path, storage.relative_path));
      }
    }
  }
  std::vector<StateEntry> entries;
  for (size_t i = 0; i < metadata_.entries().size(); ++i) {
    const DcpEntry& entry = metadata_.entries()[i];
    FSDP2_CHECK(!entry.tensor || covers(*entry.tensor), Code::kCorruptData,
                "{}: the chunks of {} do not hold all of it", metadata_path,
                printable_name(entry.name));
    check_storage(entry, sizes);
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

// Before anything is read: a missing or short file is known at once.
void DcpSource::check_storage(const DcpEntry& entry, const FileSizes& sizes) const {
  for (size_t i = 0; i < entry.storage.size(); ++i) {
    const DcpStorage& storage = entry.storage[i];
    const int64_t size = sizes.at(storage.relative_path);
    FSDP2_CHECK(storage.offset >= 0 && storage.length >= 0 && storage.offset <= size &&
                    storage.length <= size - storage.offset,
                Code::kCorruptData, "{}/{}: has {} bytes, item {} should lie at {} with {} bytes",
                path(), storage.relative_path, size, name_of_item(entry, i), storage.offset,
                storage.length);
    if (entry.tensor && storage.transforms.empty()) {
      const int64_t bytes = tensor_bytes(entry.tensor->dtype, entry.tensor->chunks[i].sizes);
      FSDP2_CHECK(bytes <= storage.length, Code::kCorruptData,
                  "{}/{}: item {} has {} bytes, its values alone take {}", path(),
                  storage.relative_path, name_of_item(entry, i), storage.length, bytes);
    }
    if (manifest_) {
      const ManifestItem* item = manifest_item(storage);
      FSDP2_CHECK(item != nullptr && item->bytes == storage.length, Code::kCorruptData,
                  "{}/{}: {} does not know item {}: another program has changed the checkpoint "
                  "(fsdp2 inspect --rebuild-manifest)",
                  path(), storage.relative_path, kManifestFile, name_of_item(entry, i));
    }
  }
}

std::shared_ptr<const MappedFile> DcpSource::file(const std::string& name) const {
  return files_.open(path() + "/" + name);
}

DcpItemFile DcpSource::item(const DcpStorage& storage) const {
  if (const ManifestItem* described = manifest_item(storage)) {
    return DcpItemFile(
        std::make_shared<const CheckedItem>(file(storage.relative_path), *described));
  }
  return DcpItemFile(std::make_shared<const FileBytes>(file(storage.relative_path)));
}

const ManifestItem* DcpSource::manifest_item(const DcpStorage& storage) const {
  return manifest_ ? manifest_->find(storage.relative_path, storage.offset) : nullptr;
}

std::optional<std::string> DcpSource::item_checksum(const DcpEntry& entry, size_t index) const {
  if (const ManifestItem* described = manifest_item(entry.storage[index])) {
    return checksum_of_blocks(described->blocks);
  }
  const auto own = item(entry.storage[index]).checksum(entry, index);
  return own ? std::optional<std::string>(fmt::format("crc32:{:08x}", *own)) : std::nullopt;
}

void DcpSource::warn_unchecked() const {
  if (!has_warned_.exchange(true)) {
    log(LogLevel::kWarning, "checkpoint",
        "{}: has no {}, and items without checksums of their own: nothing tells whether they are "
        "what was written",
        path(), kManifestFile);
  }
}

void DcpSource::read(const StateEntry& listed, at::IntArrayRef begin, const at::Tensor& out) const {
  const DcpEntry& entry = metadata_.entries()[listed.index];
  FSDP2_CHECK(entry.tensor && begin.size() == entry.tensor->shape.size() &&
                  out.dim() == static_cast<int64_t>(begin.size()),
              Code::kInvalidArgument, "{}: {} has {} dims, a box of {} was asked for", path(),
              printable_name(entry.name), entry.tensor ? entry.tensor->shape.size() : 0,
              begin.size());
  int64_t read = 0;
  for (const BoxPart& part : parts_of_box(entry.tensor->chunks, begin, out.sizes())) {
    const at::Tensor to = narrowed(out, part.in_box, part.sizes);
    if (!item(entry.storage[part.chunk]).read_box(entry, part.chunk, part.in_chunk, to)) {
      warn_unchecked();
    }
    read += to.numel();
  }
  FSDP2_CHECK(read == out.numel(), Code::kCorruptData,
              "{}: the chunks of {} hold {} of {} elements asked for", path(),
              printable_name(entry.name), read, out.numel());
}

PythonValue DcpSource::read_object(const StateEntry& listed) const {
  const DcpEntry& entry = metadata_.entries()[listed.index];
  FSDP2_CHECK(!entry.tensor && entry.storage.size() == 1, Code::kInvalidArgument,
              "{}: {} is a tensor, expected an object", path(), printable_name(entry.name));
  const DcpItemFile::Object object = item(entry.storage[0]).read_object(entry);
  check_is_read(object.value(), object.archive.label());
  return object.value();
}

void DcpSource::verify() const {
  for (const DcpEntry& entry : metadata_.entries()) {
    for (size_t i = 0; i < entry.storage.size(); ++i) {
      const DcpStorage& storage = entry.storage[i];
      if (const ManifestItem* described = manifest_item(storage)) {
        CheckedItem(file(storage.relative_path), *described).verify();
      }
      if (!item(storage).verify(entry, i)) {
        warn_unchecked();
      }
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
  OpenFiles files;
  int64_t unchecked = 0;
  for (const DcpEntry& entry : metadata.entries()) {
    for (size_t i = 0; i < entry.storage.size(); ++i) {
      const DcpStorage& storage = entry.storage[i];
      const auto file = files.open(path + "/" + storage.relative_path);
      const bool compared = DcpItemFile(std::make_shared<const FileBytes>(file)).verify(entry, i);
      unchecked += compared ? 0 : 1;
      manifest.files[storage.relative_path] = {file->size(), std::nullopt};
      manifest.items.push_back({storage.relative_path, storage.offset, storage.length,
                                name_of_item(entry, i),
                                block_checksums(*file, storage.offset, storage.length)});
    }
  }
  if (unchecked > 0) {
    log(LogLevel::kWarning, "checkpoint",
        "{}: {} of {} items have no checksum of their own: the new {} describes them as they are "
        "now, damaged or not",
        path, unchecked, manifest.items.size(), kManifestFile);
  }
  const std::string text = encode_manifest(manifest);
  AtomicFile file(path + "/" + kManifestFile);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace fsdp2::ckpt
