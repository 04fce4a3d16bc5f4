// Checksums of a safetensors file's tensors, which the format lacks, in its metadata, where other
// programs pass over them:
//
//   "__metadata__": {"format": "pt",
//                    "fsdp2_checksums": "{\"block_bytes\": 1048576,
//                                         \"tensors\": {\"w\": \"<16 hex digits a block>...\"}}"}
//
// A program that changes tensors and keeps the metadata of the file they came from makes a file
// that looks damaged here: it should leave this key out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdp2::ckpt {

inline constexpr char kSafetensorsChecksums[] = "fsdp2_checksums";

// The checksums of each tensor's blocks (checksum.h), by its name.
using TensorChecksums = std::map<std::string, std::vector<uint64_t>>;

// The value of the key; its length follows from the names and the numbers of blocks alone.
std::string tensor_checksums_text(const TensorChecksums& checksums);

// kCorruptData for another text, kUnsupported for other blocks; `file` is for messages.
TensorChecksums parse_tensor_checksums(const std::string& text, const std::string& file);

}  // namespace fsdp2::ckpt
