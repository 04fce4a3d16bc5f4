// Steps that cannot be recorded, on all ranks or on one: on recording devices.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/nn/value_map.h"
#include "core/train/step/step_graphs.h"
#include "tests/core/train/step/graph_job.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/recording_device/backend.h"
#include "tests/support/recording_device/device.h"

namespace fsdp2::train {
namespace {

using ::testing::HasSubstr;

constexpr int kWarmUps = GraphTurns::kWarmUps;

class GraphFailure : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_sink(LogLevel::kWarning, [this](const LogRecord& record) {
      const std::lock_guard<std::mutex> lock(mutex_);
      warnings_.push_back(record.message);
    });
  }
  void TearDown() override { set_log_sink(LogLevel::kWarning, {}); }

  // Those so far.
  std::vector<std::string> take_warnings() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(warnings_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> warnings_;
};

void run_on_devices(int ranks, const RankBody& body) {
  recording::run_ranks_on_devices(ranks, [&](const std::shared_ptr<World>& world) {
    const LogScope scope;
    body(world);
  });
}

void expect_nothing_left(const Job& job) {
  EXPECT_TRUE(job.root->scheduler().is_at_rest());
  for (const fsdp::ShardedParam* param : job.root->parameters()) {
    EXPECT_FALSE(param->sharded().grad().defined()) << param->name();
  }
}

// What a step tells and counts.
struct Told {
  std::vector<double> numbers;
  std::vector<int64_t> counts;
  std::vector<std::string> events;

