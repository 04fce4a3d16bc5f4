// Ranks that are killed at any moment of a save: the newest complete checkpoint always loads, with
// its own values, and nothing incomplete is taken for complete.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "core/ckpt/checkpoint_directory.h"
#include "core/ckpt/dcp_directory.h"
#include "tests/core/ckpt/checkpoint_fixture.h"

namespace fsdp2::ckpt {
namespace {

constexpr int kKills = 200;
constexpr int kLongestLifeUs = 60000;

// This process must not have used LibTorch: what it forks then may.
template <typename Body>
pid_t in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      code = body() ? 0 : 1;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(code);
  }
  return child;
}

bool succeeded(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

using Crash = FileTest;

// Saves steps one after the other, in the background and in place, until it is killed.
bool save_on(const std::string& series, const std::string& replaced) {
  const auto latest = find_latest_checkpoint(series);
  const int64_t first =
      latest ? *step_of_directory_name(std::filesystem::path(*latest).filename()) + 1 : 1;
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    for (int64_t step = first;; ++step) {
      const StateDict state = example_state(world->rank(), 2, step % 100);
      saver.start(state, {series + "/" + step_directory_name(step), 2});
      saver.save(state, {replaced});
    }
  });
  return true;
}

// Whether what is there is whole; nothing is whole too, before the first save.
bool holds_whole(const std::string& path) {
  const DcpDirectory run(path);
  const PickleValue step = run.read_object(*run.find("step"));
  return holds_example(run, *step.as<int64_t>());
}

bool check_all(const std::string& series, const std::string& replaced) {
  bool good = true;
  const auto latest = find_latest_checkpoint(series);
  if (latest) {
    const int64_t step = *step_of_directory_name(std::filesystem::path(*latest).filename());
    good = holds_example(DcpDirectory(*latest), step % 100);
  }
  const std::string at = resolve_checkpoint(replaced);
  return good && (!std::filesystem::exists(at) || holds_whole(at));
}

TEST_F(Crash, AtAnyMomentLeavesTheNewestCompleteCheckpointLoadable) {
  const std::string series = path("series");
  std::filesystem::create_directories(series);
  std::mt19937 random(1);
  std::uniform_int_distribution<int> life(0, kLongestLifeUs);
  for (int i = 0; i < kKills; ++i) {
    const pid_t saver = in_child([&] { return save_on(series, path("replaced")); });
    std::this_thread::sleep_for(std::chrono::microseconds(life(random)));
    ::kill(saver, SIGKILL);
    ::waitpid(saver, nullptr, 0);
    ASSERT_TRUE(succeeded(in_child([&] { return check_all(series, path("replaced")); })))
        << "after kill " << i;
  }
  // The kills did fall into saves, not all before the first.
  EXPECT_TRUE(succeeded(in_child([&] { return find_latest_checkpoint(series).has_value(); })));
}

TEST(CrashProcesses, OfOneRankIsToldToTheOthersAndLeavesNoCheckpoint) {
  const std::string run = testing::TempDir() + fmt::format("fsdp2-crash-{}", ::getppid());
  RankOptions options;
  options.timeout = std::chrono::milliseconds(2000);
  const std::vector<RankEnd> ends = spawn_ranks(
      3,
      [&](const std::shared_ptr<World>& world) {
        ShardedSaver saver(Mesh::for_fsdp(world, 0));
        const StateDict state = example_state(world->rank(), 3, 1);
        saver.save(state, {run + "/step-00000001"});
        saver.start(state, {run + "/step-00000002"});
        saver.wait();
        if (world->rank() == 1) {
          ::kill(::getpid(), SIGKILL);
        }
        const Error error = error_of([&] { saver.save(state, {run + "/step-00000003"}); });
        EXPECT_GE(static_cast<int>(error.code()), 400) << error.message();
        EXPECT_EQ(find_latest_checkpoint(run), run + "/step-00000002");
      },
      options);
  EXPECT_EQ(ends[0].exit_code, 0) << ends[0].output;
  EXPECT_EQ(ends[1].signal, SIGKILL);
  EXPECT_EQ(ends[2].exit_code, 0) << ends[2].output;
  std::filesystem::remove_all(run);
}

}  // namespace
}  // namespace fsdp2::ckpt
