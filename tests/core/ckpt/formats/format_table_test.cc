#include "core/ckpt/formats/format_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

constexpr auto kLastFormat = CheckpointFormat::kPthPerRankDirectory;

TEST(FormatTable, EveryFormatHasARowWithANameOfItsOwn) {
  std::set<std::string> names;
  for (int format = 0; format <= static_cast<int>(kLastFormat); ++format) {
    const FormatRow& row = row_of(static_cast<CheckpointFormat>(format));
    EXPECT_EQ(static_cast<int>(row.format), format);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
  }
  EXPECT_EQ(format_table().size(), names.size());
}

TEST(FormatTable, EveryFormatIsToldOpenedAndListed) {
  for (const FormatRow& row : format_table()) {
    EXPECT_NE(row.is_at, nullptr) << row.name;
    EXPECT_NE(row.open, nullptr) << row.name;
    EXPECT_NE(row.list, nullptr) << row.name;
    EXPECT_EQ(row.make_writer == nullptr, row.order == nullptr) << row.name;
  }
}

TEST(FormatTable, ReplacementCarriesTheNameOfTheFormat) {
  for (const FormatRow& row : format_table()) {
    if (row.may_replace != nullptr) {
      EXPECT_EQ(row.may_replace().format, row.name);
    }
  }
}

TEST(FormatTable, FilesReplaceNoDirectory) {
  EXPECT_ERROR(replaceable_by(CheckpointFormat::kPth), Code::kUnsupported,
               "a torch.save file is not written as a directory that appears whole");
}

TEST(FormatTable, NameOfAFileStandsForItsFormat) {
  for (const char* name : {"out/model.pth", "model.pt", "x.safetensors.bin"}) {
    EXPECT_EQ(full_format_of(name), CheckpointFormat::kPth) << name;
  }
  for (const char* name : {"model.safetensors", "model", "run.pth/model", ".pth"}) {
    EXPECT_EQ(full_format_of(name), CheckpointFormat::kSafetensors) << name;
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
