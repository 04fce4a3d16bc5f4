#include "core/ckpt/bytes/json_number.h"

#include <nlohmann/json.hpp>

namespace fsdp2::ckpt {

std::optional<int64_t> whole_number(const nlohmann::json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

}  // namespace fsdp2::ckpt
