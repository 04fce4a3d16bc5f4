// What a checkpoint directory of ours says about its own bytes, in a file that Python ignores:
//
//   fsdp2-manifest 1 <checksum of all that follows, 16 hex digits>
//   {"block_bytes": 1048576,
//    "files": {".metadata": {"bytes": 4711, "checksum": "<16 hex digits>"},
//              "__0_0.distcp": {"bytes": 123456}, ...},
//    "items": [["__0_0.distcp", 0, 1577, "model.w [0, 0]", "<16 hex digits a block>..."], ...]}
//
// An item is file, offset, bytes, name for messages, and the checksums of its blocks one after the
// other. Files that are read whole have a checksum, files of items have those of the items.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp2::ckpt {

inline constexpr char kManifestFile[] = "fsdp2_manifest";

struct ManifestFile {
  int64_t bytes = 0;
  std::optional<uint64_t> checksum;
};

struct ManifestItem {
  std::string file;
  int64_t offset = 0;
  int64_t bytes = 0;
  std::string name;
  std::vector<uint64_t> blocks;
};

struct Manifest {
  std::map<std::string, ManifestFile> files;
  std::vector<ManifestItem> items;

  // The item at a place; null if there is none.
  const ManifestItem* find(const std::string& file, int64_t offset) const;
};

std::string encode_manifest(const Manifest& manifest);

// The manifest of a directory; nullopt if it has none. Errors: kCorruptData naming the file,
// kUnsupported for a later version, kIo.
std::optional<Manifest> read_manifest(const std::string& directory);

}  // namespace fsdp2::ckpt
