// Training steps on a device: what the host waits for, and what becomes of a collective that a
// stream was given and that failed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/train/optim/adamw.h"
#include "core/train/step/train_step.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/recording_device/backend.h"
#include "tests/support/recording_device/device.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {
namespace {

using ::testing::HasSubstr;

// Its output is its loss.
class Squared : public nn::Module {
 public:
  Squared() : nn::Module("Squared") {
    stack_ = register_module("stack", std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2}));
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return (*stack_)(std::move(inputs)).toTensor().square().sum();
  }

 private:
  std::shared_ptr<TinyStack> stack_;
};

struct Job {
  std::shared_ptr<fsdp::Unit> root;
  std::unique_ptr<TrainStep> step;
};

Job job_of(const std::shared_ptr<World>& world, const std::string& device_type,
           const StepOptions& options, const fsdp::Policy& policy = {}) {
  auto model = std::make_shared<Squared>();
  Job job;
  job.root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, 0, device_type), policy,
                                       {"TinyBlock"});
  job.step = std::make_unique<TrainStep>(model, make_adamw(job.root, {}), options);
  return job;
}

Job job_of(const std::shared_ptr<World>& world, const std::string& device_type) {
  StepOptions options;
  options.max_grad_norm = 1.0;
  return job_of(world, device_type, options);
}

std::vector<std::vector<at::Tensor>> batch() { return {{at::ones({2, 8}, at::device(at::kCPU))}}; }

std::vector<double> losses_of(const Job& job) {
  std::vector<double> losses;
  for (int i = 0; i < 3; ++i) {
    losses.push_back(job.step->run(batch()).loss);
  }
  return losses;
}

TEST(DeviceStep, WaitsForTheDeviceOnlyToReadWhatItReturns) {
  std::array<std::vector<double>, 2> on_device;
  recording::run_ranks_on_devices(2, [&](const std::shared_ptr<World>& world) {
    const Job job = job_of(world, "recording");
    recording::Recorder& recorder = recording::recorder(job.root->mesh().device().index());
    const size_t waits_before = recorder.host_waits().size();
    on_device.at(static_cast<size_t>(world->rank())) = losses_of(job);
    EXPECT_EQ(recorder.problems(), std::vector<std::string>{});
    // The losses, and the gradients' norm.
    EXPECT_EQ(recorder.host_waits().size() - waits_before, 3 * 2U)
        << ::testing::PrintToString(recorder.host_waits());
  });
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    EXPECT_EQ(losses_of(job_of(world, "cpu")), on_device.at(static_cast<size_t>(world->rank())));
  });
}

// A step waits for losses before backward, unless all is applied, and for losses and norm behind
// it. With shards on the host it also waits for gradients before the update of each of three units.
TEST(DeviceStep, UpdatesInBackwardWithoutMoreWaitsThanItMustHave) {
  for (const bool offloaded : {false, true}) {
    for (const NotFinite not_finite : {NotFinite::kError, NotFinite::kApply}) {
      StepOptions options;
      options.not_finite = not_finite;
      fsdp::Policy policy;
      policy.offload = {offloaded, /*pin_memory=*/false};
      std::array<std::vector<double>, 2> at_end;
      run_ranks(2, [&](const std::shared_ptr<World>& world) {
        at_end.at(static_cast<size_t>(world->rank())) =
            losses_of(job_of(world, "cpu", options, policy));
      });
      options.update_in_backward = true;
      recording::run_ranks_on_devices(2, [&](const std::shared_ptr<World>& world) {
        const Job job = job_of(world, "recording", options, policy);
        recording::Recorder& recorder = recording::recorder(job.root->mesh().device().index());
        const size_t waits_before = recorder.host_waits().size();
        EXPECT_EQ(losses_of(job), at_end.at(static_cast<size_t>(world->rank())));
        EXPECT_EQ(recorder.problems(), std::vector<std::string>{});
        const size_t of_losses = not_finite == NotFinite::kError ? 2 : 1;
        EXPECT_EQ(recorder.host_waits().size() - waits_before,
                  3 * (of_losses + (offloaded ? 3 : 1)))
            << ::testing::PrintToString(recorder.host_waits());
      });
    }
  }
}

TEST(DeviceStep, AFailedCollectiveEndsTheStepBeforeItsUpdate) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    const Job job = job_of(world, "recording");
    job.step->run(batch());
    const at::Device device = job.root->mesh().device();
    const at::Tensor values = job.root->parameters().front()->local_values();
    const at::Tensor before = values.cpu();
    if (world->rank() == 1) {
      recording::set_stream_error(
          device, std::make_exception_ptr(std::runtime_error("the cable was pulled")));
    }
    EXPECT_THAT(error_of([&] { job.step->run(batch()); }).message(),
                HasSubstr("the cable was pulled"));
    recording::set_stream_error(device, nullptr);
    EXPECT_TRUE(values.cpu().equal(before));
  });
}

}  // namespace
}  // namespace fsdp2::train
