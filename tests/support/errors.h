// The error of a call that is expected to fail.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/base/error.h"

namespace fsdp2 {

// kInternal, "no error" if the call succeeds.
inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {Code::kInternal, "no error"};
}

// The message; its code is expected to be `code`.
inline std::string message_of_error(const std::function<void()>& call, Code code) {
  const Error error = error_of(call);
  EXPECT_EQ(error.code(), code);
  return error.message();
}

}  // namespace fsdp2
