// Which files of a directory are one checkpoint, whatever interrupted saves left beside them.
#include "core/ckpt/torch/per_rank_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/ckpt/torch/archive.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

class PerRankFiles : public FileTest {
 protected:
  void write_file(int64_t step, int rank, int world_size, const std::string& id) const {
    const PythonValue own = describe_rank(rank, world_size, {}, id);
    write("run/" + per_rank_file_name(step, rank),
          write_torch_archive(PythonDict{{{"fsdp2", own}}}, {}));
  }
  void write_all(int64_t step, int world_size, const std::string& id) const {
    for (int rank = 0; rank < world_size; ++rank) {
      write_file(step, rank, world_size, id);
    }
  }
  std::vector<std::string> expected(int64_t step, int world_size) const {
    std::vector<std::string> names;
    for (int rank = 0; rank < world_size; ++rank) {
      names.push_back(path("run/") + per_rank_file_name(step, rank));
    }
    return names;
  }
};

TEST_F(PerRankFiles, OfTheHighestStepAreTaken) {
  write_all(9, 2, "a");
  write_all(10, 2, "b");
  EXPECT_EQ(per_rank_files(path("run")), expected(10, 2));
}

TEST_F(PerRankFiles, OfAStepThatWasReplacedInPartAreNotMixed) {
  write_all(1, 2, "a");
  write_all(2, 2, "b");
  write_file(2, 0, 2, "c");  // and killed before rank 1's
  EXPECT_EQ(per_rank_files(path("run")), expected(1, 2));
  std::filesystem::remove(path("run/") + per_rank_file_name(1, 1));
  EXPECT_ERROR(per_rank_files(path("run")), Code::kCorruptData,
               "fsdp_sharded_cpt2_rank1.pth: is of another save");
}

TEST_F(PerRankFiles, OfASaveThatWasNotOverAreNotTaken) {
  write_all(1, 3, "a");
  write_file(2, 0, 3, "b");
  write_file(2, 2, 3, "b");
  EXPECT_EQ(per_rank_files(path("run")), expected(1, 3));
}

TEST_F(PerRankFiles, OfALargerWorldBeforeAreLeftOut) {
  write_all(1, 4, "a");
  write_all(1, 2, "b");
  EXPECT_EQ(per_rank_files(path("run")), expected(1, 2));
  remove_further_ranks(path("run"), 1, 2);
  EXPECT_FALSE(std::filesystem::exists(path("run/") + per_rank_file_name(1, 2)));
  EXPECT_EQ(per_rank_files(path("run")), expected(1, 2));
}

TEST_F(PerRankFiles, OfAnInterruptedSaveOfALargerWorldLeaveTheOldOnes) {
  write_all(1, 2, "a");
  write_file(1, 3, 4, "b");
  EXPECT_EQ(per_rank_files(path("run")), expected(1, 2));
}

TEST_F(PerRankFiles, WithoutASaveIdAreAllTaken) {
  write_all(1, 3, "");
  EXPECT_EQ(per_rank_files(path("run")), expected(1, 3));
  write_file(1, 1, 3, "new");
  EXPECT_ERROR(per_rank_files(path("run")), Code::kCorruptData, "of another save");
  std::filesystem::remove(path("run/") + per_rank_file_name(1, 1));
  EXPECT_ERROR(per_rank_files(path("run")), Code::kCorruptData,
               "fsdp_sharded_cpt1_rank1.pth: the file of this rank is missing");
}

TEST_F(PerRankFiles, ThatSayTheyAreNoneAreRefused) {
  write_file(1, 0, 0, "a");
  EXPECT_ERROR(per_rank_files(path("run")), Code::kCorruptData, "no files");
}

TEST_F(PerRankFiles, MayBeNone) {
  write("run/other.pth", "");
  EXPECT_ERROR(per_rank_files(path("run")), Code::kNotFound, "fsdp_sharded_cpt");
}

}  // namespace
}  // namespace fsdp2::ckpt
