// Saving by several ranks: what is written, by whom, and how failures are told.
#include "core/ckpt/ranks/sharded_save.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>

#include "core/base/log.h"
#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/ranks/write_plan.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "tests/core/ckpt/ranks/checkpoint_fixture.h"

namespace fsdp2::ckpt {
namespace {

using ShardedSave = FileTest;

TEST_F(ShardedSave, IsReadBackWholeAtAnyWorldSize) {
  for (const int world_size : {1, 2, 3, 4, 8}) {
    const std::string run = path(fmt::format("of-{}", world_size));
    save_example(run, world_size, 5);
    const auto source = open_checkpoint(run);
    EXPECT_TRUE(holds_example(*source, 5)) << world_size;
    source->verify();
  }
}

TEST_F(ShardedSave, BoxesAcrossChunksAreReadAndConverted) {
  save_example(path("run"), 3, 0);
  const auto source = open_checkpoint(path("run"));
  at::Tensor out = at::zeros({4, 2}, at::kDouble);
  source->read(*source->find("model.a.weight"), {2, 1}, out);
  const at::Tensor full = at::arange(21, at::kDouble).view({7, 3});
  EXPECT_TRUE(at::equal(out, full.narrow(0, 2, 4).narrow(1, 1, 2)));
}

TEST_F(ShardedSave, ReplicasWriteEachChunkOnceAndShareTheWork) {
  run_ranks(4, [&](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::for_fsdp(world, 2);
    StateDict state;
    for (int i = 0; i < 4; ++i) {
      add_rows(&state, {"model", std::to_string(i)}, at::ones({4, 64}),
               static_cast<int>(mesh->coordinate(1)), 2);
    }
    ShardedSaver(mesh).save(state, {path("run")});
  });
  const DcpSource run(path("run"));
  std::map<std::string, int> items;
  for (const DcpEntry& entry : run.metadata().entries()) {
    EXPECT_EQ(entry.storage.size(), 2u) << entry.name;
    for (const DcpStorage& storage : entry.storage) {
      ++items[storage.relative_path];
    }
  }
  const std::map<std::string, int> spread = {
      {"__0_0.distcp", 2}, {"__1_0.distcp", 2}, {"__2_0.distcp", 2}, {"__3_0.distcp", 2}};
  EXPECT_EQ(items, spread);
}

TEST_F(ShardedSave, StatesThatDifferAreRefusedOnAllRanksAndLeaveNothing) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    StateDict state;
    state.add_object({world->rank() == 0 ? "a" : "b"}, 1);
    const Error error = error_of([&] { saver.save(state, {path("out/run")}); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    saver.save(example_state(world->rank(), 2, 1), {path("out/other")});  // the world is usable
  });
  EXPECT_TRUE(std::filesystem::is_empty(path("out")) == false);
  EXPECT_FALSE(std::filesystem::exists(path("out/run")));
  for (const auto& entry : std::filesystem::directory_iterator(path("out"))) {
    EXPECT_EQ(entry.path().filename(), "other");
  }
}

TEST_F(ShardedSave, TensorsOfMoreBytesThanCanBeCountedAreRefused) {
  constexpr int64_t kHalf = int64_t{1} << 60;  // 2^62 bytes of float32
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{2 * kHalf}, {kHalf, kHalf}}) {
      StateDict state;
      for (const int64_t size : sizes) {
        state.add_tensor({std::to_string(state.tensors.size())}, {size}, {0}, at::zeros({0}));
      }
      const Error error = error_of([&] { saver.save(state, {path("out/run")}); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.message();
      EXPECT_NE(error.message().find("do not fit 63 bits"), std::string::npos) << error.message();
    }
  });
}

TEST_F(ShardedSave, ADirectoryThatCannotBeMadeIsTheSameErrorOnAllRanks) {
  write("file", "");
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    const Error error = error_of(
        [&] { saver.save(example_state(world->rank(), 2, 1), {path("file/step-00000001")}); });
    EXPECT_EQ(error.code(), world->rank() == 0 ? Code::kIo : Code::kPeerFailed);
    EXPECT_NE(error.message().find(path("file")), std::string::npos) << error.message();
  });
}

