// What a process that has ended has left, told from what others have.
#include "core/base/temporary_name.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
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
  static std::string temporary(const std::string& name, pid_t process) {
    return name + kTemporary + process_mark(process) + "0";
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

TEST_F(TemporaryName, OfAProcessThatLivesStays) {
  const AtomicFile file(path("run.pth"));
  remove_temporaries(path("run.pth"), ::getpid());
  EXPECT_EQ(files().size(), 1U);
  const std::string name = temporary("run", 0x1f);
  write(name + "/weights", "");
  const int directory = ::open(path(name).c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(directory, LOCK_EX | LOCK_NB), 0);
  remove_temporaries(path("run"), 0x1f);
  EXPECT_TRUE(fs::exists(path(name + "/weights")));
  ::close(directory);
  remove_temporaries(path("run"), 0x1f);
  EXPECT_FALSE(fs::exists(path(name)));
}

TEST_F(TemporaryName, IsNotHeldByOneWhoAsksWhetherItIs) {
  const std::string name = write("run.pth", "");
  const int asking = ::open(name.c_str(), O_RDONLY);
  ASSERT_EQ(::flock(asking, LOCK_SH | LOCK_NB), 0);
  EXPECT_FALSE(is_locked(name));
  ::close(asking);
}

// The process has the number 1 there.
TEST_F(TemporaryName, OfAnotherContainersProcessStays) {
  constexpr int kNoContainer = 7;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWPID) != 0) {
      ::_exit(kNoContainer);
    }
    if (::fork() == 0) {
      const AtomicFile file(path("run.pth"));
      ::_exit(0);
    }
    ::wait(nullptr);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == kNoContainer) {
    GTEST_SKIP() << "this user may make no containers";
  }
  remove_temporaries(path("run.pth"), 1);
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(TemporaryName, OfThatProcessAndPathAloneIsRemoved) {
  write("run", "old");
  write(temporary("run", 0x1f), "");
  write(temporary("run", 0x1f) + "0/weights", "");
  const std::string process = temporary("run", 0x1f0);
  write(process, "another process");
  const std::string other = temporary("runner", 0x1f);
  write(other, "another path");
  write("run.old-1f-0", "the old one");
  remove_temporaries(path("run"), 0x1f);
  EXPECT_EQ(left(), (std::vector<std::string>{"run", "run.old-1f-0", process, other}));
}

TEST_F(TemporaryName, InADirectoryAndBesideWhatALinkPointsToIsRemoved) {
  const std::string inside = temporary("data/ranks/step7", 0x1f);
  const std::string beside = temporary("data/ranks", 0x1f);
  write(inside + "/weights", "");
  write("data/ranks/step7.pth", "old");
  write(beside, "");
  fs::create_directory_symlink("data/ranks", path("link"));
  remove_temporaries(path("link/"), 0x1f);
  EXPECT_TRUE(fs::exists(path("data/ranks/step7.pth")));
  EXPECT_FALSE(fs::exists(path(inside)));
  remove_temporaries(path("link"), 0x1f);
  EXPECT_FALSE(fs::exists(path(beside)));
}

TEST_F(TemporaryName, WhereNothingIsNothingIsRemoved) {
  remove_temporaries(path("nothing/here"), 0x1f);
  remove_temporaries("", 0x1f);
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace fsdp2
