// TorchScript modules train as the models did in eager PyTorch: the runs that make_scripts.py
// recorded, with ranks as threads.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "core/exported/exported_program.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/train/optim/adamw.h"
#include "core/train/step/train_step.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using nlohmann::json;
using Kinds = std::vector<std::string>;

const std::string kScripts = "tests/parity/scripted/";

json golden_of(const std::string& name) {
  std::ifstream file(kScripts + name + ".json");
  EXPECT_TRUE(file) << name;
  return json::parse(file);
}

at::Tensor tensor_of(const json& recorded) {
  const auto shape = recorded.at("shape").get<std::vector<int64_t>>();
  const auto values = recorded.at("values").get<std::vector<double>>();
  const bool is_whole = recorded.at("values").front().is_number_integer();
  return at::tensor(values, at::device(at::kCPU).dtype(at::kDouble))
      .to(is_whole ? at::kLong : at::kFloat)
      .view(shape);
}

// This rank's part of a global batch.
std::vector<at::Tensor> part_of(const json& batch, const World& world) {
  std::vector<at::Tensor> part;
  for (const json& recorded : batch) {
    part.push_back(tensor_of(recorded).chunk(world.size())[static_cast<size_t>(world.rank())]);
  }
  return part;
}

struct TrainingRun {
  TrainingRun(const std::shared_ptr<World>& world, const std::string& name, const Kinds& kinds,
              const fsdp::Policy& policy = {}, const Kinds& checkpointed = {})
      : model(exported::load_exported(kScripts + name + ".pt")) {
    if (!checkpointed.empty()) {
      nn::checkpoint_by_kind(*model.module, checkpointed);
    }
    root = fsdp::fully_shard_by_kind(model.module, Mesh::for_fsdp(world, world->size()), policy,
                                     kinds.empty() ? model.module->no_split_kinds() : kinds);
    fsdp::load_parameters(*root, *model.values);
    const std::shared_ptr<train::Optimizer> adamw =
        train::make_adamw(root, {3e-3, 0.9, 0.95, 1e-8, 0.1});
    step = std::make_unique<train::TrainStep>(model.module, adamw, train::StepOptions());
    at::manual_seed(7);
  }

  exported::ExportedModel model;
  std::shared_ptr<fsdp::Unit> root;
  std::unique_ptr<train::TrainStep> step;
};

void expect_golden(const std::shared_ptr<World>& world, const std::string& name, TrainingRun& run) {
  const json golden = golden_of(name);
  const json& expected = golden.at("runs").at(std::to_string(world->size()));
  for (size_t i = 0; i < golden.at("batches").size(); ++i) {
    const train::StepResult result = run.step->run({part_of(golden.at("batches")[i], *world)});
    const double loss = expected.at("loss")[i];
    const double norm = expected.at("grad_norm")[i];
    EXPECT_NEAR(result.loss, loss, 5e-6 * loss) << name << ", step " << i;
    EXPECT_NEAR(result.grad_norm, norm, 2e-5 * norm) << name << ", step " << i;
  }
}

// The script, the number of ranks, and how many units its layers make with the root.
using Case = std::tuple<std::string, int, size_t>;

class ScriptedTraining : public ::testing::TestWithParam<Case> {};

TEST_P(ScriptedTraining, EqualsEagerPythons) {
  const auto& [name, world_size, units] = GetParam();
  run_ranks(world_size, [name = name, units = units](const std::shared_ptr<World>& world) {
    TrainingRun run(world, name, {});
    EXPECT_EQ(run.root->units().size(), units);
    expect_golden(world, name, run);
  });
}

// Gathered around each submodule; what several use goes to the root.
TEST_P(ScriptedTraining, EqualsItWithALayerAsAUnit) {
  const auto& [name, world_size, units] = GetParam();
  run_ranks(world_size, [name = name](const std::shared_ptr<World>& world) {
    TrainingRun run(world, name, {"Linear", "LayerNorm", "Embedding"});
    expect_golden(world, name, run);
  });
}

TEST_P(ScriptedTraining, EqualsItWithOneUnitThatIsFreedAndGatheredAgain) {
  const auto& [name, world_size, units] = GetParam();
  run_ranks(world_size, [name = name](const std::shared_ptr<World>& world) {
    fsdp::Policy policy;
    policy.reshard_after_forward = fsdp::ReshardAfterForward::kAlways;
    TrainingRun run(world, name, {"None"}, policy);
    EXPECT_EQ(run.root->units().size(), 1U);
    expect_golden(world, name, run);
  });
}

