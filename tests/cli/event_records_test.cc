// The bytes of TensorBoard's event files, as its own classes write them.
#include "cli/train/metrics/event_records.h"

#include <gtest/gtest.h>

namespace fsdp2::cli {
namespace {

std::string hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += {kDigits[static_cast<uint8_t>(byte) >> 4], kDigits[byte & 0xf]};
  }
  return text;
}

// The values are RFC 3720's, and the check value of the CRC's catalogue entry.
TEST(EventRecords, ChecksumIsCrc32C) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(EventRecords, RecordHasMaskedChecksums) {
  EXPECT_EQ(hex(record_of("libfsdp2")), "0800000000000000ff86240f6c696266736470320394835c");
}

TEST(EventRecords, EventsAreProtobufMessages) {
  EXPECT_EQ(hex(version_event(1.5)), "09000000000000f83f1a0d627261696e2e4576656e743a32");
  EXPECT_EQ(hex(restart_event(1.5, 7)), "09000000000000f83f10073a020801");
  EXPECT_EQ(hex(scalars_event(1.5, 300, {{"train/loss", 2.5}, {"lr", -1.0}})),
            "09000000000000f83f10ac022a1e0a110a0a747261696e2f6c6f737315000020400a090a026c7215000080"
            "bf");
}

}  // namespace
}  // namespace fsdp2::cli
