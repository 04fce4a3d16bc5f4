// A DCP directory, open for reading: ours with its manifest, or Python's.
//
// With a manifest every byte that is used has been compared with a checksum first, and only the
// blocks that hold bytes needed are read. Without, the checksums inside the items are compared, for
// which items are read whole.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/ckpt/dcp_item.h"
#include "core/ckpt/dcp_metadata.h"
#include "core/ckpt/manifest.h"
#include "core/ckpt/state_source.h"

namespace fsdp2::ckpt {

class DcpDirectory final : public StateSource {
 public:
  // Errors: kNotFound if there is no .metadata (an interrupted save?); kCorruptData if it is
  // damaged or not the one of the manifest, if a file lacks bytes, or if chunks do not cover a
  // tensor; kIo.
  explicit DcpDirectory(const std::string& path);
  ~DcpDirectory() override;

  const DcpMetadata& metadata() const { return metadata_; }
  const std::optional<Manifest>& manifest() const { return manifest_; }

  void read(const StateEntry& entry, at::IntArrayRef begin, const at::Tensor& out) const override;
  PickleValue read_object(const StateEntry& entry) const override;
  void verify() const override;

 private:
  struct OpenFile;

  const OpenFile& file(const std::string& name) const;
  // Of a place in a file; null without a manifest.
  const ManifestItem* manifest_item(const DcpStorage& storage) const;
  void check_storage(const DcpEntry& entry) const;
  void read_chunk_box(const DcpEntry& entry, size_t chunk, at::IntArrayRef begin,
                      const at::Tensor& out) const;

  std::optional<Manifest> manifest_;
  DcpMetadata metadata_;
  mutable std::mutex mutex_;  // of files_, which are opened when they are first read
  mutable std::unordered_map<std::string, std::unique_ptr<OpenFile>> files_;
};

// Writes a manifest for the directory as it is now, reading everything: for one that another
// program has written or changed. Errors: those of DcpDirectory without a manifest.
void rebuild_manifest(const std::string& path);

}  // namespace fsdp2::ckpt
