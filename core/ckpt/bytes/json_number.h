// The numbers of a JSON text that may be hostile.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace fsdp2::ckpt {

// The value if it is written as a whole number from 0 to 2^63 - 1. The library's own get<int64_t>()
// also takes true, -1, 1.5, 2^64 - 1, and 1e79, for which C++ defines no result.
std::optional<int64_t> whole_number(const nlohmann::json& value);

}  // namespace fsdp2::ckpt
