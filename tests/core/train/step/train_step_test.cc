// What a training step leaves alone, and what it computes with.
#include "core/train/step/train_step.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/train/optim/adamw.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {
namespace {

// Its output is its loss.
class Squared : public nn::Module {
 public:
  Squared() : nn::Module("Squared") {
    stack = register_module("stack", std::make_shared<TinyStack>(TinyStackOptions{4, 6, 2}));
  }
  std::shared_ptr<TinyStack> stack;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return (*stack)(std::move(inputs)).toTensor().square().sum();
  }
};

struct Job {
  std::shared_ptr<Squared> model;
  std::shared_ptr<fsdp::Unit> root;
  std::unique_ptr<TrainStep> step;
};

using fsdp::ReducedLast;

Job job_of(const std::shared_ptr<World>& world, int64_t accumulate, ReducedLast reduced_last) {
  Job job;
  job.model = std::make_shared<Squared>();
  job.root = fsdp::fully_shard_by_kind(job.model, Mesh::for_fsdp(world, 2), {}, {"TinyBlock"});
  StepOptions options;
  options.accumulate = accumulate;
  options.reduced_last = reduced_last;
  job.step = std::make_unique<TrainStep>(job.model, make_adamw(job.root, {}), options);
  return job;
}

std::vector<std::vector<at::Tensor>> batch_of(int64_t micro_batches, int64_t width = 4) {
  return std::vector<std::vector<at::Tensor>>(static_cast<size_t>(micro_batches),
                                              {at::ones({2, width})});
}

// Sync and all-reduce of each unit.
std::string flags_of(fsdp::Unit& root) {
  std::string text;
  for (const auto& unit : root.units()) {
    const fsdp::GroupSettings& settings = unit->group()->settings();
    text += unit->name() + "=" + (settings.requires_gradient_sync ? "s" : "-") +
            (settings.requires_all_reduce ? "a" : "-") + " ";
  }
  return text;
}

TEST(TrainStep, LeavesTheCallersSettingsAsTheyAre) {
  for (const ReducedLast reduced_last : {ReducedLast::kNone, ReducedLast::kAll}) {
    const bool accumulate_last = reduced_last == ReducedLast::kAll;
    for (const int64_t micro_batches : {1, 2}) {
      run_ranks(4, [&](const std::shared_ptr<World>& world) {
        const Job job = job_of(world, micro_batches, reduced_last);
        const TinyStack& stack = *job.model->stack;
        fsdp::find_unit(*stack.blocks[0])->set_requires_all_reduce(false);
        fsdp::find_unit(*stack.blocks[1])->set_requires_gradient_sync(false);
        const std::string before = flags_of(*job.root);
        job.root->scheduler().reset_stats();
        job.step->run(batch_of(micro_batches));
        EXPECT_EQ(flags_of(*job.root), before);
        const fsdp::Stats& stats = job.root->scheduler().stats();
        // The root's are reduced and block 0's; block 1's never, block 0's not over replicas.
        EXPECT_EQ(stats.reduce_scatters, accumulate_last ? 2 : 2 * micro_batches);
        EXPECT_EQ(stats.all_reduces, accumulate_last ? 1 : micro_batches);
        EXPECT_ANY_THROW(job.step->run(batch_of(micro_batches, /*width=*/3)));
        EXPECT_EQ(flags_of(*job.root), before);
      });
    }
  }
}

// PyTorch's FSDP2 would compute with what was gathered before the update.
TEST(TrainStep, ComputesWithTheNewValuesOfWhatStaysGathered) {
  const auto losses_of = [](bool reshard_after_backward) {
    std::vector<double> losses;
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      const Job job = job_of(world, 1, ReducedLast::kNone);
      job.root->set_reshard_after_backward(reshard_after_backward);
      for (int step = 0; step < 3; ++step) {
        const double loss = job.step->run(batch_of(1)).loss;
        if (world->rank() == 0) {
          losses.push_back(loss);
        }
      }
    });
    return losses;
  };
  const std::vector<double> losses = losses_of(/*reshard_after_backward=*/true);
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(losses_of(false), losses);
}

TEST(TrainStep, WithoutAVocabularyCannotReduceItLast) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    EXPECT_EQ(error_of([&] { job_of(world, 2, ReducedLast::kVocabulary); }).code(),
              Code::kUnsupported);
  });
}

TEST(TrainStep, ThatFailsLeavesNoGradientsToTheNext) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const Job job = job_of(world, /*accumulate=*/2, ReducedLast::kNone);
    auto batch = batch_of(2);
    batch[1] = {at::ones({2, 3})};
    EXPECT_ANY_THROW(job.step->run(batch));
    for (const fsdp::ShardedParam* param : job.root->parameters()) {
      EXPECT_FALSE(param->sharded().grad().defined()) << param->name();
    }
  });
}

}  // namespace
}  // namespace fsdp2::train
