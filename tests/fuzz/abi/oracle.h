// What has to be true of every call, whatever its arguments were.
#pragma once

#include <string>

#include "tests/fuzz/abi/call.h"

namespace fsdp2::fuzz {

// This thread's error record.
struct Record {
  fsdp2_status status;
  std::string function;
  std::string message;
};
Record error_record();

// Ends the program if the call has broken a promise: an unknown status or a defect of the library,
// a failure without a record of its own or with outputs touched, a success that touched the record,
// a write beyond an output.
void check_call(const Call& call, fsdp2_status status, const Record& before);

}  // namespace fsdp2::fuzz
