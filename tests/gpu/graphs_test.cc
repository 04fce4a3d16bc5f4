// Training steps that are CUDA graphs: to the bit what they are without, step by step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "tests/core/train/step/graph_job.h"
#include "tests/gpu/missing_gpu.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

class GraphsOnAGpu : public ::testing::TestWithParam<GraphScenario> {
 protected:
  void SetUp() override {
    if (const auto reason = missing_gpu()) {
      GTEST_SKIP() << *reason;
    }
  }
};

// One rank, as ranks that share a GPU cannot use NCCL.
GraphScenario alone(GraphScenario scenario) {
  scenario.ranks = 1;
  scenario.fsdp_size = 0;
  if (scenario.policy.reshard_after_forward == fsdp::ReshardAfterForward::kSmaller) {
    scenario.policy.reshard_after_forward = fsdp::ReshardAfterForward::kAlways;
    scenario.policy.reshard_world = 0;
  }
  return scenario;
}

TEST_P(GraphsOnAGpu, AreToTheBitWhatStepsAreWithoutThem) {
  const GraphScenario scenario = alone(GetParam());
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    const Outcome expected = outcome_of(scenario, make_job(scenario, world, false, "cuda"), 0);
    const Outcome found = outcome_of(scenario, make_job(scenario, world, true, "cuda"), 0);
    expect_same(found, expected);
  });
}

INSTANTIATE_TEST_SUITE_P(Step, GraphsOnAGpu, ::testing::ValuesIn(graph_scenarios()),
                         [](const auto& info) { return info.param.name; });

class GraphOnAGpu : public GraphsOnAGpu {};

TEST_P(GraphOnAGpu, IsRecordedOnceAndReplayed) {
  const GraphScenario& scenario = GetParam();
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    const Job job = make_job(scenario, world, true, "cuda");
    int forwards = 0;
    job.model->in_forward = [&](const at::Tensor&) { ++forwards; };
    outcome_of(scenario, job, 0);
    EXPECT_EQ(forwards, 4);
  });
}

// The capture ends with CUDA's error, and the GPU, its streams and its memory go on.
TEST_P(GraphOnAGpu, LeavesOutAForwardThatWaitsForTheGpu) {
  const GraphScenario& scenario = GetParam();
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    std::vector<Outcome> outcomes;
    for (const bool uses_graphs : {false, true}) {
      const Job job = make_job(scenario, world, uses_graphs, "cuda");
      job.model->in_forward = [](const at::Tensor& x) { x.sum().item<double>(); };
      outcomes.push_back(outcome_of(scenario, job, 0));
    }
    EXPECT_EQ(outcomes[1].numbers, outcomes[0].numbers);
  });
}

// Numbers of the GPU's own generator, which LibTorch gives to each replay anew.
TEST_P(GraphOnAGpu, DrawsOtherNumbersInEachReplay) {
  const GraphScenario& scenario = GetParam();
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    const Job job = make_job(scenario, world, true, "cuda");
    at::Tensor drawn;
    job.model->in_forward = [&](const at::Tensor& x) { drawn = at::rand_like(x); };
    std::vector<at::Tensor> by_step;
    outcome_of(scenario, job, 0, {}, [&] { by_step.push_back(drawn.to(at::kCPU)); });
    for (size_t step = 1; step < by_step.size(); ++step) {
      EXPECT_FALSE(by_step[step].equal(by_step[step - 1])) << step;
    }
  });
}

// Those of the graph that stays are the generator's next ones, too, after a capture has failed.
TEST_P(GraphOnAGpu, AShapeThatCannotBeRecordedLeavesTheOthersTheirGraphs) {
  GraphScenario scenario = GetParam();
  scenario.rows = [](int step) { return step % 2 == 0 ? 3 : 5; };
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    const Job job = make_job(scenario, world, true, "cuda");
    int forwards = 0;
    at::Tensor drawn;
    job.model->in_forward = [&](const at::Tensor& x) {
      ++forwards;
      drawn = at::rand_like(x);
      if (x.size(0) == 5) {
        x.sum().item<double>();
      }
    };
    std::vector<at::Tensor> of_kept_shape;
    at::Tensor in_graph;
    for (int step = 0; step < 16; ++step) {
      job.step->run(batch_of(scenario, step, 0));
      in_graph = step == 6 ? drawn : in_graph;  // what was recorded
      if (step % 2 == 0) {
        of_kept_shape.push_back((step < 6 ? drawn : in_graph).to(at::kCPU));
      }
    }
    EXPECT_EQ(forwards, 4 + 9);
    for (size_t i = 1; i < of_kept_shape.size(); ++i) {
      EXPECT_FALSE(of_kept_shape[i].equal(of_kept_shape[i - 1])) << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Step, GraphOnAGpu, ::testing::Values(named("Usual")),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fsdp2::train
