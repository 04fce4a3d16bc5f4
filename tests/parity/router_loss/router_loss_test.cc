// Models whose routers have a loss (output_router_logits): loss and gradients of one step equal
// those of transformers; make_router_losses.py makes them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/ckpt/hugging_face/hugging_face_directory.h"
#include "core/fsdp/fully_shard.h"
#include "core/models/registry.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "tests/support/ranks.h"
#include "tests/support/token_windows.h"

namespace fsdp2 {
namespace {

using nlohmann::json;

const std::string kGolden = "tests/parity/golden/";
constexpr int64_t kRows = 4;
constexpr int64_t kLength = 32;
constexpr int64_t kIgnored = -100;

json read_cases() {
  std::ifstream file("tests/parity/router_loss/router_losses.json");
  return json::parse(file);
}

// [kRows, kLength + 1] int64.
at::Tensor windows_of(const std::string& model) {
  return read_windows(kGolden + "tokens/" + model + ".bin", kRows, kLength);
}

// Tokens, labels, positions and mask of a rank's rows.
nn::Values inputs_of(const json& tested, const World& world) {
  const int64_t rows = kRows / world.size();
  const at::Tensor windows = windows_of(tested.at("model")).narrow(0, world.rank() * rows, rows);
  const at::Tensor tokens = windows.narrow(1, 0, kLength).contiguous();
  const at::Tensor labels = windows.narrow(1, 1, kLength).contiguous();
  if (tested.at("lengths").is_null()) {
    return {tokens, labels};
  }
  const at::Tensor lengths = at::tensor(tested.at("lengths").get<std::vector<int64_t>>())
                                 .narrow(0, world.rank() * rows, rows);
  const at::Tensor mask = at::arange(kLength).unsqueeze(0).lt(lengths.unsqueeze(1));
  return {tokens, labels.masked_fill(mask.logical_not(), kIgnored), c10::IValue(),
          mask.to(at::kLong)};
}

struct RankOfCase {
  RankOfCase(const std::shared_ptr<World>& world, const json& tested, const json& changes,
             const std::vector<std::string>& units) {
    ckpt::HuggingFaceDirectory directory(kGolden + "models/" +
                                         tested.at("model").get<std::string>());
    json config = json::parse(directory.config_json());
    config.update(changes);
    model = models::build(config.dump());
    std::vector<std::string> kinds = model->no_split_kinds();
    kinds.insert(kinds.end(), units.begin(), units.end());
    root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, world->size()), {}, kinds);
    fsdp::load_parameters(*root, directory);
    inputs = inputs_of(tested, *world);
  }

  double loss() { return (*model)(inputs).toTensor().item<double>(); }

  std::shared_ptr<nn::Module> model;
  std::shared_ptr<fsdp::Unit> root;
  nn::Values inputs;
};

double mean_over(World& world, double value) {
  const at::Tensor sum = at::tensor({value}, at::kDouble);
  world.control().all_reduce(sum, ReduceOp::kSum).wait();
  return sum.item<double>() / world.size();
}

void expect_gradients(RankOfCase& rank, const json& norms) {
  size_t checked = 0;
  for (const fsdp::ShardedParam* param : rank.root->parameters()) {
    const auto expected = norms.at(param->name()).get<double>();
    const at::Tensor gradient = fsdp::full_gradient(*rank.root, *param);
    EXPECT_NEAR(gradient.to(at::kDouble).norm().item<double>(), expected, 2e-6 + 2e-5 * expected)
        << param->name();
    ++checked;
  }
  EXPECT_EQ(checked, norms.size());
}

void expect_equal(RankOfCase& rank, World& world, const json& run) {
  const at::Tensor loss = (*rank.model)(rank.inputs).toTensor();
  loss.backward();
  EXPECT_NEAR(mean_over(world, loss.item<double>()), run.at("loss").get<double>(), 5e-6);
  expect_gradients(rank, run.at("grad_norms"));
}

template <typename Body>
void for_each_run(const Body& body) {
  for (const json& tested : read_cases()) {
    for (const json& run : tested.at("runs")) {
      SCOPED_TRACE(tested.at("name").get<std::string>() + " at " + run.at("ranks").dump());
      run_ranks(run.at("ranks"),
                [&](const std::shared_ptr<World>& world) { body(world, tested, run); });
    }
  }
}

TEST(RouterLoss, EqualsThatOfTransformers) {
  for_each_run([](const std::shared_ptr<World>& world, const json& tested, const json& run) {
    RankOfCase rank(world, tested, tested.at("changes"), {});
    expect_equal(rank, *world, run);
  });
}

// The way of the routers' gradients, which do not come with those of a layer's hidden states.
TEST(RouterLoss, IsTheSameWithExpertsAsUnitsAndLayersRecomputed) {
  for_each_run([](const std::shared_ptr<World>& world, const json& tested, const json& run) {
    const std::string family = tested.at("model") == "tiny-mixtral" ? "Mixtral" : "Qwen3Moe";
    RankOfCase rank(world, tested, tested.at("changes"), {family + "Expert"});
    nn::checkpoint_by_kind(*rank.model, rank.model->no_split_kinds(), /*every=*/1,
                           /*early_stop=*/false);
    expect_equal(rank, *world, run);
  });
}

TEST(RouterLoss, OfPaddingAloneIsNone) {
  const json tested = read_cases().at(0);
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    RankOfCase rank(world, tested, tested.at("changes"), {});
    const at::Tensor& tokens = rank.inputs[0].toTensor();
    rank.inputs = {tokens, at::full_like(tokens, kIgnored), c10::IValue(), at::zeros_like(tokens)};
    (*rank.model)(rank.inputs).toTensor().backward();
    for (const fsdp::ShardedParam* param : rank.root->parameters()) {
      const at::Tensor gradient = fsdp::full_gradient(*rank.root, *param);
      EXPECT_EQ(gradient.abs().max().item<double>(), 0.0) << param->name();
    }
  });
}

TEST(RouterLoss, IsThereOnlyWhereTheConfigHasIt) {
  const json tested = read_cases().at(0);
  const json& run = tested.at("runs").at(0);
  const double without = run.at("loss").get<double>() - run.at("loss_of_routers").get<double>();
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    json changes = tested.at("changes");
    changes["output_router_logits"] = false;
    EXPECT_NEAR(RankOfCase(world, tested, changes, {}).loss(), without, 5e-6);
    EXPECT_GT(run.at("loss_of_routers").get<double>(), 0.5);
  });
}

}  // namespace
}  // namespace fsdp2
