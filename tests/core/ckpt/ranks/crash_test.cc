// Ranks that are killed at any moment of a save: the newest complete checkpoint always loads, with
// its own values, and nothing incomplete is taken for complete.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>

#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/formats/make_full_writer.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/hugging_face/hugging_face_directory.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "tests/core/ckpt/child_process.h"
#include "tests/core/ckpt/failing_calls.h"
#include "tests/core/ckpt/ranks/checkpoint_fixture.h"

namespace fsdp2::ckpt {
namespace {

constexpr int kKills = 60;       // that fall into a save
constexpr int kMostLives = 240;  // some fall between two
constexpr int kLongestSavingUs = 30000;

constexpr int kJobsAtOnce = 5;
constexpr int kOneRankKills = 30;
constexpr int kMostRounds = 60;  // of so many jobs; under load some do not come to save in time
constexpr std::chrono::milliseconds kTimeout{1500};
constexpr std::chrono::seconds kReleased{20};  // far above the time-out, for machines under load

using Crash = FileTest;

// Tells the test that the first save is complete, and the next about to begin.
void tell(int pipe) { FSDP2_CHECK(::write(pipe, "s", 1) == 1, Code::kInternal, "no test"); }

int64_t next_step(const std::string& series) {
  const auto latest = find_latest_checkpoint(series);
  return latest ? *step_of_directory_name(std::filesystem::path(*latest).filename()) + 1 : 1;
}

// Saves steps one after the other, in the background and in place, until it is killed.
bool save_on(const std::string& series, const std::string& replaced, int pipe) {
  const int64_t first = next_step(series);
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    for (int64_t step = first;; ++step) {
      const StateDict state = example_state(world->rank(), 2, step % 100);
      saver.start(state, {series + "/" + step_directory_name(step), 2});
      saver.save(state, {replaced});
      if (step == first && world->rank() == 0) {
        tell(pipe);
      }
    }
  });
  return true;
}

// Whether a save was under way in a directory when its job died.
bool has_temporary(const std::string& directory) {
  const auto is_temporary = [](const auto& entry) {
    return entry.path().filename().string().find(".tmp-") != std::string::npos;
  };
  return std::any_of(std::filesystem::directory_iterator(directory), {}, is_temporary);
}

// Runs a body in a process until it has written to the pipe that it is given, and for a random
// while on, then kills it.
template <typename Body>
void run_and_kill(const Body& body, std::chrono::microseconds life) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = in_child([&] { return body(ends[1]); });
  ::close(ends[1]);
  char told = 0;
  EXPECT_EQ(::read(ends[0], &told, 1), 1);
  ::close(ends[0]);
  std::this_thread::sleep_for(life);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// Whether what is there is whole; nothing is whole too, before the first save.
bool holds_whole(const std::string& path) {
  const DcpSource run(path);
  const PythonValue step = run.read_object(*run.find("step"));
  return holds_example(run, *step.as<int64_t>());
}

// replaced: "" if nothing was replaced.
bool check_all(const std::string& series, const std::string& replaced) {
  bool good = true;
  const auto latest = find_latest_checkpoint(series);
  if (latest) {
    const int64_t step = *step_of_directory_name(std::filesystem::path(*latest).filename());
    good = holds_example(DcpSource(*latest), step % 100);
  }
  if (replaced.empty()) {
    return good;
  }
  const std::string at = resolve_checkpoint(replaced);
  return good && (!std::filesystem::exists(at) || holds_whole(at));
}

// Whether the file system can exchange two names.
class CrashWhereNames : public FileTest, public testing::WithParamInterface<bool> {};

