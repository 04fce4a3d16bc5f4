// One series of checkpoints, one run: whoever else saves into it is told.
#include "core/ckpt/store/series_claim.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "core/ckpt/store/pending_directory.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/ckpt/child_process.h"

namespace fsdp2::ckpt {
namespace {

class SeriesClaimTest : public FileTest {
 protected:
  bool is_claimed(const std::string& directory) const {
    return std::filesystem::exists(path(directory + "/" + kSeriesClaimFile));
  }

  // Another run, which has saved the first checkpoint of the series "out" and lives on.
  pid_t start_other_run() const {
    const pid_t child = in_child([&] {
      SeriesClaim claim;
      claim.take(path("out/step-00000001"));
      write("ready", "");
      ::pause();
      return true;
    });
    while (!std::filesystem::exists(path("ready"))) {
      ::usleep(1000);
    }
    return child;
  }

  static void kill(pid_t child) {
    ::kill(child, SIGKILL);
    EXPECT_FALSE(succeeded(child));
  }
};

TEST_F(SeriesClaimTest, OfALivingRunRefusesAnother) {
  const pid_t other = start_other_run();
  const std::string said = path("out") + ": another run (process " + std::to_string(other) + " on ";
  SeriesClaim claim;
  EXPECT_ERROR(claim.take(path("out/step-00000002")), Code::kIo, said);
  EXPECT_ERROR(check_series_is_free(path("out/step-00000002")), Code::kIo, said);
  EXPECT_NO_THROW(claim.take(path("elsewhere/step-00000002")));
  EXPECT_NO_THROW(check_series_is_free(path("nowhere/step-00000002")));
  kill(other);
}

TEST_F(SeriesClaimTest, OfADeadRunStopsNobody) {
  kill(start_other_run());
  EXPECT_TRUE(is_claimed("out"));
  EXPECT_NO_THROW(check_series_is_free(path("out/step-00000002")));
  {
    SeriesClaim claim;
    claim.take(path("out/step-00000002"));
    EXPECT_EQ(contents(path("out/.fsdp2-series")).find("process " + std::to_string(::getpid())),
              0U);
  }
  EXPECT_FALSE(is_claimed("out"));
}

TEST_F(SeriesClaimTest, BelongsToTheProcessAndLeavesWithItsLastHolder) {
  auto first = std::make_unique<SeriesClaim>();
  SeriesClaim second;
  first->take(path("out/step-00000001"));
  second.take(path("out/step-00000002"));
  first.reset();
  EXPECT_TRUE(is_claimed("out"));
  second.take(path("other/step-00000002"));
  EXPECT_FALSE(is_claimed("out"));
  EXPECT_TRUE(is_claimed("other"));
  second.take(path("last"));  // of no series
  EXPECT_FALSE(is_claimed("other"));
}

// Python's data loaders and the like: a fork that no exec follows.
TEST_F(SeriesClaimTest, OfADeadRunStopsNobodyWhileAChildOfItLives) {
  const pid_t run = in_child([&] {
    SeriesClaim claim;
    claim.take(path("out/step-00000001"));
    in_child([&] {  // it is ready once it runs: by then it has left the lock to its parent
      write("child", std::to_string(::getpid()));
      write("ready", "");
      return ::pause() == 0;
    });
    ::pause();
    return true;
  });
  while (!std::filesystem::exists(path("ready"))) {
    ::usleep(1000);
  }
  kill(run);
  EXPECT_TRUE(is_claimed("out"));
  EXPECT_NO_THROW(check_series_is_free(path("out/step-00000002")));
  ::kill(std::stoi(contents(path("child"))), SIGKILL);
}

TEST_F(SeriesClaimTest, IsNotAForkedChildsToGiveBackAndTheChildMayAskForItsOwn) {
  SeriesClaim claim;
  claim.take(path("out/step-00000001"));
  EXPECT_TRUE(succeeded(in_child([&] {
    claim.take(path("last"));  // of no series
    const bool left_alone = is_claimed("out");
    EXPECT_ERROR(claim.take(path("out/step-00000002")), Code::kIo, "another run");
    claim.take(path("other/step-00000002"));
    return left_alone && is_claimed("other") && !testing::Test::HasFailure();
  })));
  EXPECT_TRUE(is_claimed("out"));
}

TEST_F(SeriesClaimTest, FileIsInNobodysWay) {
  const Replaceable nothing{"a test", [](const std::string& /*name*/) { return false; }};
  SeriesClaim claim;
  claim.take(path("out/step-00000001"));
  EXPECT_NO_THROW(check_replaceable(path("out"), nothing));
}

}  // namespace
}  // namespace fsdp2::ckpt
