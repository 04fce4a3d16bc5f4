// Compressed entries, which a caller has to ask for.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "core/ckpt/torch/zip_records.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/ckpt/torch/zip_fixture.h"

namespace fsdp2::ckpt {
namespace {

const std::string kText(2000, 'a');
// What deflate makes of it.
const std::string kPacked("\x4b\x4c\x1c\x05\xa3\x60\x14\x8c\x82\x51\x30\x0a\x46\xc1\x50\x07\x00",
                          17);

// Deflate also has blocks of bytes as they are.
std::string plain_block(const std::string& text) {
  return "\x01" + number_bytes(text.size(), 2) + number_bytes(~text.size(), 2) + text;
}

class PackedZip : public FileTest {
 protected:
  ZipRecords open(const ZipEntry& entry, ZipEntries allowed = ZipEntries::kStoredOrPacked) const {
    auto file = std::make_shared<const FileBytes>(write("x.zip", zip_text({entry})));
    const int64_t bytes = file->size();
    return {std::move(file), 0, bytes, "x.zip", allowed};
  }
  std::string text_of(const ZipEntry& entry) const {
    return open(entry).read_text("t", 1 << 20, "text");
  }
  static ZipEntry entry(std::string packed, std::string data = kText) {
    ZipEntry entry;
    entry.name = "x/t";
    entry.data = std::move(data);
    entry.packed = std::move(packed);
    return entry;
  }
};

TEST_F(PackedZip, IsReadWhereItIsAskedForAlone) {
  EXPECT_EQ(text_of(entry(kPacked)), kText);
  EXPECT_EQ(text_of(entry(plain_block("abc"), "abc")), "abc");
  EXPECT_NO_THROW(open(entry(kPacked)).verify());
  EXPECT_ERROR(open(entry(kPacked), ZipEntries::kStored), Code::kUnsupported,
               "x.zip: the zip entry x/t is compressed or encrypted");
}

TEST_F(PackedZip, UnpacksToItsSizeAndNothingElse) {
  for (const std::string& packed :
       {kPacked.substr(0, 8), kPacked + "x", std::string("\xff\xff\xff"), plain_block("abc")}) {
    EXPECT_ERROR(text_of(entry(packed)), Code::kCorruptData,
                 "x.zip: record t is damaged: it does not unpack to 2000 bytes");
  }
  EXPECT_ERROR(text_of(entry(plain_block("abd"), "abc")), Code::kCorruptData, "its checksum is");
  EXPECT_ERROR(open(entry(plain_block("abd"), "abc")).verify(), Code::kCorruptData, "checksum");
}

TEST_F(PackedZip, CannotClaimMoreThanDeflateCanDo) {
  EXPECT_ERROR(open(entry("abc", std::string(5000, 'a'))), Code::kCorruptData,
               "entry x/t has 5000 bytes in 3");
}

}  // namespace
}  // namespace fsdp2::ckpt
