// The last files of a DCP directory that is being written: `.metadata` and our manifest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/dcp/item_writer.h"
#include "core/ckpt/dcp/metadata.h"

namespace fsdp2::ckpt {

// What one data file holds.
struct DcpPart {
  struct Item {
    size_t entry;  // index among the entries
    Box chunk;     // of a tensor
    WrittenItem written;
  };

  std::string file;  // its name
  int64_t bytes = 0;
  std::vector<Item> items;
};

// Writes and syncs both files. `entries` come without chunks and storage, which the parts bring.
// Errors: kIo; those of encode_dcp_metadata.
void write_dcp_description(const std::string& directory, std::vector<DcpEntry> entries,
                           const std::vector<DcpPart>& parts);

}  // namespace fsdp2::ckpt
