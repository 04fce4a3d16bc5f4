#include "core/exported/program/serialized_types.h"

#include <algorithm>
#include <array>

namespace fsdp2::exported {

namespace {

struct Dtype {
  int64_t number;
  at::ScalarType dtype;
};

constexpr std::array<Dtype, 18> kDtypes = {{{1, at::kByte},
                                            {2, at::kChar},
                                            {3, at::kShort},
                                            {4, at::kInt},
                                            {5, at::kLong},
                                            {6, at::kHalf},
                                            {7, at::kFloat},
                                            {8, at::kDouble},
                                            {9, at::kComplexHalf},
                                            {10, at::kComplexFloat},
                                            {11, at::kComplexDouble},
                                            {12, at::kBool},
                                            {13, at::kBFloat16},
                                            {28, at::kUInt16},
                                            {29, at::kFloat8_e4m3fn},
                                            {30, at::kFloat8_e5m2},
                                            {31, at::kFloat8_e4m3fnuz},
                                            {32, at::kFloat8_e5m2fnuz}}};

}  // namespace

std::optional<at::ScalarType> serialized_dtype(int64_t number) {
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const Dtype& entry) { return entry.number == number; });
  return found == kDtypes.end() ? std::nullopt : std::optional<at::ScalarType>(found->dtype);
}

std::optional<at::MemoryFormat> serialized_memory_format(int64_t number) {
  switch (number) {
    case 1:
      return at::MemoryFormat::Contiguous;
    case 2:
      return at::MemoryFormat::ChannelsLast;
    case 3:
      return at::MemoryFormat::ChannelsLast3d;
    case 4:
      return at::MemoryFormat::Preserve;
    default:
      return std::nullopt;
  }
}

}  // namespace fsdp2::exported
