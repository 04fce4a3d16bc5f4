// Beyond these a number in config.json is a mistake or an attack. Products of two of them, in
// bytes, stay within int64.
#pragma once

#include <cstdint>

namespace fsdp2::models {

constexpr int64_t kMaxVocabulary = int64_t{1} << 26;
constexpr int64_t kMaxWidth = int64_t{1} << 22;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxHeads = int64_t{1} << 14;
constexpr int64_t kMaxHeadDim = int64_t{1} << 14;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

}  // namespace fsdp2::models
