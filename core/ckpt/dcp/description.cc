#include "core/ckpt/dcp/description.h"

#include <fmt/ranges.h>

#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/bytes/manifest.h"

namespace fsdp2::ckpt {

namespace {

void write_synced(const std::string& path, const std::string& text) {
  ItemWriter file(path);
  file.append([&](const ByteSink& sink) { sink(text.data(), text.size()); });
  file.finish();
}

}  // namespace

void write_dcp_description(const std::string& directory, std::vector<DcpEntry> entries,
                           const std::vector<DcpPart>& parts) {
  Manifest manifest;
  for (const DcpPart& part : parts) {
    manifest.files[part.file] = {part.bytes, std::nullopt};
    for (const DcpPart::Item& item : part.items) {
      FSDP2_CHECK(item.entry < entries.size(), Code::kInternal, "{}: item {} of {} entries",
                  part.file, item.entry, entries.size());
      DcpEntry& entry = entries[item.entry];
      std::string name = entry.name;
      if (entry.tensor) {
        name += fmt::format(" [{}]", fmt::join(item.chunk.offsets, ", "));
        entry.tensor->chunks.push_back(item.chunk);
      }
      entry.storage.push_back({part.file, item.written.offset, item.written.bytes, {}});
      manifest.items.push_back(
          {part.file, item.written.offset, item.written.bytes, name, item.written.blocks});
    }
  }
  DcpMetadata metadata;
  for (DcpEntry& entry : entries) {
    metadata.add(std::move(entry));
  }
  const std::string text = encode_dcp_metadata(metadata);
  manifest.files[kDcpMetadataName] = {static_cast<int64_t>(text.size()),
                                      checksum(text.data(), text.size())};
  write_synced(directory + "/" + kManifestFile, encode_manifest(manifest));
  write_synced(directory + "/" + kDcpMetadataName, text);
}

}  // namespace fsdp2::ckpt
