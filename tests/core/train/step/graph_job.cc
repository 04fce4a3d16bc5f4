#include "tests/core/train/step/graph_job.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>

#include "core/nn/layers/dropout.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/train/optim/adamw.h"

namespace fsdp2::train {

// x + dropout(block(x)), which runs again in backward where that is asked for.
class DroppedBlock : public nn::Module, public nn::OwnGenerator {
 public:
  DroppedBlock(std::shared_ptr<TinyBlock> block, at::Generator generator, double probability)
      : nn::Module("DroppedBlock"), generator_(std::move(generator)), probability_(probability) {
    block_ = register_module("block", std::move(block));
  }
  std::optional<at::Generator> own_generator() const override { return generator_; }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor x = inputs[0].toTensor();
    return x + nn::with_dropout((*block_)(x), nn::draw_row_keys(generator_, x), probability_);
  }

 private:
  std::shared_ptr<TinyBlock> block_;
  at::Generator generator_;
  const double probability_;
};

Model::Model(const TinyStackOptions& options, double dropout)
    : nn::Module("Model"), generator_(at::detail::createCPUGenerator(7)) {
  stack_ = register_module("stack", std::make_shared<TinyStack>(options));
  if (dropout > 0.0) {
    for (int i = 0; i < 2; ++i) {
      const auto block = std::make_shared<TinyBlock>(options.width, options.inner);
      dropped_.push_back(
          register_module("dropped" + std::to_string(i),
                          std::make_shared<DroppedBlock>(block, generator_, dropout)));
    }
  }
}

std::optional<at::Generator> Model::own_generator() const {
  return dropped_.empty() ? std::nullopt : std::optional<at::Generator>(generator_);
}

int64_t Model::counted_labels(const nn::Values& inputs) const {
  return inputs.at(1).toTensor().ge(0).sum().item<int64_t>();
}

c10::IValue Model::forward(nn::Values inputs) {
  at::Tensor x = (*stack_)(inputs[0].toTensor());
  for (const auto& block : dropped_) {
    x = (*block)(x);
  }
  if (in_forward) {
    in_forward(x);
  }
  const at::Tensor counts = inputs[1].toTensor().ge(0).to(at::kFloat);
  return (x.to(at::kFloat).square().sum(1) * counts).sum() / counts.sum();
}

Job make_job(const GraphScenario& scenario, const std::shared_ptr<World>& world, bool uses_graphs,
             const std::string& device_type) {
  Job job;
  job.model = std::make_shared<Model>(scenario.model, scenario.dropout);
  if (scenario.recomputes) {
    for (const auto& block : job.model->dropped()) {
      nn::checkpoint_activations(*block);
    }
  }
  job.root =
      fsdp::fully_shard_by_kind(job.model, Mesh::for_fsdp(world, scenario.fsdp_size, device_type),
                                scenario.policy, {"TinyBlock"});
  StepOptions options = scenario.options;
  options.uses_graphs = uses_graphs;
  job.step = std::make_unique<TrainStep>(job.model, make_adamw(job.root, {}), options);
  return job;
}

Batch batch_of(const GraphScenario& scenario, int step, int rank) {
  Batch batch;
  for (int64_t micro = 0; micro < scenario.options.accumulate; ++micro) {
    const at::Generator generator = at::detail::createCPUGenerator(
        static_cast<uint64_t>(1000 + 100 * step + 10 * micro + rank));
    const int64_t rows = scenario.rows(step);
    const at::Tensor labels = at::zeros({rows}, at::device(at::kCPU).dtype(at::kLong));
    labels.slice(0, 0, (step + micro + rank) % 3).fill_(-1);
    batch.push_back({at::randn({rows, kWidth}, generator), labels});
  }
  return batch;
}

Outcome outcome_of(const GraphScenario& scenario, const Job& job, int rank,
                   const std::function<void()>& before, const std::function<void()>& after) {
  Outcome outcome;
  for (int step = 0; step < kGraphSteps; ++step) {
    if (scenario.before_step) {
      scenario.before_step(*job.root, step);
    }
    if (before) {
      before();
    }
    const StepResult result = job.step->run(batch_of(scenario, step, rank));
    outcome.numbers.push_back(
        {result.loss, result.grad_norm, result.loss_scale, result.applied ? 1.0 : 0.0});
    if (after) {
      after();
    }
  }
  for (const fsdp::ShardedParam* param : job.root->parameters()) {
    outcome.values.push_back(param->local_values().to(at::kCPU));
  }
  outcome.stats = job.root->scheduler().stats();
  outcome.calls = job.root->comm_counters();
  outcome.events = job.root->scheduler().events().size();
  return outcome;
}

void expect_same(const Outcome& found, const Outcome& expected) {
  EXPECT_EQ(found.numbers, expected.numbers);
  ASSERT_EQ(found.values.size(), expected.values.size());
  for (size_t i = 0; i < found.values.size(); ++i) {
    EXPECT_TRUE(found.values[i].equal(expected.values[i])) << "parameter " << i;
  }
  EXPECT_EQ(found.stats.all_gathers, expected.stats.all_gathers);
  EXPECT_EQ(found.stats.reduce_scatters, expected.stats.reduce_scatters);
  EXPECT_EQ(found.stats.all_reduces, expected.stats.all_reduces);
  EXPECT_EQ(found.stats.peak_unsharded_bytes, expected.stats.peak_unsharded_bytes);
  EXPECT_EQ(found.calls.all_gather_bytes, expected.calls.all_gather_bytes);
  EXPECT_EQ(found.calls.reduce_scatter_bytes, expected.calls.reduce_scatter_bytes);
  EXPECT_EQ(found.events, expected.events);
}

}  // namespace fsdp2::train
