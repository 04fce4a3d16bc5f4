#include "tests/core/fsdp/streams/scenario.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "tests/support/ranks.h"
#include "tests/support/recording_device/backend.h"
#include "tests/support/recording_device/device.h"
#include "tests/support/recording_device/graphs.h"

namespace fsdp2::fsdp {

namespace {

constexpr double kLearningRate = 0.01;
constexpr int64_t kLossBytes = 4;
constexpr int64_t kNoBlock = 99;

at::Tensor batch_of(int step, int micro, int rank, int64_t width) {
  const at::Generator generator =
      at::detail::createCPUGenerator(1000 + 100 * step + 10 * micro + rank);
  return at::randn({3, width}, generator);
}

void update(ShardedParam& param) {
  const at::NoGradGuard no_grad;
  const at::Tensor grad = param.sharded().grad();
  if (grad.defined()) {
    param.sharded().detach().add_(grad.to(param.dtype()), -kLearningRate);
    param.sharded().mutable_grad() = at::Tensor();
  }
}

class Steps {
 public:
  Steps(const Scenario& scenario, const std::shared_ptr<World>& world, const char* device_type)
      : scenario_(scenario),
        rank_(world->rank()),
        model_(std::make_shared<TinyStack>(scenario.model)),
        root_(fully_shard_by_kind(model_, Mesh::for_fsdp(world, scenario.fsdp_size, device_type),
                                  scenario.policy, {"TinyBlock"})) {
    if (scenario.prepare) {
      scenario.prepare(*root_);
    }
    if (scenario.optimizer_in_backward) {
      for (const auto& unit : root_->units()) {
        unit->set_on_sharded_grad(update);
      }
    }
  }

  // The losses of its micro batches.
  std::vector<at::Tensor> step(int step) {
    if (step == 1 && scenario_.fails != Scenario::Fails::kNowhere) {
      fail();
    }
    const std::vector<at::Tensor> losses = run(batches_of(step));
    update_all();
    return losses;
  }

  std::vector<at::Tensor> batches_of(int step) const {
    std::vector<at::Tensor> batches;
    for (int micro = 0; micro < scenario_.micro_batches; ++micro) {
      batches.push_back(batch_of(step, micro, rank_, scenario_.model.width));
    }
    return batches;
  }

  // The forwards and backwards of a step.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& batches) {
    std::vector<at::Tensor> losses;
    for (int micro = 0; micro < scenario_.micro_batches; ++micro) {
      if (scenario_.before_micro_batch) {
        scenario_.before_micro_batch(*root_, micro);
      }
      if (scenario_.updates_units && micro + 1 == scenario_.micro_batches) {
        root_->scheduler().set_on_reduced([](const ParamGroup& group) {
          for (ShardedParam* param : group.trainable()) {
            update(*param);
          }
        });
      }
      losses.push_back(forward(batches[static_cast<size_t>(micro)]));
      if (!scenario_.forwards_first) {
        losses.back().backward();
      }
    }
    if (scenario_.forwards_first) {
      for (size_t left = losses.size(); left > 0; --left) {
        losses[left - 1].backward();
      }
    }
    for (at::Tensor& loss : losses) {
      loss = loss.detach();
    }
    return losses;
  }

  void update_all() {
    if (!scenario_.optimizer_in_backward) {
      for (ShardedParam* param : root_->parameters()) {
        update(*param);
      }
    }
    if (scenario_.updates_units) {
      root_->scheduler().set_on_reduced({});
      root_->scheduler().shards_changed();
    }
    root_->zero_grad();
  }

  Unit& root() { return *root_; }

 private:
  // The shards have been written to before, with the values that they have, as a caller may.
  at::Tensor forward(const at::Tensor& batch) {
    {
      const at::NoGradGuard no_grad;
      for (ShardedParam* param : root_->parameters()) {
        param->sharded().detach().mul_(1.0);
      }
    }
    nn::Values inputs{batch};
    inputs.emplace_back(blocks_);
    return (*model_)(std::move(inputs)).toTensor().to(at::kFloat).square().sum() / 10.0;
  }

