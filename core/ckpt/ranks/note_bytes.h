// What ranks tell each other in the texts of rank_exchange.h: numbers of 8 bytes; texts and lists
// with their length in front.
//
// No Json: one of lists or objects ends the process where there is no memory for its destructor,
// and a save in the background is to fail like any other.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace fsdp2::ckpt {

class NoteWriter {
 public:
  void number(int64_t value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void count(size_t value) { number(static_cast<int64_t>(value)); }
  void text(std::string_view value) {
    count(value.size());
    bytes_.append(value);
  }
  template <typename Number>
  void numbers(const std::vector<Number>& values) {
    count(values.size());
    for (const Number value : values) {
      number(static_cast<int64_t>(value));
    }
  }
  void error(const Error& error) {
    number(static_cast<int64_t>(error.code()));
    text(error.message());
    number(error.native_code());
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Throws kInternal for bytes that a NoteWriter has not written in this order.
class NoteReader {
 public:
  explicit NoteReader(std::string_view bytes) : left_(bytes) {}

  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  // The length of a list or a text, which is at most as many as bytes are left.
  size_t count() {
    const auto value = static_cast<uint64_t>(number());
    FSDP2_CHECK(value <= left_.size(), Code::kInternal,
                "a note of another rank: expected at most {} elements, found {}", left_.size(),
                value);
    return static_cast<size_t>(value);
  }
  std::string text() { return std::string(take(count())); }
  template <typename Number>
  std::vector<Number> numbers() {
    std::vector<Number> values(count());
    for (Number& value : values) {
      value = static_cast<Number>(number());
    }
    return values;
  }
  Error error() {
    const auto code = static_cast<Code>(number());
    std::string message = text();
    return {code, std::move(message), static_cast<int32_t>(number())};
  }

 private:
  std::string_view take(size_t bytes) {
    FSDP2_CHECK(bytes <= left_.size(), Code::kInternal,
                "a note of another rank: expected {} more bytes, found {}", bytes, left_.size());
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }

  std::string_view left_;
};

}  // namespace fsdp2::ckpt
