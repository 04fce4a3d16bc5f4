#include "core/base/error.h"

#include <c10/util/Exception.h>

#include <new>
#include <system_error>

namespace fsdp2 {

namespace {

constexpr char kOutOfMemoryText[] = "out of memory";  // fits into a string without an allocation

// LibTorch appends the chain of its own frames below the first line; users need the first line.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Error from_libtorch(const c10::Error& error) {
  const std::string text = first_line(error.what_without_backtrace());
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return {Code::kDeviceMemory, text};
  }
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) {
    return {Code::kComm, text};
  }
  if (dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr) {
    return {Code::kUnsupported, text};
  }
  // LibTorch has no exception of its own for this.
  const bool out_of_memory = text.find("can't allocate memory") != std::string::npos ||
                             text.find("not enough memory") != std::string::npos;
  return {out_of_memory ? Code::kOutOfMemory : Code::kInvalidArgument, text};
}

Error current_exception_in_full() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const c10::Error& error) {
    return from_libtorch(error);
  } catch (const std::bad_alloc&) {
    return {Code::kOutOfMemory, kOutOfMemoryText};
  } catch (const std::system_error& error) {
    // What a thread that cannot be had throws.
    const bool is_exhausted = error.code() == std::errc::resource_unavailable_try_again ||
                              error.code() == std::errc::not_enough_memory;
    const std::string text = first_line(error.what());
    if (!is_exhausted) {
      return {Code::kInternal, text, error.code().value()};
    }
    return {Code::kOutOfMemory,
            "the system gives no more threads or memory: " + text +
                ": look at its limits (ulimit -u and -v, a container's pids and memory)",
            error.code().value()};
  } catch (const std::exception& error) {
    return {Code::kInternal, first_line(error.what())};
  } catch (...) {
    return {Code::kInternal, "an exception of an unknown type"};
  }
}

}  // namespace

Error current_exception_as_error() {
  try {
    return current_exception_in_full();
  } catch (const std::bad_alloc&) {  // there was no memory for the text either
    return {Code::kOutOfMemory, kOutOfMemoryText};
  }
}

std::string current_exception_text() { return current_exception_as_error().message(); }

}  // namespace fsdp2
