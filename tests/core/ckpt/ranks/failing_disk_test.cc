// Disks that do not take a checkpoint: the save is an error with the path and the system's text on
// all ranks, the last checkpoint stays loadable and nothing incomplete counts as complete.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <filesystem>

#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/dcp/part_writer.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "core/ckpt/store/pending_directory.h"
#include "tests/core/ckpt/child_process.h"
#include "tests/core/ckpt/failing_calls.h"
#include "tests/core/ckpt/ranks/checkpoint_fixture.h"

namespace fsdp2::ckpt {
namespace {

using FailingDisk = FileTest;

// Runs an action that should fail, on rank `failing` with `words` in the message, on the other with
// that rank's text.
template <typename Action>
bool fails_on(const World& world, int failing, const std::vector<std::string>& words,
              const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    bool good = holds(error.code() == (world.rank() == failing ? Code::kIo : Code::kPeerFailed),
                      "the code of: " + error.message());
    for (const std::string& word : words) {
      good = holds(error.message().find(word) != std::string::npos,
                   "'" + word + "' in: " + error.message()) &&
             good;
    }
    return good;
  }
  return holds(false, "an error");
}

// Whether the directory holds the example of step 1 and nothing else that counts or is left over.
bool has_only_step_one(const std::string& series) {
  const auto latest = find_latest_checkpoint(series);
  const auto entries = std::distance(std::filesystem::directory_iterator(series), {});
  return holds(latest == series + "/" + step_directory_name(1), "step 1 is the newest") &&
         holds(holds_example(DcpSource(*latest), 1), "step 1 has its values") &&
         holds(entries == 1, "nothing is left over");
}

TEST_F(FailingDisk, ADirectoryThatMayNotBeWrittenIsAnErrorAndKeepsTheLastCheckpoint) {
  const std::string series = path("series");
  const pid_t child = in_child([&] {
    save_example(series + "/" + step_directory_name(1), 2, 1);
    std::filesystem::permissions(series, std::filesystem::perms(0555));
    bool good = give_up_overriding_permissions();
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      ShardedSaver saver(Mesh::for_fsdp(world, 0));
      for (const int64_t step : {1, 2}) {  // in place of the one there, and beside it
        const bool failed = fails_on(
            *world, 0, {series + "/" + step_directory_name(step), "Permission denied"}, [&] {
              saver.save(example_state(world->rank(), 2, 7),
                         {series + "/" + step_directory_name(step)});
            });
        if (!failed) {
          good = false;
        }
      }
    });
    return has_only_step_one(series) && good;
  });
  EXPECT_TRUE(succeeded(child));
  std::filesystem::permissions(series, std::filesystem::perms(0755));
}

// As ulimit -f sets it; by default the signal of a write beyond it ends the process.
TEST_F(FailingDisk, ALimitOfAFilesSizeIsAnError) {
  const std::string series = path("series");
  const pid_t child = in_child([&] {
    save_example(series + "/" + step_directory_name(1), 1, 1);
    const rlimit limit{8, RLIM_INFINITY};
    bool good = holds(setrlimit(RLIMIT_FSIZE, &limit) == 0, "the limit");
    run_ranks(1, [&](const std::shared_ptr<World>& world) {
      ShardedSaver saver(Mesh::for_fsdp(world, 0));
      const std::string run = series + "/" + step_directory_name(2);
      good = fails_on(*world, 0, {"__0_0.distcp: cannot write", "File too large"},
                      [&] { saver.save(example_state(0, 1, 7), {run}); }) &&
             good;
    });
    return has_only_step_one(series) && good;
  });
  EXPECT_TRUE(succeeded(child));
}

// System calls of one kind, which a filter makes fail.
struct FailingCall {
  const char* name;
  std::vector<int> numbers;
  int rank;           // on which they fail
  const char* where;  // words of the message
};

const std::vector<FailingCall>& failing_calls() {
#ifdef SYS_rename
  const std::vector<int> rename = {SYS_rename, SYS_renameat, SYS_renameat2};
  const std::vector<int> mkdir = {SYS_mkdir, SYS_mkdirat};
#else
  const std::vector<int> rename = {SYS_renameat, SYS_renameat2};
  const std::vector<int> mkdir = {SYS_mkdirat};
#endif
  const std::vector<int> write = {SYS_write, SYS_pwrite64, SYS_writev};
  const std::vector<int> sync = {SYS_fsync, SYS_fdatasync};
  static const std::vector<FailingCall> calls = {
      {"write", write, 0, "__0_0.distcp: cannot write"},
      {"write", write, 1, "__1_0.distcp: cannot write"},
      {"fsync", sync, 0, "__0_0.distcp: cannot sync"},
      {"fsync", sync, 1, "__1_0.distcp: cannot sync"},
      {"rename", rename, 0, "step-0000000"},
      {"mkdir", mkdir, 0, "cannot make the directory"},
  };
  return calls;
}

bool make_fail(const FailingCall& call) {
  return make_calls_fail(call.numbers, EIO, std::string(call.name) == "write");
}

// Saves anew and in place of what there is, in the foreground and in the background.
bool saves_fail(const World& world, ShardedSaver& saver, const FailingCall& call,
                const std::string& series) {
  bool good = true;
  for (const int64_t step : {1, 2}) {
    const std::string run = series + "/" + step_directory_name(step);
    const StateDict state = example_state(world.rank(), 2, 7);
    const std::vector<std::string> words = {series, call.where, "Input/output error"};
    good = fails_on(world, call.rank, words, [&] { saver.save(state, {run}); }) && good;
    good = fails_on(world, call.rank, words,
                    [&] {
                      saver.start(state, {run});
                      saver.wait();
                    }) &&
           good;
  }
  return good;
}

