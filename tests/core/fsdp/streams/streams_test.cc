// What the streams of a step are given is in an order that its memory allows, and the host waits
// for nothing.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/nn/module.h"
#include "tests/core/fsdp/streams/scenario.h"
#include "tests/support/recording_device/backend.h"
#include "tests/support/recording_device/device.h"

namespace fsdp2::fsdp {
namespace {

class Scenarios : public ::testing::TestWithParam<Scenario> {};

TEST_P(Scenarios, AreInOrderAndTheHostWaitsOnlyWhereItMust) {
  const Recording recording = record(GetParam());
  EXPECT_EQ(recording.problems, std::vector<std::string>{});
  std::vector<std::string> host_waits;
  for (int step = 0; step < kSteps; ++step) {
    host_waits.insert(host_waits.end(), GetParam().host_waits.begin(), GetParam().host_waits.end());
  }
  EXPECT_EQ(recording.host_waits, host_waits);
  EXPECT_EQ(recording.losses, losses_on_host(GetParam()));
}

TEST_P(Scenarios, EveryStepTakesTheSameMemory) {
  const Recording recording = record(GetParam());
  for (int step = 2; step < kSteps; ++step) {
    EXPECT_EQ(recording.live_bytes[step], recording.live_bytes[1]);
    EXPECT_EQ(recording.peak_bytes[step], recording.peak_bytes[1]);
  }
}

TEST_P(Scenarios, AreInOrderOverATransportOfTheHostToo) {
  const Recording recording = record(GetParam(), std::nullopt, CollectiveOrder::kOnHost);
  EXPECT_EQ(recording.problems, std::vector<std::string>{});
  EXPECT_EQ(recording.losses, losses_on_host(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Streams, Scenarios, ::testing::ValuesIn(scenarios()),
                         [](const auto& info) { return info.param.name; });

class Graphs : public Scenarios {};

// But where the host must wait, or is asked for inputs in the midst.
TEST_P(Graphs, AreRecordedAndReplayed) {
  const GraphRecording recording = record_as_graph(GetParam());
  EXPECT_EQ(recording.problems, std::vector<std::string>{});
  if (!GetParam().host_waits.empty() || GetParam().name == "EvaluatedBetweenSteps") {
    EXPECT_THAT(recording.refused, ::testing::HasSubstr("in a recording: "));
  } else {
    EXPECT_EQ(recording.refused, "");
    EXPECT_EQ(recording.losses, losses_on_host(GetParam()));
  }
}

// A step that updates units in backward is no graph (train/step/train_step.h).
std::vector<Scenario> scenarios_that_end_well() {
  std::vector<Scenario> all;
  for (const Scenario& scenario : scenarios()) {
    if (scenario.fails == Scenario::Fails::kNowhere && !scenario.updates_units) {
      all.push_back(scenario);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Streams, Graphs, ::testing::ValuesIn(scenarios_that_end_well()),
                         [](const auto& info) { return info.param.name; });

TEST(Streams, ALoneRankKeepsItsParametersWholeOnItsDevice) {
  recording::run_ranks_on_devices(1, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2});
    const auto root =
        fully_shard_by_kind(model, Mesh::for_fsdp(world, 0, "recording"), {}, {"TinyBlock"});
    for (const ShardedParam* param : root->parameters()) {
      EXPECT_TRUE(param->is_whole()) << param->name();
      EXPECT_EQ(param->sharded().device(), root->mesh().device());
    }
  });
}

Recording record_blocks(int ranks, int64_t count) {
  Scenario scenario;
  scenario.ranks = ranks;
  scenario.model.blocks = count;
  scenario.blocks.resize(static_cast<size_t>(count));
  std::iota(scenario.blocks.begin(), scenario.blocks.end(), 0);
  Recording recording = record(scenario);
  EXPECT_EQ(recording.problems, std::vector<std::string>{});
  return recording;
}

// What a device is asked for costs the host microseconds each time, and there would be hundreds.
TEST(Streams, TheUnitsOfALoneRankAskNoStreamToWait) {
  const auto waits_of_a_step = [](int64_t blocks) {
    const Recording recording = record_blocks(1, blocks);
    return recording.waits_before[2] - recording.waits_before[1];
  };
  EXPECT_EQ(waits_of_a_step(1), waits_of_a_step(5));
}

// Each costs the host as much as what it is for. A unit's is the one behind its reduction.
TEST(Streams, AUnitMakesOneEventAStep) {
  const auto events_of_a_step = [](int64_t blocks) {
    const Recording recording = record_blocks(2, blocks);
    return recording.events_before[2] - recording.events_before[1];
  };
  EXPECT_EQ(events_of_a_step(5) - events_of_a_step(1), 4);
}

TEST(Streams, IgnoredParametersAreOnTheDeviceOfTheMesh) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2});
    const at::Tensor weight = model->blocks[1]->in->weight;
    const at::Tensor values = weight.detach().clone();
    const at::Tensor deferred = model->blocks[0]->out->bias;
    deferred.set_data(nn::deferred_parameter(deferred.sizes(), deferred.scalar_type()).detach());
    weight.mutable_grad() = at::ones_like(values);
    Policy policy;
    policy.ignored = {weight, deferred};
    const auto root =
        fully_shard_by_kind(model, Mesh::for_fsdp(world, 0, "recording"), policy, {"TinyBlock"});
    const at::Device device = root->mesh().device();
    EXPECT_EQ(deferred.device(), device);
    EXPECT_TRUE(nn::has_no_memory(deferred));
    EXPECT_EQ(weight.device(), device);
    EXPECT_TRUE(weight.detach().to(at::kCPU).equal(values));
    EXPECT_TRUE(weight.requires_grad());
    EXPECT_EQ(weight.grad().device(), device);
    EXPECT_TRUE(weight.grad().to(at::kCPU).equal(at::ones_like(values)));
    nn::resize_storage(deferred, deferred.numel() * 4);
    {
      const at::NoGradGuard no_grad;
      deferred.zero_();
    }
    (*model)(at::ones({2, 8}, at::device(at::kCPU))).sum().backward();
    EXPECT_EQ(weight.grad().device(), device);
  });
}

