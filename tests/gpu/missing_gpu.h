#pragma once

#include <c10/core/DeviceType.h>

#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/device/plugin.h"

namespace fsdp2 {

// Why there is no GPU to test on, if so.
inline std::optional<std::string> missing_gpu() {
  try {
    if (open_device_plugin(at::kCUDA).device_count() == 0) {
      return "no GPU";
    }
  } catch (const Error& error) {
    return error.message();
  }
  return std::nullopt;
}

}  // namespace fsdp2
