#include "core/exported/program/serialized_types.h"

#include <algorithm>
#include <array>
#include <cstdint>

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

constexpr int64_t kStrided = 7;

}  // namespace

at::ScalarType read_dtype(const JsonDocument& document, const json& number) {
  const int64_t wanted = document.integer(number);
  const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(),
                                   [&](const Dtype& entry) { return entry.number == wanted; });
  if (found == kDtypes.end()) {
    document.refuse(Code::kUnsupported, number, "the dtype {} is not known", wanted);
  }
  return found->dtype;
}

at::MemoryFormat read_memory_format(const JsonDocument& document, const json& number) {
  switch (document.integer(number)) {
    case 1:
      return at::MemoryFormat::Contiguous;
    case 2:
      return at::MemoryFormat::ChannelsLast;
    case 3:
      return at::MemoryFormat::ChannelsLast3d;
    case 4:
      return at::MemoryFormat::Preserve;
    default:
      document.refuse(Code::kUnsupported, number, "the memory format {} is not known",
                      number.dump());
  }
}

void check_strided(const JsonDocument& document, const json& number) {
  if (document.integer(number) != kStrided) {
    document.refuse(Code::kUnsupported, number, "expected 7 (strided), found {}", number.dump());
  }
}

}  // namespace fsdp2::exported