// Ranks that begin collectives of several groups in different orders would wait for each other.
TEST(Streams, ACollectiveOfTheHostIsWaitedForWhereItsResultIsNeeded) {
  const auto body = [](const std::shared_ptr<World>& world) {
    auto model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2});
    const auto root =
        fully_shard_by_kind(model, Mesh::for_fsdp(world, 0, "recording"), {}, {"TinyBlock"});
    const auto unit = root->units().at(1);
    root->mesh().comm(0, Lane::kGather).connect();
    if (world->rank() == 1) {
      world->control().barrier();
    }
    UnshardHandle handle = unit->unshard(/*async_op=*/true);
    if (world->rank() == 0) {
      world->control().barrier();  // the other one begins its gather behind this
    }
    handle.wait();
    EXPECT_EQ(unit->group()->state(), GroupState::kUnsharded);
  };
  recording::run_ranks_on_devices(2, body, CollectiveOrder::kOnHost);
}

// With a reduction under way, whose memory goes.
TEST(Streams, ATreeMayEndWhileTheDeviceWorks) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    auto model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2});
    auto root =
        fully_shard_by_kind(model, Mesh::for_fsdp(world, 0, "recording"), {}, {"TinyBlock"});
    root->set_is_last_backward(false);
    (*model)(at::ones({2, 8}, at::device(at::kCPU))).sum().backward();
    const at::Device device = root->mesh().device();
    root.reset();
    model.reset();
    at::empty({8}, at::device(device));
    EXPECT_EQ(recording::recorder(device.index()).problems(), std::vector<std::string>{});
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
