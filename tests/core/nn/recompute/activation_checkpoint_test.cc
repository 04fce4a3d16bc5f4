#include "core/nn/recompute/activation_checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/nn/layers/layers.h"
#include "core/nn/seeded_init.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWidth = 8;

// x + mlp(x), counting its forwards.
class Block : public Module {
 public:
  explicit Block(const std::string& kind) : Module(kind) {
    mlp = register_module("mlp", std::make_shared<GatedMlp>("Mlp", kWidth, 16, false, at::kFloat));
  }
  std::shared_ptr<GatedMlp> mlp;
  int runs = 0;

 protected:
  c10::IValue forward(Values inputs) override {
    ++runs;
    const at::Tensor& x = inputs[0].toTensor();
    return x + (*mlp)(x);
  }
};

// Blocks of kinds A, A, B, A, A in a row.
class Model : public Module {
 public:
  Model() : Module("Model") {
    for (const char* kind : {"A", "A", "B", "A", "A"}) {
      blocks.push_back(
          register_module("block" + std::to_string(blocks.size()), std::make_shared<Block>(kind)));
    }
  }
  std::vector<std::shared_ptr<Block>> blocks;

 protected:
  c10::IValue forward(Values inputs) override {
    at::Tensor x = inputs[0].toTensor();
    for (const auto& block : blocks) {
      x = (*block)(x);
    }
    return x;
  }
};

std::shared_ptr<Model> make_model() {
  auto model = std::make_shared<Model>();
  SeededInit source(3, 0.5);
  materialize(*model, source);
  return model;
}

at::Tensor input() { return random_leaf({4, kWidth}, 7); }

std::vector<at::Tensor> gradients(Module& model) {
  const at::Tensor x = input();
  model(x).square().sum().backward();
  std::vector<at::Tensor> all{x.grad()};
  for (const NamedParameter& parameter : named_unique_parameters(model)) {
    all.push_back(parameter.tensor.grad());
  }
  return all;
}

std::vector<int> runs_of(const Model& model) {
  std::vector<int> runs;
  for (const auto& block : model.blocks) {
    runs.push_back(block->runs);
  }
  return runs;
}

std::string error_of(Code code, const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.message();
  }
  return "no error";
}

TEST(CheckpointByKind, RunsTheChosenModulesAgainAndChangesNoGradient) {
  const std::vector<at::Tensor> expected = gradients(*make_model());
  struct Choice {
    std::vector<std::string> kinds;
    int64_t every;
    std::vector<int> runs;
  };
  const std::vector<Choice> choices = {
      {{"A"}, 1, {2, 2, 1, 2, 2}},
      {{"A"}, 2, {1, 2, 1, 1, 2}},
      {{"A"}, 3, {1, 1, 1, 2, 1}},
      {{"A"}, 5, {1, 1, 1, 1, 1}},
      {{"A", "B"}, 1, {2, 2, 2, 2, 2}},
      {{"A", "B"}, 2, {1, 2, 1, 2, 1}},
      {{"Mlp"}, 1, {1, 1, 1, 1, 1}},
      {{"Model"}, 1, {2, 2, 2, 2, 2}},
      {{"Model", "A", "Mlp"}, 1, {3, 3, 2, 3, 2}},
  };
  for (const Choice& choice : choices) {
    const auto model = make_model();
    checkpoint_by_kind(*model, choice.kinds, choice.every);
    const std::vector<at::Tensor> got = gradients(*model);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(at::equal(got[i], expected[i])) << choice.kinds[0] << ", value " << i;
    }
    EXPECT_EQ(runs_of(*model), choice.runs) << choice.kinds[0] << " every " << choice.every;
  }
}

TEST(CheckpointByKind, TakesAModuleByAnotherNameOfItsClass) {
  const auto model = make_model();
  model->blocks[2]->add_class_alias("A");
  EXPECT_EQ(checkpoint_by_kind(*model, {"A"}), 5);
}

TEST(CheckpointByKind, CountsEachModuleOnce) {
  EXPECT_EQ(checkpoint_by_kind(*make_model(), {"A"}), 4);
  EXPECT_EQ(checkpoint_by_kind(*make_model(), {"A"}, 3), 1);
  EXPECT_EQ(checkpoint_by_kind(*make_model(), {"A", "A", "B"}, 2), 2);
}

