// Training steps of a small model by two ways, one that updates at the end and one that does so in
// backward, for tests of the latter.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/custom_function.h>

#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/mesh.h"
#include "core/comm/world.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/value_map.h"
#include "core/train/checkpointer.h"
#include "core/train/optim/adamw.h"
#include "core/train/step/train_step.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {

// How the backward of a model's step ends.
enum class Ends { kWell, kInAnError, kInNan };

struct FailingBackward : torch::autograd::Function<FailingBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            bool throws) {
    context->saved_data["throws"] = throws;
    return input * 1.0;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (context->saved_data["throws"].toBool()) {
      throw std::runtime_error("a backward that fails");
    }
    return {gradients[0] * std::numeric_limits<double>::quiet_NaN(), at::Tensor()};
  }
};

// Its output is its loss. Inputs: x; the indices of the blocks that run. What goes wrong goes wrong
// before the last of these, which backward meets first.
class InBackwardModel : public nn::Module {
 public:
  explicit InBackwardModel(const TinyStackOptions& options) : nn::Module("InBackwardModel") {
    stack = register_module("stack", std::make_shared<TinyStack>(options));
  }
  std::shared_ptr<TinyStack> stack;
  Ends ends = Ends::kWell;
  double added = 0.0;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    at::Tensor x = inputs[0].toTensor();
    const at::Tensor blocks = inputs[1].toTensor();
    x = x + at::matmul(x, stack->embedding);
    for (int64_t i = 0; i < blocks.numel(); ++i) {
      if (ends != Ends::kWell && i + 1 == blocks.numel()) {
        x = FailingBackward::apply(x, ends == Ends::kInAnError);
      }
      x = (*stack->blocks.at(static_cast<size_t>(blocks[i].item<int64_t>())))(nn::Values{x})
              .toTensor();
    }
    return (x * stack->scale).to(at::kFloat).square().sum() / 10.0 + added;
  }
};

using MakeOptimizer =
    std::function<std::shared_ptr<Optimizer>(const std::shared_ptr<fsdp::Unit>& root)>;

inline std::shared_ptr<Optimizer> adamw_of(const std::shared_ptr<fsdp::Unit>& root) {
  return make_adamw(root, {1e-2});
}

struct InBackwardCase {
  std::string name;
  int ranks = 2;
  int64_t fsdp_size = 0;
  fsdp::Policy policy;
  TinyStackOptions model{8, 16, 3};
  StepOptions options;
  MakeOptimizer optimizer = adamw_of;
  // The blocks that run on a rank in a micro batch.
  std::function<std::vector<int64_t>(int rank, int64_t micro)> blocks = [](int, int64_t) {
    return std::vector<int64_t>{0, 1, 2};
  };
  std::function<void(fsdp::Unit& root)> prepare;
  at::ScalarType dtype = at::kFloat;
};

inline void PrintTo(const InBackwardCase& test, std::ostream* out) { *out << test.name; }

struct InBackwardJob {
  InBackwardJob(const std::shared_ptr<World>& world, const InBackwardCase& test, bool in_backward)
      : test_(test), rank_(world->rank()), model(std::make_shared<InBackwardModel>(test.model)) {
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*model)) {
      const_cast<at::Tensor&>(parameter.tensor).set_data(parameter.tensor.detach().to(test.dtype));
    }
    root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, test.fsdp_size), test.policy,
                                     {"TinyBlock"});
    if (test.prepare) {
      test.prepare(*root);
    }
    optimizer = test.optimizer(root);
    StepOptions options = test.options;
    options.update_in_backward = in_backward;
    step = std::make_unique<TrainStep>(model, optimizer, options);
    checkpointer = std::make_unique<Checkpointer>(root);
  }

  std::vector<at::Tensor> inputs(int64_t number, int64_t micro) const {
    const at::Generator generator = at::detail::createCPUGenerator(
        static_cast<uint64_t>(1000 + 100 * number + 10 * micro + rank_));
    return {at::randn({3, test_.model.width}, generator).to(test_.dtype),
            at::tensor(test_.blocks(rank_, micro), at::kLong)};
  }
  std::vector<std::vector<at::Tensor>> batch(int64_t number) const {
    std::vector<std::vector<at::Tensor>> batch;
    for (int64_t micro = 0; micro < test_.options.accumulate; ++micro) {
      batch.push_back(inputs(number, micro));
    }
    return batch;
  }
  StepResult run(int64_t number) const { return step->run(batch(number)); }

  double evaluate() const {
    const at::NoGradGuard no_grad;
    return (*model)(nn::values_of(inputs(77, 0))).toTensor().item<double>();
  }

  // Copies of the parameters and of the optimizer's state.
  std::vector<at::Tensor> values() const {
    std::vector<at::Tensor> values;
    for (size_t i = 0; i < optimizer->params().size(); ++i) {
      values.push_back(optimizer->params()[i]->sharded().detach().clone());
      for (const OptimizerState& state : optimizer->state(i)) {
        values.push_back(state.tensor.clone());
      }
    }
    return values;
  }

  TrainingObjects objects() const {
    TrainingObjects objects;
    objects.optimizer = optimizer.get();
    objects.step = step.get();
    return objects;
  }
  void save(const std::string& path) const {
    checkpointer->save("saving", [&] {
      SaveRequest request;
      request.path = path;
      request.objects = objects();
      return request;
    });
  }
  void load(const std::string& path, bool partial = false) const {
    checkpointer->load("loading", [&] {
      LoadRequest request;
      request.path = path;
      request.partial = partial;
      request.objects = objects();
      return request;
    });
  }

  const InBackwardCase& test_;
  const int rank_;
  std::shared_ptr<InBackwardModel> model;
  std::shared_ptr<fsdp::Unit> root;
  std::shared_ptr<Optimizer> optimizer;
  std::unique_ptr<TrainStep> step;
  std::unique_ptr<Checkpointer> checkpointer;
};

inline bool are_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (!a[i].equal(b[i])) {
      return false;
    }
  }
  return a.size() == b.size();
}

inline InBackwardCase in_backward_case(std::string name) {
  InBackwardCase test;
  test.name = std::move(name);
  return test;
}

}  // namespace fsdp2::train
