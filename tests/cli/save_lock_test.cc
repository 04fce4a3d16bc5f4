// The run that has --save-dir. That a second one is refused is in restart_test.cc.
#include "cli/train/save/save_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/process.h"

namespace fsdp2::cli {
namespace {

namespace fs = std::filesystem;

class SaveLockTest : public ::testing::Test {
 protected:
  // A run that saves into `directory` of the test's.
  TrainOptions saving(const std::string& directory, int64_t save_every) const {
    TrainOptions options;
    options.save_dir = folder_ + "/" + directory;
    options.save_every = save_every;
    return options;
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_ = test::empty_directory();
  std::vector<std::string> told_;
  const SaveLock::Tell tell_ = [this](const std::string& line) { told_.push_back(line); };
};

TEST_F(SaveLockTest, LeavesNothingBehind) {
  for (const int64_t save_every : {0, 5}) {
    {
      const SaveLock lock(saving("deep/place/run", save_every), tell_);
      const std::string file = save_every > 0 ? "run/.fsdp2-run" : ".run.fsdp2-run";
      EXPECT_EQ(test::read_file(path("deep/place/" + file))
                    .find("process " + std::to_string(getpid()) + " on "),
                0U);
    }
    EXPECT_TRUE(fs::is_empty(folder_));
  }
}

TEST_F(SaveLockTest, LeavesWhatTheRunHasSaved) {
  {
    const SaveLock lock(saving("run", 5), tell_);
    fs::create_directory(path("run/step-00000005"));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(path("run")), fs::directory_iterator()), 1);
}

TEST_F(SaveLockTest, FileOfADeadRunStopsNobody) {
  fs::create_directory(path("run"));
  test::write_file(path("run/.fsdp2-run"), "process 7 on elsewhere");
  const SaveLock lock(saving("run", 5), tell_);
  EXPECT_EQ(told_.size(), 0U);
  EXPECT_EQ(test::read_file(path("run/.fsdp2-run")).find("elsewhere"), std::string::npos);
}

TEST_F(SaveLockTest, GoesToWhoeverWaitsForARunOfAnotherMachine) {
  test::write_file(path(".run.fsdp2-run"), "process 7 on elsewhere");
  const int other = open(path(".run.fsdp2-run").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  const SaveLock lock(saving("run", 0), [&](const std::string& line) {
    EXPECT_NE(line.find("another run (process 7 on elsewhere) has it: waiting"), std::string::npos);
    unlink(path(".run.fsdp2-run").c_str());  // it ends
    close(other);
  });
  EXPECT_EQ(
      test::read_file(path(".run.fsdp2-run")).find("process " + std::to_string(getpid()) + " on "),
      0U);
}

// As one that was killed just now, on a machine that is busy.
TEST_F(SaveLockTest, WaitsForARunOfThisMachineThatIsSlowToEnd) {
  const int other = open(path(".run.fsdp2-run").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::seconds(6));
    close(other);
  });
  EXPECT_NO_THROW(SaveLock(saving("run", 0), tell_));
  EXPECT_EQ(told_.size(), 0U);
  ends.join();
}

TEST_F(SaveLockTest, IsLeftOutWhereNothingCanBeSavedAnyway) {
  test::write_file(path("file"), "");
  const SaveLock lock(saving("file/run", 0), tell_);
  EXPECT_TRUE(fs::is_regular_file(path("file")));
}

}  // namespace
}  // namespace fsdp2::cli
