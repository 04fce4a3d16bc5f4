// How a checkpoint's directory comes into being: whole or not at all, over nothing that is not a
// checkpoint of its kind.
#include "core/ckpt/store/pending_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/ckpt/child_process.h"
#include "tests/core/ckpt/failing_calls.h"

namespace fsdp2::ckpt {
namespace {

namespace fs = std::filesystem;
using Format = CheckpointFormat;

class PendingDirectoryTest : public FileTest {
 protected:
  // A directory that counts as a complete checkpoint, with a mark to tell it by.
  void make(const std::string& name, const std::string& mark = "") {
    write(name + "/.metadata", "m");
    write(name + "/__0_0.distcp", mark);
  }

  static std::unique_ptr<PendingDirectory> begin(const std::string& target,
                                                 const std::string& mark) {
    auto pending =
        std::make_unique<PendingDirectory>(target, replaceable_by(Format::kDcpDirectory));
    std::ofstream(pending->path() + "/.metadata") << "m";
    std::ofstream(pending->path() + "/__0_0.distcp") << mark;
    return pending;
  }

  std::string mark(const std::string& name) { return contents(path(name) + "/__0_0.distcp"); }

  // That nothing may replace the directory, and why.
  void expect_refused(const std::string& name, const std::string& why) {
    EXPECT_ERROR(PendingDirectory(path(name), replaceable_by(Format::kDcpDirectory)), Code::kIo,
                 why);
    EXPECT_ERROR(check_replaceable(path(name), replaceable_by(Format::kDcpDirectory)), Code::kIo,
                 why);
  }
};

TEST_F(PendingDirectoryTest, AppearsOnlyWhenCommitted) {
  auto pending = begin(path("out/step-00000001"), "new");
  EXPECT_FALSE(fs::exists(path("out/step-00000001")));
  EXPECT_EQ(find_latest_checkpoint(path("out")), std::nullopt);
  pending->commit();
  EXPECT_EQ(find_latest_checkpoint(path("out")), path("out/step-00000001"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path("out")), {}), 1);
}

TEST_F(PendingDirectoryTest, ThatIsNotCommittedLeavesNothing) {
  make("run", "old");
  begin(path("run"), "new").reset();
  EXPECT_EQ(mark("run"), "old");
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(PendingDirectoryTest, ReplacesAnOlderOneOfTheSameName) {
  make("run", "old");
  begin(path("run") + "/", "new")->commit();
  EXPECT_EQ(mark("run"), "new");
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(PendingDirectoryTest, RemovesTheReplacedOneNotBeforeItsEnd) {
  make("run", "old");
  auto pending = begin(path("run"), "new");
  pending->commit();
  EXPECT_EQ(mark("run"), "new");
  EXPECT_EQ(files().size(), 2u);
  pending.reset();
  EXPECT_EQ(mark("run"), "new");
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(PendingDirectoryTest, ReplacesAnOlderOneWhereNamesCannotBeExchanged) {
  make("run", "old");
  make("run.old-1-2", "of an earlier replacement");
  EXPECT_TRUE(succeeded(in_child([&] {
    if (!make_exchange_unknown()) {
      return false;
    }
    begin(path("run"), "new")->commit();
    return true;
  })));
  EXPECT_EQ(mark("run"), "new");
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(PendingDirectoryTest, ReplacesAnEmptyDirectory) {
  fs::create_directories(path("run"));
  begin(path("run"), "new")->commit();
  EXPECT_EQ(mark("run"), "new");
}

TEST_F(PendingDirectoryTest, ReplacesACheckpointOfPythonsThatWasNotFinished) {
  for (const char* name : {"/__0_0.distcp", "/__1_0.distcp", "/.metadata.tmp", "/__0.metadata"}) {
    write("run" + std::string(name), "");
  }
  begin(path("run"), "new")->commit();
  EXPECT_EQ(mark("run"), "new");
}

TEST_F(PendingDirectoryTest, ReplacesWhatADeadRunOfASeriesHasMarked) {
  write("run/.fsdp2-series", "");
  write("run/.fsdp2-run", "process 7 on host");
  begin(path("run"), "new")->commit();
  EXPECT_EQ(mark("run"), "new");
}

TEST_F(PendingDirectoryTest, RefusesWhatALivingRunOfASeriesHasMarked) {
  write("run/.fsdp2-run", "process 7 on host");
  const int file = open(path("run/.fsdp2-run").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(file, LOCK_EX), 0);
  expect_refused("run", "has .fsdp2-run in it");
  close(file);
}

TEST_F(PendingDirectoryTest, RefusesADirectoryWithAnythingElseInIt) {
  make("run");
  write("run/notes.txt", "mine");
  expect_refused("run", "has notes.txt in it, not of a DCP directory");
  write("project/main.c", "");
  write("project/Makefile", "");
  expect_refused("project", "has Makefile and 1 more in it");
  EXPECT_TRUE(fs::exists(path("project/main.c")));
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(PendingDirectoryTest, RefusesTheDirectoryOfASeries) {
  make("out/step-00000100");
  expect_refused("out", "has step-00000100 in it");
  EXPECT_TRUE(is_complete_checkpoint(path("out/step-00000100")));
}

TEST_F(PendingDirectoryTest, RefusesACheckpointOfAnotherFormat) {
  write("model/model.safetensors", "");
  expect_refused("model", "has model.safetensors in it");
  make("run");
  EXPECT_ERROR(PendingDirectory(path("run"), replaceable_by(Format::kShardedSafetensors)),
               Code::kIo, "has .metadata and 1 more in it");
}

TEST_F(PendingDirectoryTest, RefusesAFile) {
  write("run", "text");
  expect_refused("run", "is a file");
}

TEST_F(PendingDirectoryTest, RefusesTheRootOfAFileSystem) {
  EXPECT_ERROR(check_replaceable("/proc", replaceable_by(Format::kDcpDirectory)), Code::kIo,
               "mounted");
  EXPECT_ERROR(check_replaceable("/", replaceable_by(Format::kHuggingFaceDirectory)), Code::kIo,
               "mounted");
}

TEST_F(PendingDirectoryTest, RefusesWhatCameWhileItWasWritten) {
  make("run", "old");
  auto pending = begin(path("run"), "new");
  write("run/notes.txt", "mine");
  EXPECT_ERROR(pending->commit(), Code::kIo, "has notes.txt in it");
  EXPECT_TRUE(fs::exists(path("run/notes.txt")));
}

TEST_F(PendingDirectoryTest, ReplacesWhatASymbolicLinkPointsTo) {
  make("disk/run", "old");
  fs::create_directory_symlink(path("disk/run"), path("link"));
  begin(path("link"), "new")->commit();
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(mark("disk/run"), "new");
  write("project/main.c", "");
  fs::create_directory_symlink(path("project"), path("other"));
  expect_refused("other", "has main.c in it");
  fs::create_directory_symlink(path("nowhere"), path("dangling"));
  expect_refused("dangling", "symbolic link");
}

TEST_F(PendingDirectoryTest, RemovesWhatADeadJobLeft) {
  write("step-00000001.tmp-1-2/mark", "");
  write("other.tmp-1-2/mark", "");
  begin(path("step-00000002"), "").reset();
  EXPECT_FALSE(fs::exists(path("step-00000001.tmp-1-2")));
  EXPECT_TRUE(fs::exists(path("other.tmp-1-2")));
}

TEST_F(PendingDirectoryTest, LeavesWhatALivingJobWrites) {
  auto first = begin(path("step-00000001"), "first");
  auto second = begin(path("step-00000002"), "second");
  first->commit();
  second->commit();
  EXPECT_EQ(mark("step-00000001"), "first");
  EXPECT_EQ(mark("step-00000002"), "second");
}

// Python's data loaders and the like: a fork that no exec follows.
TEST_F(PendingDirectoryTest, OfADeadJobIsRemovedWhileAChildOfItLives) {
  const pid_t job = in_child([&] {
    const auto pending = begin(path("out/step-00000001"), "half");
    in_child([&] {  // it is ready once it runs: by then it has left the lock to its parent
      write("child", std::to_string(::getpid()));
      write("ready", "");
      return ::pause() == 0;
    });
    ::pause();
    return true;
  });
  while (!fs::exists(path("ready"))) {
    ::usleep(1000);
  }
  const auto in_out = [&] { return std::distance(fs::directory_iterator(path("out")), {}); };
  {
    const PendingDirectory other(path("out/step-00000002"), replaceable_by(Format::kDcpDirectory));
    EXPECT_EQ(in_out(), 2);  // the job lives
  }
  ::kill(job, SIGKILL);
  EXPECT_FALSE(succeeded(job));
  begin(path("out/step-00000002"), "new")->commit();
  EXPECT_EQ(in_out(), 1);
  ::kill(std::stoi(contents(path("child"))), SIGKILL);
}

TEST_F(PendingDirectoryTest, IsNotAForkedChildsToRemove) {
  auto pending = begin(path("out"), "new");
  EXPECT_TRUE(succeeded(in_child([&] {
    pending.reset();
    return true;
  })));
  pending->commit();
  EXPECT_EQ(mark("out"), "new");
}

TEST_F(PendingDirectoryTest, OldOnesThatCannotBeRemovedAreNoReasonToFail) {
  const pid_t child = in_child([&] {
    make("run", "old");
    make("step-00000001.tmp-1-2");
    fs::permissions(path("step-00000001.tmp-1-2"), fs::perms(0500));
    fs::permissions(path("run"), fs::perms(0500));
    if (!give_up_overriding_permissions()) {
      return false;
    }
    begin(path("run"), "new")->commit();
    begin(path("step-00000002"), "second")->commit();
    return true;
  });
  EXPECT_TRUE(succeeded(child));
  EXPECT_EQ(mark("run"), "new");
  EXPECT_EQ(find_latest_checkpoint(path("")), path("step-00000002"));
  for (const std::string& name : files()) {
    fs::permissions(path(name), fs::perms(0700));
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