  // With a unit gathered ahead, or with reductions under way; on all ranks alike.
  void fail() {
    const bool in_forward = scenario_.fails == Scenario::Fails::kInForward;
    const auto unit = root_->units().at(2);
    if (in_forward) {
      blocks_ = {0, 1, kNoBlock};
    } else {
      unit->set_all_reduce_hook(
          [](const at::Tensor&) { throw std::runtime_error("a hook that fails"); });
    }
    EXPECT_ANY_THROW(forward(batch_of(0, 0, rank_, scenario_.model.width)).backward());
    blocks_ = scenario_.blocks;
    unit->set_all_reduce_hook({});
    root_->reset();
    root_->zero_grad();
  }

  const Scenario& scenario_;
  const int rank_;
  std::vector<int64_t> blocks_{scenario_.blocks};
  std::shared_ptr<TinyStack> model_;
  std::shared_ptr<Unit> root_;
};

void append(std::vector<double>& numbers, const std::vector<at::Tensor>& losses) {
  for (const at::Tensor& loss : losses) {
    numbers.push_back(loss.item<double>());
  }
}

}  // namespace

Recording record(const Scenario& scenario, std::optional<size_t> ignored_wait,
                 CollectiveOrder order) {
  Recording result;
  const auto body = [&](const std::shared_ptr<World>& world) {
    recording::Recorder& recorder =
        recording::recorder(static_cast<c10::DeviceIndex>(world->rank()));
    Recording own;
    auto steps = std::make_unique<Steps>(scenario, world, "recording");
    steps->root().tree();
    recorder.start(world->rank() == 0 ? ignored_wait : std::nullopt);
    std::vector<std::vector<at::Tensor>> losses;
    int64_t n_losses = 0;
    for (int step = 0; step < kSteps; ++step) {
      const int64_t live = recorder.live_bytes();
      own.live_bytes.push_back(live - kLossBytes * n_losses);
      own.waits_before.push_back(recorder.waits().size());
      own.events_before.push_back(
          recording::events_made(static_cast<c10::DeviceIndex>(world->rank())));
      recorder.restart_peak();
      losses.push_back(steps->step(step));
      n_losses += scenario.micro_batches;
      own.peak_bytes.push_back(recorder.peak_bytes() - live);
    }
    own.host_waits = recorder.host_waits();
    own.problems = recorder.problems();
    own.waits = recorder.waits();
    for (const std::vector<at::Tensor>& each : losses) {
      append(own.losses, each);
    }
    if (world->rank() == 0) {
      result = std::move(own);
    }
  };
  recording::run_ranks_on_devices(scenario.ranks, body, order);
  return result;
}

GraphRecording record_as_graph(const Scenario& scenario) {
  GraphRecording result;
  recording::run_ranks_on_devices(scenario.ranks, [&](const std::shared_ptr<World>& world) {
    GraphRecording own;
    Steps steps(scenario, world, "recording");
    append(own.losses, steps.step(0));
    Scheduler& scheduler = steps.root().scheduler();
    const at::Device device = steps.root().mesh().device();
    std::vector<at::Tensor> batches;
    for (const at::Tensor& batch : steps.batches_of(1)) {
      batches.push_back(batch.to(device));
    }
    std::vector<at::Tensor> losses;
    scheduler.release_buffers();
    try {
      const auto graph = recording::graphs().record(
          device, nullptr, [&] { scheduler.in_recording([&] { losses = steps.run(batches); }); });
      scheduler.release_buffers();
      graph->replay();
      steps.update_all();
      append(own.losses, losses);
      append(own.losses, steps.step(2));
    } catch (const c10::Error& error) {
      own.refused = error.what_without_backtrace();
    }
    own.problems = recording::recorder(device.index()).problems();
    if (world->rank() == 0) {
      result = std::move(own);
    }
  });
  return result;
}

std::vector<double> losses_on_host(const Scenario& scenario) {
  std::vector<double> result;
  run_ranks(scenario.ranks, [&](const std::shared_ptr<World>& world) {
    Steps steps(scenario, world, "cpu");
    std::vector<double> own;
    for (int step = 0; step < kSteps; ++step) {
      append(own, steps.step(step));
    }
    if (world->rank() == 0) {
      result = std::move(own);
    }
  });
  return result;
}

}  // namespace fsdp2::fsdp
