// What a directory holds before the files of a save are all written, and after.
#include "core/ckpt/torch/pending_rank_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/directory.h"
#include "core/ckpt/torch/per_rank_files.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class PendingRankFilesTest : public FileTest {
 protected:
  static void fill(const PendingRankFiles& pending, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      std::ofstream(pending.file(rank)) << "new " << rank;
    }
  }
};

TEST_F(PendingRankFilesTest, WhereNothingIsAppearTogether) {
  {
    PendingRankFiles pending(path("a/ranks"), 7, 2);
    fill(pending, 1);
    EXPECT_FALSE(fs::exists(path("a/ranks")));
  }
  EXPECT_EQ(names_in(path("a")), Names());
  PendingRankFiles pending(path("a/ranks/"), 7, 2);
  fill(pending, 2);
  pending.commit();
  EXPECT_EQ(names_in(path("a")), Names{"ranks"});
  EXPECT_EQ(names_in(path("a/ranks")), (Names{per_rank_file_name(7, 0), per_rank_file_name(7, 1)}));
}

TEST_F(PendingRankFilesTest, LeaveWhatElseIsThereAndTakeThePlaceOfAnOldSave) {
  const Names before = {per_rank_file_name(6, 0), per_rank_file_name(7, 0),
                        per_rank_file_name(7, 1), per_rank_file_name(7, 2), "notes.txt"};
  for (const std::string& name : before) {
    write("ranks/" + name, "old");
  }
  {
    PendingRankFiles pending(path("ranks"), 7, 2);
    fill(pending, 2);
  }
  EXPECT_EQ(names_in(path("ranks")), before);
  EXPECT_EQ(contents(path("ranks/") + before[1]), "old");
  {
    PendingRankFiles pending(path("ranks"), 7, 2);
    fill(pending, 2);
    pending.commit();
  }
  EXPECT_EQ(names_in(path("ranks")), (Names{before[0], before[1], before[2], "notes.txt"}));
  EXPECT_EQ(contents(path("ranks/") + before[2]), "new 1");
}

TEST_F(PendingRankFilesTest, RefuseWhatIsNoPlaceForThemBeforeTheyAreWritten) {
  write("file", "mine");
  EXPECT_ERROR(PendingRankFiles(path("file"), 1, 1), Code::kIo, "file: is a file");
  fs::create_directories(path("ranks/") + per_rank_file_name(1, 1));
  EXPECT_ERROR(PendingRankFiles(path("ranks"), 1, 2), Code::kIo, "rank1.pth: is a directory");
  EXPECT_EQ(names_in(path("ranks")), Names{per_rank_file_name(1, 1)});
}

TEST_F(PendingRankFilesTest, OfTwoStepsComeIntoOneNewDirectory) {
  PendingRankFiles first(path("ranks"), 1, 1), second(path("ranks"), 2, 1);
  fill(first, 1);
  fill(second, 1);
  first.commit();
  second.commit();
  EXPECT_EQ(names_in(path("ranks")), (Names{per_rank_file_name(1, 0), per_rank_file_name(2, 0)}));
}

TEST_F(PendingRankFilesTest, GiveThePlacesBackWhereOneCannotBeTaken) {
  write("ranks/" + per_rank_file_name(1, 0), "old");
  PendingRankFiles pending(path("ranks"), 1, 3);
  fill(pending, 3);
  fs::create_directories(path("ranks/") + per_rank_file_name(1, 2));
  EXPECT_ERROR(pending.commit(), Code::kIo, "rank2.pth: is a directory");
  EXPECT_EQ(contents(path("ranks/") + per_rank_file_name(1, 0)), "old");
  EXPECT_FALSE(fs::exists(path("ranks/") + per_rank_file_name(1, 1)));
}

}  // namespace
}  // namespace fsdp2::ckpt
