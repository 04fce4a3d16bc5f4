#include "cli/train/metrics/event_records.h"

#include <array>
#include <cstring>

namespace fsdp2::cli {

namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they are");

template <typename Number>
std::string bytes_of(Number number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}

// ---- protobuf. A field is its number and its kind, then its value.

enum class Kind : uint8_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

std::string varint(uint64_t number) {
  constexpr uint64_t kMore = 0x80;
  std::string bytes;
  for (; number >= kMore; number >>= 7) {
    bytes.push_back(static_cast<char>(number | kMore));
  }
  bytes.push_back(static_cast<char>(number));
  return bytes;
}

std::string key(uint64_t field, Kind kind) {
  return varint(field << 3 | static_cast<uint64_t>(kind));
}

std::string varint_field(uint64_t field, uint64_t value) {
  return key(field, Kind::kVarint) + varint(value);
}

std::string double_field(uint64_t field, double value) {
  return key(field, Kind::kFixed64) + bytes_of(value);
}

std::string float_field(uint64_t field, float value) {
  return key(field, Kind::kFixed32) + bytes_of(value);
}

// A text or a message.
std::string bytes_field(uint64_t field, std::string_view value) {
  return key(field, Kind::kLengthDelimited) + varint(value.size()) + std::string(value);
}

// The numbers of fields in the .proto files.
namespace event {
constexpr uint64_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr uint64_t kStatus = 1;
constexpr uint64_t kStart = 1;  // a value of the status
}  // namespace session_log
namespace summary {
constexpr uint64_t kValue = 1;
}
namespace value {
constexpr uint64_t kTag = 1, kSimpleValue = 2;
}

// ---- CRC-32C

std::array<uint32_t, 256> crc_table() {
  constexpr uint32_t kReversedPolynomial = 0x82f63b78;
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t rest = i;
    for (int bit = 0; bit < 8; ++bit) {
      rest = (rest >> 1) ^ ((rest & 1) != 0 ? kReversedPolynomial : 0);
    }
    table[i] = rest;
  }
  return table;
}

// A CRC of bytes that hold CRCs says little, so those that are stored are changed.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = crc_table();
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return ~crc;
}

std::string version_event(double time) {
  return double_field(event::kWallTime, time) + bytes_field(event::kFileVersion, "brain.Event:2");
}

std::string restart_event(double time, int64_t step) {
  return double_field(event::kWallTime, time) +
         varint_field(event::kStep, static_cast<uint64_t>(step)) +
         bytes_field(event::kSessionLog, varint_field(session_log::kStatus, session_log::kStart));
}

std::string scalars_event(double time, int64_t step, const Scalars& scalars) {
  std::string values;
  for (const auto& [tag, number] : scalars) {
    values += bytes_field(summary::kValue,
                          bytes_field(value::kTag, tag) +
                              float_field(value::kSimpleValue, static_cast<float>(number)));
  }
  return double_field(event::kWallTime, time) +
         varint_field(event::kStep, static_cast<uint64_t>(step)) +
         bytes_field(event::kSummary, values);
}

std::string record_of(std::string_view event) {
  const std::string length = bytes_of(static_cast<uint64_t>(event.size()));
  return length + bytes_of(masked_crc(length)) + std::string(event) + bytes_of(masked_crc(event));
}

}  // namespace fsdp2::cli
