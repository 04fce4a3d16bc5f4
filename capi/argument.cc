#include "capi/argument.h"

#include <cstring>
#include <optional>
#include <string_view>

#include "core/base/text.h"

namespace fsdp2::capi {

namespace {

void check_utf8(std::string_view text, const char* name) {
  const std::optional<size_t> malformed = find_malformed_utf8(text);
  FSDP2_CHECK(!malformed, Code::kInvalidArgument, "{}: expected UTF-8, found byte 0x{:02x} at {}",
              name, static_cast<unsigned char>(text[*malformed]), *malformed);
}

}  // namespace

void check_array(const void* data, size_t count, const char* name) {
  FSDP2_CHECK(count <= kMaxCount, Code::kInvalidArgument,
              "{}: expected at most {} elements, found {}", name, kMaxCount, count);
  FSDP2_CHECK(data != nullptr || count == 0, Code::kNullArgument, "{} is NULL with {} elements",
              name, count);
}

std::string read_text(const char* text, size_t max_bytes, const char* name) {
  check_not_null(text, name);
  const size_t length = strnlen(text, max_bytes + 1);
  FSDP2_CHECK(length <= max_bytes, Code::kInvalidArgument,
              "{}: expected at most {} bytes, found a longer text", name, max_bytes);
  std::string copy(text, length);  // before the check: another thread may write to the text
  check_utf8(copy, name);
  return copy;
}

std::string read_path(const char* path, const char* name) {
  std::string text = read_text(path, kMaxPath, name);
  FSDP2_CHECK(!text.empty(), Code::kInvalidArgument, "{}: expected a path, found an empty text",
              name);
  return text;
}

std::vector<std::string> read_texts(const char* const* texts, size_t count, size_t max_bytes,
                                    const char* name) {
  check_array(texts, count, name);
  std::vector<std::string> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(read_text(texts[i], max_bytes, name));
  }
  return out;
}

void write_text(const std::string& text, char* buf, size_t cap, size_t* needed) {
  check_not_null(needed, "needed");
  FSDP2_CHECK(buf != nullptr || cap == 0, Code::kNullArgument, "buf is NULL with cap {}", cap);
  *needed = text.size() + 1;
  if (buf == nullptr) {
    return;
  }
  FSDP2_CHECK(cap > text.size(), Code::kBufferTooSmall, "expected room for {} bytes, found {}",
              text.size() + 1, cap);
  std::memcpy(buf, text.c_str(), text.size() + 1);
}

void check_room(const char* name, const void* to, size_t cap, size_t count, size_t* needed) {
  check_array(to, cap, name);
  if (cap < count) {
    *needed = count;
    fail(Code::kBufferTooSmall, "{}: expected room for {}, found {}", name, count, cap);
  }
}

bool read_flag(int32_t value, const char* name) {
  FSDP2_CHECK(value == 0 || value == 1, Code::kInvalidArgument, "{}: expected 0 or 1, found {}",
              name, value);
  return value == 1;
}

size_t check_count(size_t value, size_t low, size_t high, const char* name) {
  FSDP2_CHECK(value >= low && value <= high, Code::kInvalidArgument,
              "{}: expected {} to {}, found {}", name, low, high, value);
  return value;
}

int64_t check_integer(int64_t value, int64_t low, int64_t high, const char* name) {
  FSDP2_CHECK(value >= low && value <= high, Code::kInvalidArgument,
              "{}: expected {} to {}, found {}", name, low, high, value);
  return value;
}

double check_number(double value, double low, double high, const char* name) {
  FSDP2_CHECK(value >= low && value <= high, Code::kInvalidArgument,
              "{}: expected {:g} to {:g}, found {:g}", name, low, high, value);
  return value;
}

}  // namespace fsdp2::capi
