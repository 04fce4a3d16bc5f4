// Exported programs train as the models did in eager PyTorch: the runs that make_programs.py
// recorded, with ranks as threads.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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

const std::string kPrograms = "tests/parity/exported/";

json golden_of(const std::string& name) {
  std::ifstream file(kPrograms + name + ".json");
  EXPECT_TRUE(file) << name;
  return json::parse(file);
}

// Tokens are whole numbers, pictures are not.
at::Tensor tensor_of(const json& recorded) {
  const auto shape = recorded.at("shape").get<std::vector<int64_t>>();
  const auto values = recorded.at("values").get<std::vector<double>>();
  const bool is_whole = std::all_of(recorded.at("values").begin(), recorded.at("values").end(),
                                    [](const json& value) { return value.is_number_integer(); });
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
  TrainingRun(const std::shared_ptr<World>& world, const std::string& name,
              const std::vector<std::string>& kinds, const fsdp::Policy& policy = {},
              bool checkpointed = false)
      : model(exported::load_exported(kPrograms + name + ".pt2")) {
    if (checkpointed) {
      nn::checkpoint_by_kind(*model.module, model.module->no_split_kinds());
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

using Case = std::tuple<std::string, int>;  // program, world size

class ExportedTraining : public ::testing::TestWithParam<Case> {};

TEST_P(ExportedTraining, EqualsEagerPythons) {
  const auto& [name, world_size] = GetParam();
  run_ranks(world_size, [name = name](const std::shared_ptr<World>& world) {
    TrainingRun run(world, name, {});
    EXPECT_GE(run.root->units().size(), 2U);
    expect_golden(world, name, run);
  });
}

TEST_P(ExportedTraining, EqualsItWithActivationCheckpointing) {
  const auto& [name, world_size] = GetParam();
  run_ranks(world_size, [name = name](const std::shared_ptr<World>& world) {
    TrainingRun run(world, name, {}, {}, /*checkpointed=*/true);
    expect_golden(world, name, run);
  });
}

// Gathered around each submodule; the tied weight goes to the root.
TEST_P(ExportedTraining, EqualsItWithALayerAsAUnit) {
  const auto& [name, world_size] = GetParam();
  run_ranks(world_size, [name = name](const std::shared_ptr<World>& world) {
    TrainingRun run(world, name,
                    {"Linear", "Conv1D", "LayerNorm", "LlamaRMSNorm", "Qwen3RMSNorm", "T5LayerNorm",
                     "Embedding"});
    EXPECT_GE(run.root->units().size(), 6U);
    expect_golden(world, name, run);
  });
}

std::vector<Case> cases() {
  std::vector<Case> all = {{"bert", 1}};  // dropout: ranks that are threads draw from one generator
  for (const char* name : {"picture_model", "llama", "gpt2", "qwen3", "qwen3_moe", "t5", "vit"}) {
    for (const int world_size : {1, 2, 4}) {
      all.emplace_back(name, world_size);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Programs, ExportedTraining, ::testing::ValuesIn(cases()),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return std::get<0>(info.param) + "_x" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(ExportedPrecision, AnotherOneThanTheExportsIsRefusedBeforeTheStep) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    fsdp::Policy policy;
    policy.mixed_precision.param_dtype = at::kBFloat16;
    TrainingRun run(world, "llama", {}, policy);
    const std::vector<at::Tensor> batch = part_of(golden_of("llama").at("batches")[0], *world);
    EXPECT_NE(message_of_error([&] { run.step->check({batch}); }, Code::kInvalidArgument)
                  .find("the program computes with model.embed_tokens.weight in Float, found "
                        "BFloat16"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace fsdp2
