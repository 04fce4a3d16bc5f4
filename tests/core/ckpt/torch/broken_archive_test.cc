#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/pickle/writer.h"
#include "core/ckpt/torch/archive.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/ckpt/torch/zip_fixture.h"

namespace fsdp2::ckpt {
namespace {

using namespace std::string_literals;  // texts with zeros in them

class BrokenTorchArchive : public FileTest {
 protected:
  // An archive with a tensor of 16 bytes.
  BrokenTorchArchive()
      : entries_{{"x/data.pkl", write_pickle(describe_tensor(0, at::kFloat, {4}))},
                 {"x/data/0", std::string(16, '\0')},
                 {"x/version", "3\n"}} {}

  TorchArchive open() const { return open(zip_text(entries_)); }
  TorchArchive open(const std::string& bytes) const { return TorchArchive(write("x.pth", bytes)); }

  ZipEntry& pickle() { return entries_[0]; }
  ZipEntry& data() { return entries_[1]; }
  ZipEntry& version() { return entries_[2]; }

  std::vector<ZipEntry> entries_;
};

TEST_F(BrokenTorchArchive, PlainZipIsFine) {
  const TorchArchive archive = open();
  EXPECT_TRUE(archive.read(*archive.root().as<StoredTensor>()).equal(at::zeros({4})));
  EXPECT_NO_THROW(archive.verify());
}

TEST_F(BrokenTorchArchive, PickleThatCallsAProgram) {
  pickle().data =
      "\x80\x02"
      "cos\nsystem\nX\x04\0\0\0true\x85R."s;
  EXPECT_ERROR(open(), Code::kUnsupported, "x.pth: its pickle, byte 2: it uses os.system");
}

TEST_F(BrokenTorchArchive, CompressedEntriesCannotBeBombs) {
  data().method = 8;
  data().listed_bytes = 0x7FFFFFFF;
  EXPECT_ERROR(open(), Code::kUnsupported, "x.pth: the zip entry x/data/0 is compressed");
  data().method = 0;
  data().flags = 1;
  EXPECT_ERROR(open(), Code::kUnsupported, "compressed or encrypted");
}

TEST_F(BrokenTorchArchive, EntryLargerThanTheFile) {
  data().listed_bytes = 0x7FFFFFFF;
  EXPECT_ERROR(open(), Code::kCorruptData, "entry x/data/0 has 16 bytes, its directory says");
  data().flags = 8;  // sizes in the directory alone
  EXPECT_ERROR(open(), Code::kCorruptData, "entry x/data/0 of 2147483647 bytes at");
}

TEST_F(BrokenTorchArchive, EntriesThatOverlap) {
  data().flags = 8;
  data().listed_bytes = 20;
  EXPECT_ERROR(open(), Code::kCorruptData, "overlap");
  entries_.push_back(ZipEntry(data()));
  entries_.back().name = "x/data/1";
  entries_.back().listed_offset = 0;
  data().listed_bytes = -1;
  pickle().flags = 8;
  EXPECT_ERROR(open(), Code::kCorruptData, "another name than its directory says");
}

TEST_F(BrokenTorchArchive, OneEntryListedTwice) {
  entries_.push_back(ZipEntry(data()));
  EXPECT_ERROR(open(), Code::kCorruptData, "two entries are named x/data/0");
}

TEST_F(BrokenTorchArchive, EntryWhereThereIsNone) {
  data().listed_offset = 3;
  EXPECT_ERROR(open(), Code::kCorruptData, "no entry at 3, where x/data/0 should be");
  data().listed_offset = 0x7FFFFFFF;
  EXPECT_ERROR(open(), Code::kCorruptData, "entry x/data/0 begins at 2147483647");
}

TEST_F(BrokenTorchArchive, FoldersAndNames) {
  data().name = "y/data/0";
  EXPECT_ERROR(open(), Code::kCorruptData, "entries are in the folders x and y");
  data().name = "data";
  EXPECT_ERROR(open(), Code::kCorruptData, "entry data is in no folder");
  data().name = "x/data/1";
  EXPECT_ERROR(open(), Code::kCorruptData, "x.pth: a tensor is in record data/0, which is missing");
  data().name = "x/data/0";
  data().listed_name = "x/data/2";
  EXPECT_ERROR(open(), Code::kCorruptData, "another name");
}

TEST_F(BrokenTorchArchive, RecordOfAnotherSizeThanItsTensor) {
  data().data.resize(12);
  EXPECT_ERROR(open(), Code::kCorruptData, "record data/0 has 12 bytes, expected 4 elements of 4");
}

TEST_F(BrokenTorchArchive, DirectoriesThatLie) {
  EXPECT_ERROR(open(zip_text(entries_, {0xFFFF, -1, -1})), Code::kCorruptData,
               "cannot have 65535 entries");
  EXPECT_ERROR(open(zip_text(entries_, {-1, 0x7FFFFFFF, -1})), Code::kCorruptData,
               "its directory of 2147483647 bytes");
  EXPECT_ERROR(open(zip_text(entries_, {-1, -1, 0x7FFFFFFF})), Code::kCorruptData,
               "its directory of");
  EXPECT_ERROR(open(zip_text(entries_, {2, -1, -1})), Code::kCorruptData, "are left over");
  EXPECT_ERROR(open(zip_text(entries_, {-1, -1, 0})), Code::kCorruptData,
               "no directory entry where one is expected");
}

TEST_F(BrokenTorchArchive, RecordsThatAreMissingOrOfAnotherVersion) {
  version().data = "11\n";
  EXPECT_ERROR(open(), Code::kUnsupported, "has version 11 of torch.save's format");
  version().data = "x";
  EXPECT_ERROR(open(), Code::kCorruptData, "its record version says x");
  version().name = "x/other";
  EXPECT_ERROR(open(), Code::kCorruptData, "has no record version");
  version() = {"x/version", "3\n"};
  entries_.push_back({"x/byteorder", "big"});
  EXPECT_ERROR(open(), Code::kUnsupported, "its byte order is big");
  entries_.back() = {"x/constants.pkl", ""};
  EXPECT_ERROR(open(), Code::kUnsupported, "is a TorchScript program");
}

TEST_F(BrokenTorchArchive, ShapeThatOverflows) {
  StoredTensor tensor = describe_tensor(0, at::kFloat, {4});
  tensor.shape = {int64_t{1} << 40, int64_t{1} << 40};
  tensor.stride = {0, 0};
  pickle().data = write_pickle(tensor);
  EXPECT_ERROR(open(), Code::kCorruptData, "a tensor whose shape is too large");
}

TEST_F(BrokenTorchArchive, DamagedPickleIsFoundByItsChecksum) {
  std::string bytes = zip_text(entries_);
  const size_t at = bytes.find("cpu");
  bytes[at] = 'g';
  EXPECT_ERROR(open(bytes), Code::kCorruptData, "record data.pkl is damaged");
}

TEST_F(BrokenTorchArchive, TailOfADeeplyNestedPickle) {
  pickle().data = "\x80\x02" + std::string(100'000, ']') + std::string(99'999, 'a') + ".";
  EXPECT_ERROR(open(), Code::kCorruptData,
               "x.pth: its pickle, byte 100202: values nested more than 200 deep");
}

}  // namespace
}  // namespace fsdp2::ckpt