TEST_F(ShardedSave, InTheBackgroundSavesWhatWasThereWhenItStarted) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    StateDict state = example_state(world->rank(), 2, 1);
    saver.start(state, {path("one")});
    for (StateTensor& tensor : state.tensors) {
      tensor.local.zero_();
    }
    saver.start(example_state(world->rank(), 2, 2), {path("two")});  // waits for the first
    EXPECT_TRUE(is_complete_checkpoint(path("one")));
    saver.wait();
    EXPECT_TRUE(saver.poll());
  });
  EXPECT_TRUE(holds_example(*open_checkpoint(path("one")), 1));
  EXPECT_TRUE(holds_example(*open_checkpoint(path("two")), 2));
}

TEST_F(ShardedSave, InTheBackgroundGoesWhereTheProcessWasWhenItStarted) {
  const auto before = std::filesystem::current_path();
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    std::filesystem::current_path(std::filesystem::path(path("one")).parent_path());
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    saver.start(example_state(0, 1, 1), {"one"});
    std::filesystem::current_path("/");
    saver.wait();
  });
  std::filesystem::current_path(before);
  EXPECT_TRUE(holds_example(*open_checkpoint(path("one")), 1));
}

// The largest piece of memory that LibTorch makes on this thread while an action runs.
class LargestAllocation : public c10::MemoryReportingInfoBase {
 public:
  static int64_t of(const std::function<void()>& action) {
    const auto largest = std::make_shared<LargestAllocation>();
    const c10::DebugInfoGuard reported(c10::DebugInfoKind::PROFILER_STATE, largest);
    action();
    return largest->bytes_;
  }

  void reportMemoryUsage(void* /*pointer*/, int64_t bytes, size_t /*allocated*/,
                         size_t /*reserved*/, c10::Device /*device*/) override {
    bytes_ = std::max(bytes_, bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }

 private:
  int64_t bytes_ = 0;
};

constexpr int64_t kMegabyte = 1 << 20;

StateDict state_of_bytes(int64_t bytes, uint8_t value) {
  StateDict state;
  state.add_whole({"a"}, at::full({bytes}, value, at::kByte));
  return state;
}

TEST_F(ShardedSave, InTheBackgroundCopiesIntoWhatWasReserved) {
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    for (const bool reserve : {false, true}) {
      ShardedSaver saver(Mesh::for_fsdp(world, 0));
      const StateDict state = state_of_bytes(kMegabyte, 7);
      if (reserve) {
        saver.reserve(state);
        saver.reserve(state);
      }
      const int64_t made = LargestAllocation::of([&] { saver.start(state, {path("run")}); });
      EXPECT_EQ(made < kMegabyte, reserve) << made;
      state.tensors[0].local.zero_();
      saver.wait();
      EXPECT_EQ(read_whole(*open_checkpoint(path("run")), "a").min().item<int64_t>(), 7);
    }
  });
}

TEST_F(ShardedSave, OfMoreThanWasReservedIsWholeAllTheSame) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    saver.reserve(state_of_bytes(1000, 0));
    saver.start(example_state(world->rank(), 2, 1), {path("less")});
    saver.start(state_of_bytes(kMegabyte, 7), {path("more")});
    saver.reserve(state_of_bytes(2 * kMegabyte, 0));  // beside the one under way
    saver.wait();
  });
  EXPECT_TRUE(holds_example(*open_checkpoint(path("less")), 1));
  EXPECT_EQ(read_whole(*open_checkpoint(path("more")), "a").min().item<int64_t>(), 7);
}

TEST_F(ShardedSave, ReplicasReserveWhatEachWrites) {
  run_ranks(4, [&](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::for_fsdp(world, 2);
    StateDict state;
    for (int i = 0; i < 4; ++i) {
      add_rows(&state, {"model", std::to_string(i)}, at::ones({6, 64}),
               static_cast<int>(mesh->coordinate(1)), 2);
    }
    int64_t written = 0;
    for (const size_t index : tensors_to_write(*world, state)) {
      written += static_cast<int64_t>(state.tensors[index].local.nbytes());
    }
    EXPECT_EQ(expected_bytes_to_write(*world, state), written);
  });
}

