// Zip archives put together by hand, right or wrong.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/torch/zip.h"

namespace fsdp2::ckpt {

inline std::string number_bytes(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>(value & 0xFF);
    value >>= 8;
  }
  return bytes;
}

struct ZipEntry {
  std::string name = {};
  std::string data = {};
  uint16_t method = 0;
  uint16_t flags = 0;
  // What the directory says instead of the truth; -1: the truth.
  int64_t listed_bytes = -1;
  int64_t listed_offset = -1;
  std::string listed_name = {};  // empty: the truth
  std::string packed = {};       // in place of the data, with the method 8

  const std::string& stored() const { return packed.empty() ? data : packed; }
};

// As torch.save writes them when it is told to compute none.
inline void clear_checksums(std::string& zip) {
  for (const auto& [signature, at] : {std::pair("PK\x03\x04", 14), std::pair("PK\x01\x02", 16)}) {
    for (size_t header = zip.find(signature); header != std::string::npos;
         header = zip.find(signature, header + 4)) {
      zip.replace(header + static_cast<size_t>(at), 4, 4, '\0');
    }
  }
}

struct ZipEnd {
  int64_t entries = -1;
  int64_t bytes = -1;
  int64_t offset = -1;
};

inline int64_t listed(int64_t value, int64_t truth) { return value >= 0 ? value : truth; }

// method, time, checksum, packed and unpacked bytes
inline std::string zip_numbers(const ZipEntry& entry, uint64_t bytes) {
  const uint64_t in_file = entry.packed.empty() ? bytes : entry.packed.size();
  return number_bytes(entry.packed.empty() ? entry.method : 8, 2) + number_bytes(0, 4) +
         number_bytes(zip_checksum(entry.data.data(), entry.data.size()), 4) +
         number_bytes(in_file, 4) + number_bytes(bytes, 4);
}

inline std::string zip_text(const std::vector<ZipEntry>& entries, const ZipEnd& end = {}) {
  std::string text;
  std::string directory;
  for (const ZipEntry& entry : entries) {
    const auto offset = static_cast<int64_t>(text.size());
    text += "PK\x03\x04" + number_bytes(20, 2) + number_bytes(entry.flags, 2) +
            zip_numbers(entry, entry.data.size()) + number_bytes(entry.name.size(), 2) +
            number_bytes(0, 2) + entry.name + entry.stored();
    const std::string name = entry.listed_name.empty() ? entry.name : entry.listed_name;
    const auto bytes = listed(entry.listed_bytes, static_cast<int64_t>(entry.data.size()));
    directory += "PK\x01\x02" + number_bytes(20, 2) + number_bytes(20, 2) +
                 number_bytes(entry.flags, 2) + zip_numbers(entry, static_cast<uint64_t>(bytes)) +
                 number_bytes(name.size(), 2) + number_bytes(0, 12) +
                 number_bytes(static_cast<uint64_t>(listed(entry.listed_offset, offset)), 4) + name;
  }
  const auto count = static_cast<int64_t>(entries.size());
  const auto begin = static_cast<int64_t>(text.size());
  const auto bytes = static_cast<int64_t>(directory.size());
  text += directory + "PK\x05\x06" + number_bytes(0, 4);
  text += number_bytes(static_cast<uint64_t>(listed(end.entries, count)), 2);
  text += number_bytes(static_cast<uint64_t>(listed(end.entries, count)), 2);
  text += number_bytes(static_cast<uint64_t>(listed(end.bytes, bytes)), 4);
  text += number_bytes(static_cast<uint64_t>(listed(end.offset, begin)), 4);
  return text + number_bytes(0, 2);
}

}  // namespace fsdp2::ckpt
