// One rank's part of a DCP directory that is being written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/ckpt/dcp/description.h"
#include "core/ckpt/state/part_item.h"

namespace fsdp2::ckpt {

struct PartFiles {
  int threads = 1;             // each writes files of its own
  bool file_per_item = false;  // else one a thread
};

// Writes and syncs __<rank>_0.distcp, __<rank>_1.distcp, ... and says what is in them. The first
// file is there even if there is nothing to write. After each item `progress` is called with its
// bytes, and after each file with 0, on any thread. Errors: kIo, of the first file that failed.
std::vector<DcpPart> write_part(const std::string& directory, int rank,
                                const std::vector<PartItem>& items, const PartFiles& files,
                                const std::function<void(int64_t bytes)>& progress);

}  // namespace fsdp2::ckpt