TEST_F(ShardedSave, MemoryThatCannotBeReservedIsToldAtOnceAndDoesNoHarm) {
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    StateDict huge;
    huge.add_whole({"a"}, at::empty({int64_t{1} << 60}, at::device(at::kMeta).dtype(at::kByte)));
    EXPECT_THROW(saver.reserve(huge), c10::Error);
    saver.start(example_state(0, 1, 1), {path("run")});
    saver.wait();
  });
  EXPECT_TRUE(holds_example(*open_checkpoint(path("run")), 1));
}

TEST_F(ShardedSave, KeepsTheLastFewOfASeries) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    for (int64_t step = 1; step <= 4; ++step) {
      const std::string run = path(step_directory_name(step));
      saver.start(example_state(world->rank(), 2, step), {run, 2});
    }
    saver.wait();
  });
  EXPECT_EQ(files().size(), 2u);
  EXPECT_EQ(find_latest_checkpoint(path("")), path("step-00000004"));
  EXPECT_TRUE(is_complete_checkpoint(path("step-00000003")));
}

// A disk that removes slowly, in place of which the warning of a later step holds the removal up.
TEST_F(ShardedSave, RemovesTheOldestWhenAllKnowThatItHasSucceeded) {
  save_example(path(step_directory_name(9)), 2, 9);
  std::promise<void> other_has_saved;
  const std::shared_future<void> until_then = other_has_saved.get_future().share();
  set_log_sink(LogLevel::kWarning, [&](const LogRecord&) { until_then.wait(); });
  const auto body = [&](const std::shared_ptr<World>& world) {
    const LogScope scope;
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    EXPECT_NO_THROW(
        saver.save(example_state(world->rank(), 2, 1), {path(step_directory_name(1)), 1}));
    if (world->rank() == 1) {
      other_has_saved.set_value();
    }
  };
  run_ranks(2, body, {BackendKind::kAuto, std::chrono::seconds(60)});
  set_log_sink(LogLevel::kWarning, nullptr);
  EXPECT_TRUE(is_complete_checkpoint(path(step_directory_name(1))));
}

// A rank whose chunk cannot be copied: its start fails, and nobody else's.
void make_uncopyable(StateDict* state) {
  at::Tensor& local = state->tensors.front().local;
  local = local.to(at::kMeta);
}

TEST_F(ShardedSave, ThatCannotStartOnOneRankIsToldToAllAndLeavesNothing) {
  for (const int failing : {0, 1}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      ShardedSaver saver(Mesh::for_fsdp(world, 0));
      StateDict state = example_state(world->rank(), 2, 1);
      if (world->rank() == failing) {
        make_uncopyable(&state);
      }
      saver.start(state, {path("run")});
      const Error error = error_of([&] { saver.wait(); });
      EXPECT_EQ(error.code() == Code::kPeerFailed, world->rank() != failing) << error.message();
      EXPECT_NE(error.message().find("meta"), std::string::npos) << error.message();
      saver.save(example_state(world->rank(), 2, 1), {path("other")});  // the world is usable
    });
  }
  EXPECT_EQ(files(), std::vector<std::string>{"other"});
}

TEST_F(ShardedSave, ThatFailsOnTwoRanksNamesBothOnAll) {
  run_ranks(3, [&](const std::shared_ptr<World>& world) {
    const int rank = world->rank();
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    StateDict state = example_state(rank, 3, 1);
    if (rank != 0) {
      make_uncopyable(&state);
    }
    saver.start(state, {path("run")});
    const Error error = error_of([&] { saver.wait(); });
    EXPECT_EQ(error.code() == Code::kPeerFailed, rank == 0) << error.message();
    for (const int failing : {1, 2}) {
      EXPECT_EQ(error.message().find(fmt::format("rank {}: ", failing)) != std::string::npos,
                rank != failing)
          << error.message();
    }
  });
  EXPECT_TRUE(files().empty());
}