TEST_P(CrashWhereNames, AtAnyMomentLeavesTheNewestCompleteCheckpointLoadable) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> life(0, kLongestSavingUs);
  int in_saves = 0;
  for (int i = 0; i < kMostLives && in_saves < kKills; ++i) {
    const std::string run = path("run");
    std::filesystem::create_directories(run + "/series");
    run_and_kill(
        [&](int pipe) {
          return (GetParam() || make_exchange_unknown()) &&
                 save_on(run + "/series", run + "/replaced", pipe);
        },
        std::chrono::microseconds(life(random)));
    in_saves += has_temporary(run) || has_temporary(run + "/series") ? 1 : 0;
    ASSERT_TRUE(succeeded(in_child([&] { return check_all(run + "/series", run + "/replaced"); })))
        << "after kill " << i;
  }
  EXPECT_EQ(in_saves, kKills);
}

INSTANTIATE_TEST_SUITE_P(Processes, CrashWhereNames, testing::Bool(), [](const auto& info) {
  return info.param ? "CanBeExchanged" : "CannotBeExchanged";
});

// Exports a model of several files into one directory, again and again, until it is killed.
void export_on(const std::string& directory, int pipe) {
  FullWriterOptions options;
  options.config_json = "{}";
  options.max_file_bytes = 64;
  for (int64_t round = 0;; ++round) {
    std::vector<TensorSpec> plan;
    for (const char* name : {"a", "b", "c", "d"}) {
      plan.push_back({name, at::kFloat, {16}});
    }
    const auto writer =
        make_full_writer(directory, CheckpointFormat::kHuggingFaceDirectory, plan, options);
    for (const TensorSpec& spec : writer->plan()) {
      writer->append(spec.name, at::full({16}, static_cast<double>(round)));
    }
    writer->finish();
    if (round == 0) {
      tell(pipe);
    }
  }
}

// Whether all tensors are of one export, and what else was there still is.
bool holds_one_export(const std::string& directory) {
  const HuggingFaceDirectory model(resolve_checkpoint(directory));
  const auto source = open_checkpoint(directory);
  const at::Tensor first = read_whole(*source, "a");
  return model.names().size() == 4 && std::filesystem::exists(source->path() + "/tokenizer.json") &&
         std::all_of(model.names().begin(), model.names().end(), [&](const std::string& name) {
           return at::equal(read_whole(*source, name), first);
         });
}

TEST_P(CrashWhereNames, OfAnExportLeavesOneModelNotAMixture) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> life(0, kLongestSavingUs);
  int in_saves = 0;
  write("run/model/tokenizer.json", "{}");
  for (int i = 0; i < kMostLives && in_saves < kKills; ++i) {
    const std::string model = path("run/model");
    run_and_kill(
        [&](int pipe) {
          if (GetParam() || make_exchange_unknown()) {
            export_on(model, pipe);
          }
          return false;
        },
        std::chrono::microseconds(life(random)));
    in_saves += has_temporary(path("run")) ? 1 : 0;
    ASSERT_TRUE(succeeded(in_child([&] { return holds_one_export(model); }))) << "after kill " << i;
  }
  EXPECT_EQ(in_saves, kKills);
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
  const int64_t first = next_step(job.series);
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
      tell(saving);
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

// Kills the victim at some moment. Whether that fell into a save.
bool kill_one(const Job& job, std::chrono::microseconds life) {
  char saved = 0;
  const bool saves = ::read(job.saving, &saved, 1) == 1;
  ::close(job.saving);
  std::this_thread::sleep_for(life);
  ::kill(job.ranks[static_cast<size_t>(job.victim)], SIGKILL);
  return saves && has_temporary(job.series);
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
  EXPECT_GE(kills, kOneRankKills);
}

TEST(CrashProcesses, OfOneRankIsToldToTheOthersAndLeavesNoCheckpoint) {
  RankOptions options;
  options.timeout = std::chrono::milliseconds(20000);
  const std::vector<RankEnd> ends = spawn_ranks(
      3,
      [](const std::shared_ptr<World>& world) {
        const std::string run = folder_of_ranks() + "/run";
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
}

}  // namespace
}  // namespace fsdp2::ckpt
