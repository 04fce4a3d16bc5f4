// The core's one error type. Whatever goes wrong below the C ABI is thrown as an Error (or by
// LibTorch as a c10::Error); only capi/guard.h catches it and turns it into a status.
//
// A message is one line: what was expected, what was found, the name (parameter, file, key, rank)
// and, if it is known, what to do about it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace fsdp2 {

// The numbers are those of fsdp2_status in include/fsdp2/base.h; the hundreds digit is the class.
enum class Code : int32_t {
  kNullArgument = 101,
  kInvalidHandle = 102,
  kStaleHandle = 103,
  kHandleKind = 104,
  kStructSize = 105,
  kInvalidArgument = 106,
  kBufferTooSmall = 107,
  kBusy = 108,
  kWrongState = 109,
  kNotFound = 201,
  kUnsupported = 202,
  kAbiMismatch = 203,
  kIo = 204,
  kOutOfMemory = 301,
  kDeviceMemory = 302,
  kComm = 401,
  kTimeout = 402,
  kPeerFailed = 403,
  kDeviceLost = 404,
  kCallback = 501,
  kCancelled = 502,
  kCorruptData = 601,
  kNotFinite = 602,
  kInternal = 901,
};

class Error : public std::exception {
 public:
  // native_code: errno or the transport's own code, 0 if there is none.
  Error(Code code, std::string message, int32_t native_code = 0)
      : code_(code), native_code_(native_code), message_(std::move(message)) {}

  const char* what() const noexcept override { return message_.c_str(); }
  const std::string& message() const { return message_; }
  Code code() const { return code_; }
  int32_t native_code() const { return native_code_; }

 private:
  Code code_;
  int32_t native_code_;
  std::string message_;
};

template <typename... Args>
[[noreturn, gnu::cold]] void fail(Code code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

// Checks something that the caller must ensure. The message is formatted only on failure.
#define FSDP2_CHECK(condition, code, ...) \
  do {                                    \
    if (!(condition)) {                   \
      ::fsdp2::fail((code), __VA_ARGS__); \
    }                                     \
  } while (false)

// What `body` returns. An Error from it goes on with `context` before its message and, if there is
// one, another code.
template <typename Body>
auto in_context(const std::string& context, const Body& body, std::optional<Code> code = {}) {
  try {
    return body();
  } catch (const Error& error) {
    fail(code.value_or(error.code()), "{}: {}", context, error.message());
  }
}

// The text of the exception that is being handled, without LibTorch's backtrace. Only in a catch
// block.
std::string current_exception_text();

// The exception that is being handled, as an Error: itself, or an Error whose code goes by its kind
// (out of memory, LibTorch's kinds, kInternal for anything else). Only in a catch block.
Error current_exception_as_error();

}  // namespace fsdp2
