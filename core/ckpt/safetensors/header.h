// The JSON header of a safetensors file, apart from files: text to checked tensors. The format is
// described in safetensors/safetensors_file.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/ckpt/safetensors/safetensors_file.h"

namespace fsdp2::ckpt {

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  // Ordered by offset, which counts from the start of the data. Checked: the ranges have the sizes
  // that dtype and shape give and cover data_bytes exactly.
  std::vector<SafetensorsEntry> tensors;
};

// Memory and time are bounded by the text's length whatever it holds: anything that is not the
// format's is refused where it begins. `file` is for messages.
SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_bytes,
                                           const std::string& file);

inline constexpr int64_t kSafetensorsLengthBytes = 8;
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;
inline constexpr size_t kMaxSafetensorsDims = 64;  // LibTorch's limit for many operators
inline constexpr char kSafetensorsMetadataKey[] = "__metadata__";

}  // namespace fsdp2::ckpt