// `exchanges`: whether the file system can exchange two names.
bool failure_is_told(const FailingCall& call, const std::string& series, bool exchanges) {
  save_example(series + "/" + step_directory_name(1), 2, 1);
  std::vector<int> good(2, 0);
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    const bool is_set =
        (exchanges || make_exchange_unknown()) && (world->rank() != call.rank || make_fail(call));
    good[static_cast<size_t>(world->rank())] =
        static_cast<int>(is_set && saves_fail(*world, saver, call, series));
  });
  return has_only_step_one(series) && good[0] != 0 && good[1] != 0;
}

class FailingCalls : public FileTest, public testing::WithParamInterface<bool> {};

TEST_P(FailingCalls, WithAnInputOutputErrorAreToldToAllAndKeepTheLastCheckpoint) {
  for (const FailingCall& call : failing_calls()) {
    const std::string series = path(fmt::format("{}-{}", call.name, call.rank));
    EXPECT_TRUE(succeeded(in_child([&] { return failure_is_told(call, series, GetParam()); })))
        << call.name << " on rank " << call.rank;
  }
}

INSTANTIATE_TEST_SUITE_P(WhereNames, FailingCalls, testing::Bool(), [](const auto& info) {
  return info.param ? "CanBeExchanged" : "CannotBeExchanged";
});

TEST_F(FailingDisk, FilesOfThreadsThatCannotBeMadeAreWrittenAllTheSame) {
  write("part/keep", "");
  const pid_t child = in_child([&] {
    std::vector<PartItem> items;
    for (size_t i = 0; i < 3; ++i) {
      items.push_back({i, {0}, at::full({4}, static_cast<double>(i)), {}});
    }
    if (!make_calls_fail({SYS_clone, SYS_clone3}, EAGAIN)) {
      return false;
    }
    const auto parts = write_part(path("part"), 0, items, {/*threads=*/3}, [](int64_t) {});
    return holds(parts.size() == 3 && parts[2].bytes > 0, "all three files are written");
  });
  EXPECT_TRUE(succeeded(child));
  EXPECT_TRUE(std::filesystem::exists(path("part/__0_2.distcp")));
}

// A part of one tensor, where reserving disk space ends with this error.
std::vector<DcpPart> write_part_without_room(const std::string& directory, int error) {
  const std::vector<PartItem> items = {{0, {0}, at::ones({4}), {}}};
  holds(make_calls_fail({SYS_fallocate}, error), "a system call can be made to fail");
  return write_part(directory, 0, items, {}, [](int64_t) {});
}

TEST_F(FailingDisk, ADiskThatIsTooFullIsFoundBeforeTheFirstByte) {
  write("part/keep", "");
  EXPECT_TRUE(succeeded(in_child([&] {
    const Error error = error_of([&] { write_part_without_room(path("part"), ENOSPC); });
    return holds(
        error.message() == path("part/__0_0.distcp") +
                               ": cannot reserve 16 bytes of disk space: No space left on device",
        error.message());
  })));
  EXPECT_EQ(std::filesystem::file_size(path("part/__0_0.distcp")), 0);
}

TEST_F(FailingDisk, AFileSystemThatSetsNoRoomAsideIsWrittenAllTheSame) {
  write("part/keep", "");
  EXPECT_TRUE(succeeded(in_child(
      [&] { return write_part_without_room(path("part"), EOPNOTSUPP).front().bytes > 16; })));
  EXPECT_GT(std::filesystem::file_size(path("part/__0_0.distcp")), 16);
}

TEST_F(FailingDisk, AThreadThatCannotBeMadeIsToldToAll) {
  const pid_t child = in_child([&] {
    std::vector<int> good(2, 0);
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      ShardedSaver saver(Mesh::for_fsdp(world, 0));
      saver.save(example_state(world->rank(), 2, 1), {path("run")});
      if (world->rank() == 1 && !make_calls_fail({SYS_clone, SYS_clone3}, EAGAIN)) {
        return;
      }
      saver.start(example_state(world->rank(), 2, 2), {path("run")});
      const Error error = error_of([&] { saver.wait(); });
      good[static_cast<size_t>(world->rank())] = static_cast<int>(
          holds(error.message().find("Resource temporarily unavailable") != std::string::npos,
                error.message()));
    });
    return good[0] + good[1] == 2 && holds_example(*open_checkpoint(path("run")), 1);
  });
  EXPECT_TRUE(succeeded(child));
}

// A directory above that may be written, but not opened, so not synced.
TEST_F(FailingDisk, ADirectoryThatCannotBeSyncedGetsItsOldCheckpointBack) {
  for (const bool exchanges : {true, false}) {
    const std::string series = path(exchanges ? "exchanged" : "renamed");
    const pid_t child = in_child([&] {
      const std::string there = series + "/" + step_directory_name(1);
      save_example(there, 1, 1);
      save_example(path("other"), 1, 2);
      if (!give_up_overriding_permissions() || (!exchanges && !make_exchange_unknown())) {
        return false;
      }
      bool good = true;
      for (const int64_t step : {1, 2}) {  // in place of the one there, and beside it
        const std::string target = series + "/" + step_directory_name(step);
        PendingDirectory pending(target, replaceable_by(CheckpointFormat::kDcpDirectory));
        std::filesystem::copy(path("other"), pending.path());
        std::filesystem::permissions(series, std::filesystem::perms(0300));
        const Error error = error_of([&] { pending.commit(); });
        std::filesystem::permissions(series, std::filesystem::perms(0700));
        good = holds(error.message().find("Permission denied") != std::string::npos,
                     error.message()) &&
               good;
      }
      return has_only_step_one(series) && good;
    });
    EXPECT_TRUE(succeeded(child)) << series;
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