// Ranks that are threads draw from one generator: dropout is for one rank.
INSTANTIATE_TEST_SUITE_P(
    Scripts, ScriptedTraining,
    ::testing::Values(Case{"sequential", 1, 6}, Case{"sequential", 2, 6}, Case{"sequential", 4, 6},
                      Case{"words", 1, 4}, Case{"words", 2, 4}, Case{"words", 4, 4},
                      Case{"dropout", 1, 4}, Case{"recurrent", 1, 1}, Case{"recurrent", 2, 1},
                      Case{"traced", 1, 1}, Case{"traced", 2, 1}, Case{"traced", 4, 1},
                      Case{"batch_norm", 1, 4}, Case{"views", 1, 4}, Case{"views", 2, 4}),
    [](const ::testing::TestParamInfo<Case>& info) {
      return std::get<0>(info.param) + "_x" + std::to_string(std::get<1>(info.param));
    });

void expect_golden_recomputed(const std::string& name, int world_size, const Kinds& kinds) {
  run_ranks(world_size, [&](const std::shared_ptr<World>& world) {
    TrainingRun run(world, name, {}, {}, kinds);
    expect_golden(world, name, run);
  });
}

TEST(ScriptedCheckpointing, ChangesNoLoss) {
  expect_golden_recomputed("words", 1, {"Block"});
  expect_golden_recomputed("words", 2, {"Block"});
  expect_golden_recomputed("dropout", 1, {"Block"});
  expect_golden_recomputed("traced", 2, {"Pair"});
  expect_golden_recomputed("sequential", 2, {"Linear", "GELU"});
}

TEST(ScriptedCheckpointing, IsRefusedForWhatChangesItsBuffersOrInputs) {
  const exported::ExportedModel norms = exported::load_exported(kScripts + "batch_norm.pt");
  EXPECT_NE(message_of_error([&] { nn::checkpoint_by_kind(*norms.module, {"BatchNorm1d"}); },
                             Code::kUnsupported)
                .find("module \"0.1\": the buffer num_batches_tracked is what its forward changes"),
            std::string::npos);
  EXPECT_NE(message_of_error([&] { nn::checkpoint_by_kind(*norms.module, {"Sequential"}); },
                             Code::kUnsupported)
                .find("module \"0.1\": the buffer num_batches_tracked"),
            std::string::npos);
  const exported::ExportedModel words = exported::load_exported(kScripts + "words.pt");
  EXPECT_NE(
      message_of_error([&] { nn::checkpoint_by_kind(*words.module, {"ReLU"}); }, Code::kUnsupported)
          .find("changes in place"),
      std::string::npos);
}

TEST(ScriptedPrecision, IsThatOfThePolicy) {
  const json golden = golden_of("sequential");
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    fsdp::Policy policy;
    policy.mixed_precision.param_dtype = at::kBFloat16;
    TrainingRun run(world, "sequential", {}, policy);
    for (size_t i = 0; i < golden.at("batches").size(); ++i) {
      const train::StepResult result = run.step->run({part_of(golden.at("batches")[i], *world)});
      const double loss = golden.at("bf16").at("loss")[i];
      EXPECT_NEAR(result.loss, loss, 5e-3 * loss) << "step " << i;
    }
  });
}

TEST(ScriptedBuffers, RunningMeansAreThoseOfEagerPython) {
  const json golden = golden_of("batch_norm");
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    TrainingRun run(world, "batch_norm", {});
    expect_golden(world, "batch_norm", run);
    for (const auto& buffer : run.model.module->named_buffers()) {
      const auto expected = golden.at("buffers").at(buffer.key()).get<std::vector<double>>();
      const at::Tensor found = buffer.value().flatten().to(at::kDouble);
      ASSERT_EQ(found.numel(), static_cast<int64_t>(expected.size())) << buffer.key();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(found[static_cast<int64_t>(i)].item<double>(), expected[i], 1e-5)
            << buffer.key();
      }
    }
  });
}

}  // namespace
}  // namespace fsdp2
