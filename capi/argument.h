// Checks of the plain arguments of the C ABI. Every error names the argument, what was expected and
// what was found.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "include/fsdp2/base.h"

namespace fsdp2::capi {

inline constexpr size_t kMaxPath = FSDP2_MAX_PATH;
inline constexpr size_t kMaxName = FSDP2_MAX_NAME;
inline constexpr size_t kMaxText = FSDP2_MAX_TEXT;
inline constexpr size_t kMaxConfig = FSDP2_MAX_CONFIG;
inline constexpr size_t kMaxCount = size_t{1} << 31;

template <typename T>
T* check_not_null(T* pointer, const char* name) {
  FSDP2_CHECK(pointer != nullptr, Code::kNullArgument, "{} is NULL", name);
  return pointer;
}

// An array: NULL only with count 0, and no more than 2^31 elements.
void check_array(const void* data, size_t count, const char* name);

// A copy of a NUL-terminated text of at most max_bytes; kInvalidArgument unless it is UTF-8.
std::string read_text(const char* text, size_t max_bytes, const char* name);
// As read_text, of a path: not empty.
std::string read_path(const char* path, const char* name);

// Copies of an array of texts.
std::vector<std::string> read_texts(const char* const* texts, size_t count, size_t max_bytes,
                                    const char* name);

// Strings out: see convention 4 of fsdp2.h.
void write_text(const std::string& text, char* buf, size_t cap, size_t* needed);

// An array out, to be filled with `count` elements: kBufferTooSmall, with their number in *needed,
// unless there is room for them.
void check_room(const char* name, const void* to, size_t cap, size_t count, size_t* needed);

// Numbers out, by the rule of strings. `name` is the argument's.
template <typename Number, typename Out>
void write_numbers(const std::vector<Number>& numbers, const char* name, Out* to, size_t cap,
                   size_t* needed) {
  check_not_null(needed, "needed");
  const bool only_asks = to == nullptr && cap == 0;
  if (!only_asks) {
    check_room(name, to, cap, numbers.size(), needed);
    std::copy(numbers.begin(), numbers.end(), to);
  }
  *needed = numbers.size();
}

// 0 or 1.
bool read_flag(int32_t value, const char* name);
// Throws unless low <= value <= high.
size_t check_count(size_t value, size_t low, size_t high, const char* name);
// Throws unless low <= value <= high.
int64_t check_integer(int64_t value, int64_t low, int64_t high, const char* name);
// Throws unless low <= value <= high; NaN is in no range.
double check_number(double value, double low, double high, const char* name);

// What a number of an enum stands for. `expected` is the message for any other number, up to what
// was found: "op: expected FSDP2_REDUCE_SUM (0) or _MAX (2)".
template <typename Meaning>
Meaning read_enum(int32_t number, std::initializer_list<std::pair<int32_t, Meaning>> meanings,
                  const char* expected) {
  for (const auto& [candidate, meaning] : meanings) {
    if (candidate == number) {
      return meaning;
    }
  }
  fail(Code::kInvalidArgument, "{}, found {}", expected, number);
}

}  // namespace fsdp2::capi
