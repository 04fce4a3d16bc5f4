// What must hold for an entry of DCP metadata, whether it was read or is to be written.
#pragma once

#include <string>

#include "core/ckpt/dcp/metadata.h"

namespace fsdp2::ckpt {

// What is wrong with the entry, as the end of a sentence that begins with its name; empty if
// nothing is. chunked_tensor.h checks a tensor alone.
std::string find_fault(const DcpEntry& entry);

}  // namespace fsdp2::ckpt
