// What must hold for an entry of DCP metadata, whether it was read or is to be written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/dcp/metadata.h"

namespace fsdp2::ckpt {

// What is wrong with the entry, as the end of a sentence that begins with its name; empty if
// nothing is.
std::string find_fault(const DcpEntry& entry);
// The same of a tensor's shape and chunks alone.
std::string find_fault(const ChunkedTensor& tensor);

// Elements. REQUIRES: they fit int64, as those of a faultless entry do.
int64_t numel_of(const std::vector<int64_t>& sizes);

}  // namespace fsdp2::ckpt
