// Training steps of small models, with graphs and without: what a test of graphs compares.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/comm/world.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/own_generator.h"
#include "core/nn/token_loss.h"
#include "core/train/step/train_step.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {

using Batch = std::vector<std::vector<at::Tensor>>;

constexpr int64_t kWidth = 8;
constexpr int kGraphSteps = 8;  // 3 as they are, one that is recorded, and replays

class DroppedBlock;

// Its output is its loss: the mean over the rows whose label is not -1, of which the second input
// has one for each.
class Model : public nn::Module, public nn::TokenLoss, public nn::OwnGenerator {
 public:
  explicit Model(const TinyStackOptions& options, double dropout = 0.0);

  std::optional<at::Generator> own_generator() const override;
  int64_t counted_labels(const nn::Values& inputs) const override;
  void set_loss_chunk(int64_t /*labels*/) override {}
  const std::vector<std::shared_ptr<DroppedBlock>>& dropped() const { return dropped_; }
  // What it does in forward beside that.
  std::function<void(const at::Tensor&)> in_forward;

 protected:
  c10::IValue forward(nn::Values inputs) override;

 private:
  std::shared_ptr<TinyStack> stack_;
  at::Generator generator_;
  std::vector<std::shared_ptr<DroppedBlock>> dropped_;
};

struct GraphScenario {
  std::string name;
  int ranks = 2;
  int64_t fsdp_size = 0;
  fsdp::Policy policy;
  TinyStackOptions model{kWidth, 16, 3};
  double dropout = 0.0;
  bool recomputes = false;
  StepOptions options;
  std::function<int64_t(int step)> rows = [](int) { return 3; };
  std::function<void(fsdp::Unit& root, int step)> before_step;
};

inline void PrintTo(const GraphScenario& scenario, std::ostream* out) { *out << scenario.name; }

GraphScenario named(std::string name);
std::vector<GraphScenario> graph_scenarios();

struct Job {
  std::shared_ptr<Model> model;
  std::shared_ptr<fsdp::Unit> root;
  std::unique_ptr<TrainStep> step;
};

Job make_job(const GraphScenario& scenario, const std::shared_ptr<World>& world, bool uses_graphs,
             const std::string& device_type);
Batch batch_of(const GraphScenario& scenario, int step, int rank);

// What kGraphSteps steps come to.
struct Outcome {
  std::vector<std::vector<double>> numbers;  // loss, norm, scale and whether applied, of each step
  std::vector<at::Tensor> values;            // of the parameters, at the end
  fsdp::Stats stats;
  CommCounters calls;
  size_t events = 0;
};
// before and after: each step.
Outcome outcome_of(const GraphScenario& scenario, const Job& job, int rank,
                   const std::function<void()>& before = {},
                   const std::function<void()>& after = {});
void expect_same(const Outcome& found, const Outcome& expected);

}  // namespace fsdp2::train