TEST_F(ShardedSave, WhoseErrorNobodyAskedForIsLogged) {
  std::mutex mutex;
  std::vector<std::string> errors;
  set_log_sink(LogLevel::kError, [&](const LogRecord& record) {
    const std::lock_guard<std::mutex> lock(mutex);
    errors.push_back(record.message);
  });
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const LogScope scope;
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    StateDict state = example_state(world->rank(), 2, 1);
    make_uncopyable(&state);
    saver.start(state, {path("run")});
  });
  set_log_sink(LogLevel::kWarning, nullptr);
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_NE(errors[0].find("nobody has asked"), std::string::npos) << errors[0];
}

TEST_F(ShardedSave, OverADirectoryOfOtherThingsIsRefusedOnAllRanksAndKeepsThem) {
  write("project/main.c", "int main;");
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    const Error error =
        error_of([&] { saver.save(example_state(world->rank(), 2, 1), {path("project")}); });
    EXPECT_EQ(error.code(), world->rank() == 0 ? Code::kIo : Code::kPeerFailed);
    EXPECT_NE(error.message().find("has main.c in it"), std::string::npos) << error.message();
  });
  EXPECT_EQ(contents(path("project/main.c")), "int main;");
}

TEST_F(ShardedSave, AfterAnEarlierStepWasGoneOnFromKeepsWhatItWrites) {
  for (const int64_t step : {100, 210, 220}) {
    save_example(path(step_directory_name(step)), 2, step % 100);
  }
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    for (const int64_t step : {110, 120, 130}) {
      saver.save(example_state(world->rank(), 2, step % 100), {path(step_directory_name(step)), 2});
      EXPECT_TRUE(is_complete_checkpoint(path(step_directory_name(step))));
    }
  });
  std::vector<std::string> left = files();
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"step-00000120", "step-00000130", "step-00000210",
                                            "step-00000220"}));
}

// A full disk, as far as a process can have one of its own.
void limit_file_size(rlim_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, RLIM_INFINITY};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST(ShardedSaveProcesses, AFullDiskOnOneRankIsToldToAllAndKeepsTheOldCheckpoint) {
  const auto body = [](const std::shared_ptr<World>& world) {
    const std::string run = folder_of_ranks() + "/run";
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    saver.save(example_state(world->rank(), 2, 1), {run});
    if (world->rank() == 1) {
      limit_file_size(1000);
    }
    const Error error = error_of([&] { saver.save(example_state(world->rank(), 2, 2), {run}); });
    EXPECT_EQ(error.code(), world->rank() == 1 ? Code::kIo : Code::kPeerFailed);
    EXPECT_NE(error.message().find("__1_0.distcp"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("File too large"), std::string::npos) << error.message();
    // In the background the same error comes with the next call.
    saver.start(example_state(world->rank(), 2, 3), {run});
    EXPECT_THROW(saver.start(example_state(world->rank(), 2, 4), {run}), Error);
    saver.wait();
    EXPECT_TRUE(holds_example(*open_checkpoint(run), 1));
  };
  run_rank_processes(2, body);
}

// Rank 0 keeps the store, from which the others read the outcome, in its process.
TEST(ShardedSaveProcesses, RankZeroMayEndOnTheOutcome) {
  const std::vector<RankEnd> ends = spawn_ranks(4, [](const std::shared_ptr<World>& world) {
    const std::string run = folder_of_ranks() + "/run";
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    saver.save(example_state(world->rank(), 4, 1), {run});
    StateDict state = example_state(world->rank(), 4, 2);
    if (world->rank() == 1) {
      make_uncopyable(&state);
    }
    saver.start(state, {run});
    const Error error = error_of([&] { saver.wait(); });
    if (world->rank() == 0) {
      ::_exit(0);
    }
    EXPECT_NE(error.message().find("meta"), std::string::npos) << error.message();
  });
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.exit_code, 0) << end.output;
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