TEST(CheckpointByKind, RefusesBeforeItChangesAnything) {
  const auto model = make_model();
  EXPECT_THAT(error_of(Code::kNotFound, [&] { checkpoint_by_kind(*model, {"A", "C"}); }),
              HasSubstr("no module of class C; it has A, B, Linear, Mlp, Model"));
  EXPECT_THAT(error_of(Code::kNotFound, [&] { checkpoint_by_kind(*model, {}); }),
              HasSubstr("no layers of its own: expected classes of modules, of which it has A, B"));
  EXPECT_THAT(error_of(Code::kInvalidArgument, [&] { checkpoint_by_kind(*model, {"A"}, 0); }),
              HasSubstr("every >= 1"));
  checkpoint_activations(*model->blocks[3]);
  EXPECT_THAT(error_of(Code::kWrongState, [&] { checkpoint_by_kind(*model, {"A"}); }),
              HasSubstr("block3 (A): the module is checkpointed already"));
  EXPECT_FALSE(checkpoints_activations(*model->blocks[0]));
}

TEST(CheckpointModules, CountsInTheOrderOfTheModelWhateverTheOrderGiven) {
  const std::vector<at::Tensor> expected = gradients(*make_model());
  const auto model = make_model();
  const auto& blocks = model->blocks;
  EXPECT_EQ(checkpoint_modules(*model, {blocks[4], blocks[0], blocks[2], blocks[0]}, 2), 1);
  const std::vector<at::Tensor> got = gradients(*model);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
  }
  EXPECT_EQ(runs_of(*model), (std::vector<int>{1, 1, 2, 1, 1}));
}

TEST(CheckpointModules, RefusesBeforeItChangesAnything) {
  const auto model = make_model();
  const auto other = make_model();
  EXPECT_THAT(error_of(Code::kNotFound,
                       [&] { checkpoint_modules(*model, {model->blocks[0], other->blocks[0]}); }),
              HasSubstr("1 of the modules are not in Model"));
  EXPECT_THAT(
      error_of(Code::kInvalidArgument, [&] { checkpoint_modules(*model, {model->blocks[0]}, 0); }),
      HasSubstr("every >= 1"));
  EXPECT_FALSE(checkpoints_activations(*model->blocks[0]));
}

// Counts how often its forward comes past the last tensor that it saves.
class Counted : public Module {
 public:
  Counted() : Module("Counted") {
    layer = register_module("layer", std::make_shared<Linear>(kWidth, kWidth, false, at::kFloat));
  }
  std::shared_ptr<Linear> layer;
  int ends = 0;

 protected:
  c10::IValue forward(Values inputs) override {
    at::Tensor y = (*layer)(inputs[0].toTensor().exp());
    ++ends;
    return y;
  }
};

TEST(CheckpointActivations, RunsToItsEndIfAsked) {
  std::vector<at::Tensor> expected;
  for (const bool early_stop : {true, false}) {
    Counted model;
    SeededInit source(3, 0.5);
    materialize(model, source);
    checkpoint_activations(model, {"", early_stop});
    const std::vector<at::Tensor> got = gradients(model);
    EXPECT_EQ(model.ends, early_stop ? 1 : 2);
    expected = expected.empty() ? got : expected;
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(at::equal(got[i], expected[i]));
    }
  }
}

TEST(CheckpointByKind, PassesOnThatSegmentsRunToTheirEnd) {
  const auto model = std::make_shared<Counted>();
  SeededInit source(3, 0.5);
  materialize(*model, source);
  EXPECT_EQ(checkpoint_by_kind(*model, {"Counted"}, 1, /*early_stop=*/false), 1);
  gradients(*model);
  EXPECT_EQ(model->ends, 2);
}

TEST(CheckpointActivations, NamesTheModuleInErrors) {
  const auto model = make_model();
  checkpoint_by_kind(*model, {"A"});
  const at::Tensor y = (*model)(input());
  model->blocks[3]->mlp = std::make_shared<GatedMlp>("Other", kWidth, 4, false, at::kFloat);
  SeededInit source(3, 0.5);
  materialize(*model->blocks[3]->mlp, source);
  EXPECT_THAT(error_of(Code::kWrongState, [&] { y.sum().backward(); }),
              HasSubstr("recomputing block3 (A) in backward"));
}

TEST(CheckpointActivations, KeepsTheModuleForItsGraph) {
  auto model = make_model();
  checkpoint_activations(*model);
  const at::Tensor x = input();
  const at::Tensor y = (*model)(x);
  model.reset();
  EXPECT_NO_THROW(y.sum().backward());
  EXPECT_TRUE(x.grad().defined());
}

class OtherWrapper : public ForwardWrapper {
 public:
  c10::IValue run(Module& /*module*/, const ForwardBody& forward, Values inputs) override {
    return forward(std::move(inputs));
  }
};

TEST(CheckpointActivations, LeavesAnothersWrapperAlone) {
  const auto model = make_model();
  model->set_forward_wrapper(std::make_shared<OtherWrapper>());
  EXPECT_THAT(error_of(Code::kWrongState, [&] { checkpoint_activations(*model); }),
              HasSubstr("another wrapper"));
}

}  // namespace
}  // namespace fsdp2::nn
