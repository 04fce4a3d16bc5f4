// Disks that do not take a checkpoint: the save is an error with the path and the system's text on
// all ranks, the last checkpoint stays loadable and nothing incomplete counts as complete.
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>

#include "core/ckpt/checkpoint_directory.h"
#include "core/ckpt/dcp_directory.h"
#include "tests/core/ckpt/checkpoint_fixture.h"
#include "tests/core/ckpt/child_process.h"

namespace fsdp2::ckpt {
namespace {

using FailingDisk = FileTest;

// For children, which have no test to fail.
bool holds(bool condition, const std::string& what) {
  if (!condition) {
    std::fprintf(stderr, "not so: %s\n", what.c_str());
  }
  return condition;
}

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
         holds(holds_example(DcpDirectory(*latest), 1), "step 1 has its values") &&
         holds(entries == 1, "nothing is left over");
}

// Makes permission bits hold for root too, in this thread and those that it starts.
bool give_up_overriding_permissions() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, sets) != 0) {
    return holds(false, "capabilities can be read");
  }
  for (const int capability : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER}) {
    sets[0].effective &= ~(1U << capability);
    sets[0].permitted &= ~(1U << capability);
  }
  return holds(::syscall(SYS_capset, &header, sets) == 0, "capabilities can be given up");
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

// From now on these calls of this thread, and of those that it starts, end with EIO, but for those
// on the standard streams. Needs no privileges; cannot be undone.
bool make_fail(const FailingCall& call) {
  const auto load = [](size_t offset) {
    return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(offset)};
  };
  std::vector<sock_filter> program;
  for (const int number : call.numbers) {
    const bool has_file = std::string(call.name) == "write";
    program.push_back(load(offsetof(seccomp_data, nr)));
    program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0, static_cast<uint8_t>(has_file ? 3 : 1),
                       static_cast<uint32_t>(number)});
    if (has_file) {
      program.push_back(load(offsetof(seccomp_data, args)));
      program.push_back({BPF_JMP | BPF_JGT | BPF_K, 0, 1, STDERR_FILENO});
    }
    program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EIO});
  }
  program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return holds(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0,
               "system calls can be filtered");
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

TEST_F(FailingDisk, AnInputOutputErrorOfAnyCallIsToldToAllAndKeepsTheLastCheckpoint) {
  for (const FailingCall& call : failing_calls()) {
    const std::string series = path(fmt::format("{}-{}", call.name, call.rank));
    const pid_t child = in_child([&] {
      save_example(series + "/" + step_directory_name(1), 2, 1);
      std::vector<int> good(2, 0);
      run_ranks(2, [&](const std::shared_ptr<World>& world) {
        ShardedSaver saver(Mesh::for_fsdp(world, 0));
        const bool is_set = world->rank() != call.rank || make_fail(call);
        good[static_cast<size_t>(world->rank())] =
            static_cast<int>(is_set && saves_fail(*world, saver, call, series));
      });
      return has_only_step_one(series) && good[0] != 0 && good[1] != 0;
    });
    EXPECT_TRUE(succeeded(child)) << call.name << " on rank " << call.rank;
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
