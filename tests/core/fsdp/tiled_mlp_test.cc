// Models whose MLPs run in tiles, sharded: losses, gradients and collectives of the same model with
// whole ones.
#include "core/nn/layers/tiled_mlp.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/models/registry.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/nn/seeded_init.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2::fsdp {
namespace {

using ::testing::HasSubstr;

const char kLlama[] = R"({"model_type": "llama", "vocab_size": 50, "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": false})";
// Experts are MLPs that get some tokens, or none.
const char kMoe[] = R"({"model_type": "qwen3_moe", "vocab_size": 50, "hidden_size": 16,
    "intermediate_size": 24, "moe_intermediate_size": 8, "num_experts": 4,
    "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 8,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": false})";
constexpr int kMicroBatches = 3;

struct Setting {
  std::string config = kLlama;
  std::vector<std::string> wrap;  // empty: the model's own layers
  bool recompute = false;
  bool in_bf16 = false;
};

struct Outcome {
  double loss = 0;
  std::vector<at::Tensor> gradients;
  CommCounters moved;
};

// Three micro-batches, each rank with tokens of its own.
Outcome run(const std::shared_ptr<World>& world, const Setting& setting, int64_t tiles) {
  const auto model = models::build(setting.config);
  if (tiles > 0) {
    nn::tile_mlps(*model, tiles);
  }
  if (setting.recompute) {
    nn::checkpoint_by_kind(*model, model->no_split_kinds());
  }
  Policy policy;
  if (setting.in_bf16) {
    policy.mixed_precision.param_dtype = at::kBFloat16;
    policy.mixed_precision.reduce_dtype = at::kFloat;
  }
  const auto root =
      fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy,
                          setting.wrap.empty() ? model->no_split_kinds() : setting.wrap);
  nn::SeededInit source(1, 0.2);
  load_parameters(*root, source);
  Outcome outcome;
  const CommCounters before = root->comm_counters();
  for (int i = 0; i < kMicroBatches; ++i) {
    const at::Tensor tokens =
        (at::arange(14).view({2, 7}) * (i + 3) + 5 * world->rank()).remainder(50);
    const at::Tensor loss = (*model)(nn::Values{tokens, tokens}).toTensor();
    loss.backward();
    outcome.loss += loss.item<double>();
  }
  const CommCounters after = root->comm_counters();
  outcome.moved.all_gather_bytes = after.all_gather_bytes - before.all_gather_bytes;
  outcome.moved.reduce_scatter_bytes = after.reduce_scatter_bytes - before.reduce_scatter_bytes;
  for (const ShardedParam* param : root->parameters()) {
    outcome.gradients.push_back(full_gradient(*root, *param));
  }
  return outcome;
}

void expect_same(const Outcome& tiled, const Outcome& whole, double tolerance) {
  EXPECT_NEAR(tiled.loss, whole.loss, tolerance * whole.loss);
  EXPECT_EQ(tiled.moved.all_gather_bytes, whole.moved.all_gather_bytes);
  EXPECT_EQ(tiled.moved.reduce_scatter_bytes, whole.moved.reduce_scatter_bytes);
  ASSERT_EQ(tiled.gradients.size(), whole.gradients.size());
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    const double largest = whole.gradients[i].abs().max().item<double>();
    EXPECT_LE((tiled.gradients[i] - whole.gradients[i]).abs().max().item<double>(),
              tolerance * std::max(largest, 1e-2))
        << i;
  }
}

void expect_tiles_change_nothing(const Setting& setting, double tolerance) {
  for (const int world_size : {1, 2, 3, 4}) {
    run_ranks(world_size, [&](const std::shared_ptr<World>& world) {
      const Outcome whole = run(world, setting, 0);
      for (const int64_t tiles : {1, 4, 64}) {
        expect_same(run(world, setting, tiles), whole, tolerance);
      }
    });
  }
}

TEST(ShardedTiledMlp, ComputesAndMovesWhatTheWholeOneDoes) {
  expect_tiles_change_nothing({}, 1e-5);
}

TEST(ShardedTiledMlp, MayBeAUnitItself) {
  Setting setting;
  setting.wrap = {"LlamaMLP", "LlamaAttention"};
  expect_tiles_change_nothing(setting, 1e-5);
}

TEST(ShardedTiledMlp, MayBeWithinCheckpointedLayers) {
  Setting setting;
  setting.recompute = true;
  expect_tiles_change_nothing(setting, 1e-5);
}

TEST(ShardedTiledMlp, MayComputeInBf16) {
  Setting setting;
  setting.in_bf16 = true;
  expect_tiles_change_nothing(setting, 2e-2);
  setting.recompute = true;
  expect_tiles_change_nothing(setting, 2e-2);
}

TEST(ShardedTiledMlp, MayBeAnExpert) {
  Setting setting;
  setting.config = kMoe;
  expect_tiles_change_nothing(setting, 1e-5);
}

TEST(ShardedTiledMlp, RefusesUnitsOfItsProjectionsOnAllRanks) {
  Setting setting;
  setting.wrap = {"Linear"};
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const std::string message =
        message_of_error([&] { run(world, setting, 4); }, Code::kWrongState);
    EXPECT_THAT(message, HasSubstr("LlamaMLP in tiles: expected gate_proj to be no unit"));
    EXPECT_THAT(message, HasSubstr("shard or checkpoint the MLP or its layer instead"));
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
