// The directory of a zip file as torch.save writes it, read with the distrust that files deserve.
//
//   [local header, name, extra, data, (descriptor)] ...  the entries
//   [central header, name, extra, comment] ...           the directory: sizes, checksums, places
//   (zip64 end record, its locator), end record          where the directory is
//
// Refused: encrypted entries; compressed ones, with which a file can unpack to more than its size,
// unless the caller asks for them; entries that overlap one another or the directory; two of one
// name; sizes that differ between an entry and the directory; more than one folder; archives in
// several parts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/ckpt/bytes/byte_source.h"

namespace fsdp2::ckpt {

struct ZipRecord {
  int64_t offset;  // in the file
  int64_t bytes;
  uint32_t checksum;         // CRC-32
  int64_t packed_bytes = 0;  // in the file, if it is compressed (deflate); 0: stored as it is
};

// Which entries an archive may have.
enum class ZipEntries { kStored, kStoredOrPacked };

// The entries of the archive in bytes [offset, offset + length) of a file, by their names without
// the folder that they are all in. `label` is for messages.
// REQUIRES: the range is inside the file. Errors: kCorruptData, kUnsupported, kIo.
std::unordered_map<std::string, ZipRecord> read_zip_directory(
    const ByteSource& file, int64_t offset, int64_t length, const std::string& label,
    ZipEntries allowed = ZipEntries::kStored);

// CRC-32 as zip files have it; `before` is that of the bytes in front.
uint32_t zip_checksum(const void* data, size_t count, uint32_t before = 0);

// Fills `bytes` with what `packed` (deflate) unpacks to. Whether that is as many, and all of it.
bool zip_unpack(std::string_view packed, std::string& bytes);

}  // namespace fsdp2::ckpt
