// What a process that has ended has left, told from what others have.
#include "core/base/temporary_name.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/base/file.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2 {
namespace {

namespace fs = std::filesystem;

class TemporaryName : public FileTest {
 protected:
  std::vector<std::string> left() const {
    std::vector<std::string> names = files();
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(TemporaryName, OfAFileIsFoundByItsProcessOnceThatHasEnded) {
  const pid_t child = ::fork();
  if (child == 0) {
    const AtomicFile file(path("run.pth"));
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  remove_temporaries(path("run.pth"), child + 1);
  EXPECT_EQ(files().size(), 1U);
  remove_temporaries(path("run.pth"), child);
  EXPECT_TRUE(files().empty());
}

// As of a process of another container that has the same number.
TEST_F(TemporaryName, OfAProcessThatLivesStays) {
  const AtomicFile file(path("run.pth"));
  remove_temporaries(path("run.pth"), ::getpid());
  EXPECT_EQ(files().size(), 1U);
  write("run.tmp-1f-0/weights", "");
  const int directory = ::open(path("run.tmp-1f-0").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(directory, LOCK_EX | LOCK_NB), 0);
  remove_temporaries(path("run"), 0x1f);
  EXPECT_TRUE(fs::exists(path("run.tmp-1f-0/weights")));
  ::close(directory);
  remove_temporaries(path("run"), 0x1f);
  EXPECT_FALSE(fs::exists(path("run.tmp-1f-0")));
}

TEST_F(TemporaryName, OfThatProcessAndPathAloneIsRemoved) {
  write("run", "old");
  write("run.tmp-1f-0", "");
  write("run.tmp-1f-00/weights", "");
  write("run.tmp-1f0-0", "another process");
  write("runner.tmp-1f-0", "another path");
  write("run.old-1f-0", "the old one");
  remove_temporaries(path("run"), 0x1f);
  EXPECT_EQ(left(),
            (std::vector<std::string>{"run", "run.old-1f-0", "run.tmp-1f0-0", "runner.tmp-1f-0"}));
}

TEST_F(TemporaryName, InADirectoryAndBesideWhatALinkPointsToIsRemoved) {
  write("data/ranks/step7.tmp-1f-0/weights", "");
  write("data/ranks/step7.pth", "old");
  write("data/ranks.tmp-1f-0", "");
  fs::create_directory_symlink("data/ranks", path("link"));
  remove_temporaries(path("link/"), 0x1f);
  EXPECT_TRUE(fs::exists(path("data/ranks/step7.pth")));
  EXPECT_FALSE(fs::exists(path("data/ranks/step7.tmp-1f-0")));
  remove_temporaries(path("link"), 0x1f);
  EXPECT_FALSE(fs::exists(path("data/ranks.tmp-1f-0")));
}

TEST_F(TemporaryName, WhereNothingIsNothingIsRemoved) {
  remove_temporaries(path("nothing/here"), 0x1f);
  remove_temporaries("", 0x1f);
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace fsdp2
