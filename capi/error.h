// The error record of each thread: why its last call that failed did so.
#pragma once

#include <cstdint>
#include <string>

#include "include/fsdp2/error.h"

namespace fsdp2::capi {

struct ErrorRecord {
  fsdp2_status status = FSDP2_OK;
  int32_t rank = -1;
  int32_t native_code = 0;
  const char* function = "";  // a literal
  std::string message;
  std::string detail;
};

// This thread's record. Only guard.cc writes it.
ErrorRecord& error_record();

}  // namespace fsdp2::capi
