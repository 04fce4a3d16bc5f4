// Training steps that are recorded and replayed, beside the same steps without: on recording
// devices, whose recordings hold what a GPU's can, and refuse what those refuse.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/train/optim/adamw.h"
#include "tests/core/train/step/graph_job.h"
#include "tests/support/ranks.h"
#include "tests/support/recording_device/backend.h"
#include "tests/support/recording_device/device.h"

namespace fsdp2::train {
namespace {

class GraphSteps : public ::testing::TestWithParam<GraphScenario> {};

// What the host waits for, by step, and what is out of order.
struct Recorded {
  Outcome outcome;
  std::vector<std::vector<std::string>> host_waits;
  std::vector<std::string> problems;
};

Recorded record(const GraphScenario& scenario, const std::shared_ptr<World>& world,
                bool uses_graphs) {
  const Job job = make_job(scenario, world, uses_graphs, "recording");
  recording::Recorder& recorder = recording::recorder(job.root->mesh().device().index());
  recorder.start();
  Recorded recorded;
  size_t waits_before = 0;
  recorded.outcome = outcome_of(
      scenario, job, world->rank(), [&] { waits_before = recorder.host_waits().size(); },
      [&] {
        const std::vector<std::string> waits = recorder.host_waits();
        recorded.host_waits.emplace_back(waits.begin() + static_cast<ptrdiff_t>(waits_before),
                                         waits.end());
      });
  recorded.problems = recorder.problems();
  return recorded;
}

TEST_P(GraphSteps, AreToTheBitWhatTheyAreWithoutGraphsAndWaitForNothingMore) {
  recording::run_ranks_on_devices(GetParam().ranks, [&](const std::shared_ptr<World>& world) {
    const Recorded expected = record(GetParam(), world, /*uses_graphs=*/false);
    const Recorded found = record(GetParam(), world, /*uses_graphs=*/true);
    expect_same(found.outcome, expected.outcome);
    EXPECT_EQ(found.host_waits, expected.host_waits);
    EXPECT_EQ(found.problems, std::vector<std::string>{});
  });
}

INSTANTIATE_TEST_SUITE_P(Step, GraphSteps, ::testing::ValuesIn(graph_scenarios()),
                         [](const auto& info) { return info.param.name; });

// How often forward is called: by steps as they are, and by the one that is recorded.
int forwards_of(const std::shared_ptr<World>& world, const GraphScenario& scenario,
                const std::function<void(Job& job, int step)>& before_step = {},
                int steps = kGraphSteps) {
  Job job = make_job(scenario, world, /*uses_graphs=*/true, "recording");
  int forwards = 0;
  job.model->in_forward = [&](const at::Tensor&) { ++forwards; };
  for (int step = 0; step < steps; ++step) {
    if (before_step) {
      before_step(job, step);
    }
    job.step->run(batch_of(scenario, step, world->rank()));
  }
  return forwards;
}

TEST(GraphStep, ForwardIsNotCalledOnceItIsRecorded) {
  recording::run_ranks_on_devices(
      2, [](const std::shared_ptr<World>& world) { EXPECT_EQ(forwards_of(world, named("")), 5); });
  // A lone rank has nobody who could wait for it, and needs no rehearsal.
  recording::run_ranks_on_devices(
      1, [](const std::shared_ptr<World>& world) { EXPECT_EQ(forwards_of(world, named("")), 4); });
}

TEST(GraphStep, RanksOfUnlikeShapesRecordAndReplayTogether) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    GraphScenario scenario = named("");
    // Rank 1 has another shape in steps 5 and 6; so has the job.
    const bool differs = world->rank() == 1;
    scenario.rows = [differs](int step) { return differs && (step == 5 || step == 6) ? 5 : 3; };
    EXPECT_EQ(forwards_of(world, scenario), 5 + 2);
  });
}

TEST(GraphStep, GradientsOfTheCallerAreAddedToAsEver) {
  const auto with_gradients = [](Job& job, int step) {
    if (step >= 5) {
      for (fsdp::ShardedParam* param : job.root->parameters()) {
        param->sharded().mutable_grad() = at::ones_like(param->sharded());
      }
    }
  };
  recording::run_ranks_on_devices(2, [&](const std::shared_ptr<World>& world) {
    EXPECT_EQ(forwards_of(world, named(""), with_gradients), 5 + 3);
  });
}

TEST(GraphStep, AStepThatFailsDropsItsGraphsAndLaterOnesAreRecordedAnew) {
  recording::run_ranks_on_devices(1, [](const std::shared_ptr<World>& world) {
    const GraphScenario scenario = named("");
    Job job = make_job(scenario, world, /*uses_graphs=*/true, "recording");
    int forwards = 0;
    job.model->in_forward = [&](const at::Tensor&) { ++forwards; };
    const auto run = [&](int step) { return job.step->run(batch_of(scenario, step, 0)); };
    for (int step = 0; step < 5; ++step) {
      run(step);
    }
    EXPECT_EQ(forwards, 4);
    const at::TensorOptions on_host = at::device(at::kCPU);
    EXPECT_ANY_THROW(job.step->run(
        {{at::ones({3, kWidth}, on_host), at::zeros({4}, on_host.dtype(at::kLong))}}));
    EXPECT_EQ(forwards, 5);
    for (int step = 5; step < 10; ++step) {
      run(step);
    }
    EXPECT_EQ(forwards, 5 + 4);
  });
}

TEST(GraphStep, AStepMayEndAndAnotherOneGoOnWithItsOptimizer) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    const GraphScenario scenario = named("");
    Job job = make_job(scenario, world, /*uses_graphs=*/true, "recording");
    for (int step = 0; step < 6; ++step) {
      job.step->run(batch_of(scenario, step, world->rank()));
    }
    job.step = std::make_unique<TrainStep>(job.model, make_adamw(job.root, {}), StepOptions{});
    EXPECT_TRUE(job.step->run(batch_of(scenario, 6, world->rank())).finite);
    const at::Device device = job.root->mesh().device();
    EXPECT_EQ(recording::recorder(device.index()).problems(), std::vector<std::string>{});
  });
}

}  // namespace
}  // namespace fsdp2::train