  bool operator==(const Told& other) const {
    return numbers == other.numbers && counts == other.counts && events == other.events;
  }
};

Told told_by_step(const Job& job, const Batch& batch) {
  fsdp::Scheduler& scheduler = job.root->scheduler();
  scheduler.reset_stats();
  scheduler.clear_events();
  CommCounters before = job.root->comm_counters();
  const StepResult result = job.step->run(batch);
  Told told{{result.loss, result.grad_norm, static_cast<double>(result.n_tokens)}, {}, {}};
  const fsdp::Stats& stats = scheduler.stats();
  told.counts = {stats.all_gathers, stats.reduce_scatters, stats.all_reduces, stats.unsharded_bytes,
                 stats.peak_unsharded_bytes};
  CommCounters calls = job.root->comm_counters();
  calls -= before;
  for (const auto count : kCommCounts) {
    told.counts.push_back(calls.*count);
  }
  for (const fsdp::Event& event : scheduler.events()) {
    told.events.push_back(std::to_string(static_cast<int>(event.kind)) + event.group);
  }
  return told;
}

using InForward = std::function<void(const at::Tensor& x, int rank)>;

// Runs steps with graphs beside those without. Returns how often forward was called with them.
int expect_same_told(const std::shared_ptr<World>& world, const GraphScenario& scenario, int steps,
                     const InForward& in_forward) {
  std::array<Job, 2> jobs;
  int forwards = 0;
  for (const bool uses_graphs : {false, true}) {
    Job& job = jobs.at(uses_graphs ? 1 : 0);
    job = make_job(scenario, world, uses_graphs, "recording");
    job.model->in_forward = [&, uses_graphs](const at::Tensor& x) {
      forwards += uses_graphs ? 1 : 0;
      in_forward(x, world->rank());
    };
  }
  for (int step = 0; step < steps; ++step) {
    const Batch batch = batch_of(scenario, step, world->rank());
    const Told expected = told_by_step(jobs[0], batch);
    EXPECT_TRUE(world->size() == 1 || expected.counts.at(4) > 0);  // bytes, at the peak
    EXPECT_TRUE(told_by_step(jobs[1], batch) == expected) << "step " << step;
    expect_nothing_left(jobs[1]);
  }
  return forwards;
}

// Warm-ups, a rehearsal, the recording and replays.
TEST_F(GraphFailure, EachStepCountsWhatItDoesWithoutGraphs) {
  run_on_devices(2, [](const std::shared_ptr<World>& world) {
    for (const bool mixes : {false, true}) {
      GraphScenario scenario = named("");
      if (mixes) {
        scenario.policy.mixed_precision.param_dtype = at::kBFloat16;
        scenario.options.accumulate = 2;
      }
      const int micro_batches = mixes ? 2 : 1;
      EXPECT_EQ(expect_same_told(world, scenario, kGraphSteps, [](const at::Tensor&, int) {}),
                (kWarmUps + 2) * micro_batches);
    }
  });
  EXPECT_THAT(take_warnings(), ::testing::IsEmpty());
}

TEST_F(GraphFailure, AForwardThatWaitsForTheDeviceIsToldOnceAndGoesOnAsItIs) {
  for (const int ranks : {1, 2}) {
    run_on_devices(ranks, [](const std::shared_ptr<World>& world) {
      EXPECT_EQ(expect_same_told(world, named(""), kGraphSteps,
                                 [](const at::Tensor& x, int) { x.sum().item<double>(); }),
                kGraphSteps + 1);
    });
    const std::vector<std::string> warnings = take_warnings();
    ASSERT_EQ(warnings.size(), static_cast<size_t>(ranks));
    EXPECT_THAT(warnings[0], HasSubstr("cuda_graph: a step could not be recorded, so those of its "
                                       "shape run as without it: "));
    EXPECT_THAT(warnings[0], HasSubstr("the host waits"));
  }
}

TEST_F(GraphFailure, AShapeThatCannotBeRecordedLeavesTheOthersTheirGraphs) {
  run_on_devices(2, [](const std::shared_ptr<World>& world) {
    GraphScenario scenario = named("");
    scenario.rows = [](int step) { return step % 2 == 0 ? 3 : 5; };
    const auto wait_in_one_shape = [](const at::Tensor& x, int) {
      if (x.size(0) == 5) {
        x.sum().item<double>();
      }
    };
    // 8 steps of each: those of 3 rows are recorded, and replayed before and after the other fails.
    EXPECT_EQ(expect_same_told(world, scenario, 16, wait_in_one_shape), (kWarmUps + 2) + (8 + 1));
  });
  EXPECT_EQ(take_warnings().size(), 2U);  // one a rank
}

// Between two collectives, in the rehearsal: nobody waits for the rank.
TEST_F(GraphFailure, WhatOneRankAloneCannotRecordNoRankRecords) {
  run_on_devices(2, [](const std::shared_ptr<World>& world) {
    int forwards = 0;
    const auto fail_in_rehearsal = [&](const at::Tensor& x, int rank) {
      // Each step runs twice before: without graphs and with them.
      if (++forwards == 2 * (kWarmUps + 1) && rank == 1) {
        x.sum().item<double>();
      }
    };
    EXPECT_EQ(expect_same_told(world, named(""), kGraphSteps, fail_in_rehearsal), kGraphSteps + 1);
  });
  const std::vector<std::string> warnings = take_warnings();
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_THAT(warnings, ::testing::Contains(HasSubstr("another rank could not")));
}

// Fails in the recording itself, in the middle of rank 1's work or behind the last of it.
struct BrokenOff {
  std::vector<Error> errors{2, Error(Code::kInternal, "")};
  std::vector<double> seconds{0.0, 0.0};
};

BrokenOff break_off_in_forward() {
  BrokenOff broken;
  run_on_devices(2, [&](const std::shared_ptr<World>& world) {
    const auto rank = static_cast<size_t>(world->rank());
    Job job = make_job(named(""), world, /*uses_graphs=*/true, "recording");
    int forwards = 0;
    job.model->in_forward = [&](const at::Tensor&) {
      if (++forwards == kWarmUps + 2 && rank == 1) {
        throw std::runtime_error("no room for more of it");
      }
    };
    for (int step = 0; step < kWarmUps; ++step) {
      job.step->run(batch_of(named(""), step, world->rank()));
    }
    const auto start = std::chrono::steady_clock::now();
    broken.errors[rank] =
        error_of([&] { job.step->run(batch_of(named(""), kWarmUps, world->rank())); });
    broken.seconds[rank] =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    expect_nothing_left(job);
  });
  return broken;
}

TEST_F(GraphFailure, ARecordingThatOneRankBreaksOffEndsTheStepOnAllRanksAtOnce) {
  const BrokenOff broken = break_off_in_forward();
  EXPECT_THAT(broken.errors[1].message(),
              AllOf(HasSubstr("cuda_graph: the recording of a step broke off, although its "
                              "rehearsal had not: "),
                    HasSubstr("no room for more of it")));
  EXPECT_EQ(broken.errors[0].code(), Code::kPeerFailed) << broken.errors[0].message();
  EXPECT_THAT(broken.errors[0].message(), HasSubstr("rank 1: cuda_graph: the recording of a step"));
  for (const double seconds : broken.seconds) {
    EXPECT_LT(seconds, 40.0);  // the time-out is 60 s
  }
}

// The last thing that one rank does in the recording fails, for which no other waits: they learn of
// it before they replay.
TEST_F(GraphFailure, ARecordingThatFailsBehindItsLastCollectiveIsGivenUpByAll) {
  run_on_devices(2, [](const std::shared_ptr<World>& world) {
    const GraphScenario scenario = named("");
    const Job job = make_job(scenario, world, /*uses_graphs=*/false, "recording");
    StepGraphs graphs(*job.model, *job.root);
    int calls = 0;
    at::Tensor of_recording;
    const auto work = [&](const std::vector<nn::Values>& batch, const StepFactors& factors) {
      const at::Tensor loss = (*job.model)(batch[0]).toTensor();
      factors.times(loss, 0).backward();
      if (++calls == kWarmUps + 2 && world->rank() == 1) {
        // Work that nobody waits for: the end of the recording finds it.
        const c10::Stream aside =
            c10::impl::VirtualGuardImpl(recording::kType).getNewStream(loss.device(), 0);
        const c10::StreamGuard on_stream(aside);
        of_recording = at::ones({2}, loss.options());
      }
      return std::vector<at::Tensor>{loss.detach()};
    };
    for (int step = 0; step < kGraphSteps; ++step) {
      const std::vector<nn::Values> batch{
          nn::values_of(batch_of(scenario, step, world->rank())[0])};
      const std::vector<double> parts = graphs.part_of_key(batch);
      const at::Tensor sums = at::tensor(parts, at::device(at::kCPU).dtype(at::kDouble));
      world->control().all_reduce(sums, ReduceOp::kSum).wait();
      const double* values = sums.const_data_ptr<double>();
      const std::vector<at::Tensor> losses =
          graphs.run(batch, {1.0}, {values, values + sums.numel()}, work);
      EXPECT_TRUE(losses.at(0).isfinite().item<bool>());
      EXPECT_TRUE(job.root->parameters().front()->sharded().grad().defined());
      job.root->zero_grad();
    }
    EXPECT_EQ(calls, kGraphSteps + 2);
  });
  EXPECT_EQ(take_warnings().size(), 2U);
}

}  // namespace
}  // namespace fsdp2::train
