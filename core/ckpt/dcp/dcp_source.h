// A DCP directory, open for reading: ours with its manifest, or Python's.
//
// With a manifest every byte that is used has been compared with a checksum first, and only the
// blocks that hold bytes needed are read. Without, the checksums inside the items are compared, for
// which items are read whole; of items that were written without them, as our own large ones are,
// nothing is compared, which is logged once.
//
// Data files are opened when they are first read, and a few stay open.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/ckpt/bytes/manifest.h"
#include "core/ckpt/bytes/open_files.h"
#include "core/ckpt/dcp/item_file.h"
#include "core/ckpt/dcp/metadata.h"
#include "core/ckpt/state/state_source.h"

namespace fsdp2::ckpt {

class DcpSource final : public StateSource {
 public:
  // Errors: kNotFound if there is no .metadata (an interrupted save?); kCorruptData if it is
  // damaged or not the one of the manifest, if a file lacks bytes, or if chunks do not cover a
  // tensor; kIo.
  explicit DcpSource(const std::string& path);

  const DcpMetadata& metadata() const { return metadata_; }
  const std::optional<Manifest>& manifest() const { return manifest_; }
  // What an item (a chunk, or an object's 0) is compared with when it is read: of the manifest the
  // checksum of its blocks', else the item's own CRC-32. nullopt: nothing. Reads no values.
  std::optional<std::string> item_checksum(const DcpEntry& entry, size_t index) const;

  void read(const StateEntry& entry, at::IntArrayRef begin, const at::Tensor& out) const override;
  PythonValue read_object(const StateEntry& entry) const override;
  void verify() const override;

 private:
  using FileSizes = std::map<std::string, int64_t>;  // by name

  std::shared_ptr<const MappedFile> file(const std::string& name) const;
  // The item's bytes, compared on the way if there is a manifest.
  DcpItemFile item(const DcpStorage& storage) const;
  // The manifest's item at a place in a file; null without a manifest.
  const ManifestItem* manifest_item(const DcpStorage& storage) const;
  void check_storage(const DcpEntry& entry, const FileSizes& sizes) const;
  void warn_unchecked() const;

  std::optional<Manifest> manifest_;
  DcpMetadata metadata_;
  mutable OpenFiles files_;
  mutable std::atomic<bool> has_warned_{false};
};

// Writes a manifest for the directory as it is now, reading everything: for one that another
// program has written or changed. Items without a checksum of their own are taken as they are,
// which is logged with their number. Errors: those of DcpSource without a manifest.
void rebuild_manifest(const std::string& path);

}  // namespace fsdp2::ckpt
