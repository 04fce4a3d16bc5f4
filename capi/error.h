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

// This thread's record. guard.cc writes it, and fsdp2_error_take empties it.
ErrorRecord& error_record();

// Whether a call may fail with this status.
bool is_failing_status(fsdp2_status status);

// Around a function of the caller: what the calls that fail inside it leave in this thread's record
// is taken back.
class KeepErrorRecord {
 public:
  KeepErrorRecord() noexcept;
  ~KeepErrorRecord();
  KeepErrorRecord(const KeepErrorRecord&) = delete;
  KeepErrorRecord& operator=(const KeepErrorRecord&) = delete;

 private:
  ErrorRecord meanwhile_;  // this thread's record while it lives
  ErrorRecord* const before_;
};

}  // namespace fsdp2::capi
