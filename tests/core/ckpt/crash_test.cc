// Ranks that are killed at any moment of a save: the newest complete checkpoint always loads, with
// its own values, and nothing incomplete is taken for complete.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>

#include "core/ckpt/checkpoint_directory.h"
#include "core/ckpt/dcp_directory.h"
#include "tests/core/ckpt/checkpoint_fixture.h"
#include "tests/core/ckpt/child_process.h"

namespace fsdp2::ckpt {
namespace {

constexpr int kKills = 100;
constexpr int kLongestLifeUs = 60000;

constexpr int kJobsAtOnce = 5;
constexpr int kOneRankKills = 100;
constexpr int kMostRounds = 60;  // of so many jobs; under load some do not come to save in time
constexpr int kLongestSavingUs = 30000;
constexpr std::chrono::milliseconds kTimeout{1500};
constexpr std::chrono::seconds kReleased{20};  // far above the time-out, for machines under load

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

// replaced: "" if nothing was replaced.
bool check_all(const std::string& series, const std::string& replaced) {
  bool good = true;
  const auto latest = find_latest_checkpoint(series);
  if (latest) {
    const int64_t step = *step_of_directory_name(std::filesystem::path(*latest).filename());
    good = holds_example(DcpDirectory(*latest), step % 100);
  }
  if (replaced.empty()) {
    return good;
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

// A job of two processes of which one is killed while both save.
struct Job {
  std::string series;
  std::string meeting;
  int victim = 0;
  std::array<pid_t, 2> ranks{};
  int saving = -1;  // a pipe's end that can be read once the first save is complete
};

// Saves until it is killed or another rank was.
void save_as_a_rank(const Job& job, const std::string& meeting, int rank, int saving) {
  at::set_num_threads(1);
  const auto world =
      World::join({BackendKind::kAuto, "file://" + meeting, rank, 2, rank, kTimeout});
  ShardedSaver saver(Mesh::for_fsdp(world, 0));
  const auto latest = find_latest_checkpoint(job.series);
  const int64_t first =
      latest ? *step_of_directory_name(std::filesystem::path(*latest).filename()) + 1 : 1;
  world->control().barrier();  // both have looked
  for (int64_t step = first;; ++step) {
    const StateDict state = example_state(rank, 2, step % 100);
    const std::string path = job.series + "/" + step_directory_name(step);
    if (step % 2 == 0) {
      saver.start(state, {path, 2});
      saver.wait();
    } else {
      saver.save(state, {path, 2});
    }
    if (step == first && rank == job.victim) {
      FSDP2_CHECK(::write(saving, "s", 1) == 1, Code::kInternal, "the test has gone");
    }
  }
}

// One rank of a job. The one that is left over gets an error and looks at what there is.
bool survives(const Job& job, const std::string& meeting, int rank, int saving) {
  try {
    save_as_a_rank(job, meeting, rank, saving);
    return false;
  } catch (const Error& error) {
    const bool is_news = static_cast<int>(error.code()) / 100 == 4;
    if (!is_news) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    return is_news && check_all(job.series, "");
  }
}

Job start_job(const std::string& series, const std::string& meeting, int victim) {
  Job job{series, meeting, victim};
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  for (int rank = 0; rank < 2; ++rank) {
    job.ranks[static_cast<size_t>(rank)] =
        in_child([&] { return survives(job, meeting, rank, ends[1]); });
  }
  ::close(ends[1]);
  job.saving = ends[0];
  return job;
}

// Kills the victim at some moment of its saves. False if it did not come to that.
bool kill_one(const Job& job, std::chrono::microseconds life) {
  char saved = 0;
  const bool saves = ::read(job.saving, &saved, 1) == 1;
  ::close(job.saving);
  std::this_thread::sleep_for(life);
  ::kill(job.ranks[static_cast<size_t>(job.victim)], SIGKILL);
  return saves;
}

// Whether the survivor ended well, and not by waiting without end.
bool survivor_ended_well(const Job& job) {
  ::waitpid(job.ranks[static_cast<size_t>(job.victim)], nullptr, 0);
  const pid_t survivor = job.ranks[static_cast<size_t>(1 - job.victim)];
  const auto deadline = std::chrono::steady_clock::now() + kReleased;
  int status = 0;
  while (::waitpid(survivor, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(survivor, SIGKILL);
      ::waitpid(survivor, nullptr, 0);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(Crash, OfOneRankAtAnyMomentIsAnErrorOnTheOtherAndLeavesTheNewestCheckpointLoadable) {
  std::mt19937 random(2);
  std::uniform_int_distribution<int> life(0, kLongestSavingUs);
  int kills = 0;
  for (int round = 0; round < kMostRounds && kills < kOneRankKills; ++round) {
    std::vector<Job> jobs;
    for (int i = 0; i < kJobsAtOnce; ++i) {
      const std::string series = path(fmt::format("series-{}", i));
      std::filesystem::create_directories(series);
      jobs.push_back(
          start_job(series, path(fmt::format("meeting-{}-{}", round, i)), (round + i) % 2));
    }
    for (const Job& job : jobs) {
      kills += kill_one(job, std::chrono::microseconds(life(random))) ? 1 : 0;
    }
    for (int i = 0; i < kJobsAtOnce; ++i) {
      ASSERT_TRUE(survivor_ended_well(jobs[static_cast<size_t>(i)]))
          << "round " << round << ", job " << i;
    }
  }
  EXPECT_GT(kills, 0);
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
