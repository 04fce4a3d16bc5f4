// How much is gathered and moved: formulas over the sizes of a real model, and the same in every
// step.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/fsdp/fully_shard.h"
#include "core/models/registry.h"
#include "core/nn/seeded_init.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

// 99.6 M parameters in 10 layers.
const char kLlama90m[] = R"({"model_type": "llama", "vocab_size": 16384, "hidden_size": 768,
    "intermediate_size": 2048, "num_hidden_layers": 10, "num_attention_heads": 12,
    "num_key_value_heads": 4, "max_position_embeddings": 2048, "tie_word_embeddings": false})";
constexpr int64_t kHidden = 768;
constexpr int64_t kKeyWidth = 4 * 64;
constexpr int64_t kLayer =
    2 * kHidden * kHidden + 2 * kHidden * kKeyWidth + 3 * kHidden * 2048 + 2 * kHidden;
constexpr int64_t kRoot = 2 * 16384 * kHidden + kHidden;
constexpr int64_t kLayers = 10;

struct Sizes {
  int64_t gathered;  // bytes that a rank receives in a step
  int64_t reduced;
  int64_t peak;  // of gathered parameters
};

// One step of the 90M model as rank 0 of `world_size`, moving nothing.
Sizes fake_step(int world_size, int64_t fsdp_size, const Policy& policy) {
  WorldOptions options;
  options.backend = BackendKind::kFake;
  options.rank = 0;
  options.world_size = world_size;
  const auto mesh = Mesh::for_fsdp(World::join(options), fsdp_size);
  const auto model = models::build(kLlama90m);
  const auto root = fully_shard_by_kind(model, mesh, policy, model->no_split_kinds());
  nn::SeededInit source(1, 0.02);
  load_parameters(*root, source);
  const CommCounters before = root->comm_counters();
  const at::Tensor tokens = at::arange(8).view({1, 8});
  (*model)(nn::Values{tokens, tokens}).toTensor().backward();
  const CommCounters after = root->comm_counters();
  return {after.all_gather_bytes - before.all_gather_bytes,
          after.reduce_scatter_bytes - before.reduce_scatter_bytes,
          root->scheduler().stats().peak_unsharded_bytes};
}

// Flags of the parameters' gradients ride in the reductions: 9 a layer, 3 in the root.
constexpr int64_t kFlagBytes = 4 * (9 * kLayers + 3);

TEST(Llama90m, GathersTwiceAndReducesOnceWithTheRootKept) {
  for (const int64_t world : {2, 4}) {
    const Sizes sizes = fake_step(static_cast<int>(world), 0, {});
    EXPECT_EQ(sizes.gathered, 4 * (kRoot + 2 * kLayers * kLayer) * (world - 1) / world);
    EXPECT_EQ(sizes.reduced,
              4 * (kRoot + kLayers * kLayer) * (world - 1) / world + (world - 1) * kFlagBytes);
    EXPECT_EQ(sizes.peak, 4 * (kRoot + 2 * kLayer));
  }
}

TEST(Llama90m, GathersOnceIfNothingIsResharded) {
  Policy policy;
  policy.reshard_after_forward = ReshardAfterForward::kNever;
  const Sizes sizes = fake_step(2, 0, policy);
  EXPECT_EQ(sizes.gathered, 4 * (kRoot + kLayers * kLayer) / 2);
  EXPECT_EQ(sizes.peak, 4 * (kRoot + kLayers * kLayer));
}

TEST(Llama90m, GathersInSixteenBitsAtHalfTheBytes) {
  Policy policy;
  policy.mixed_precision.param_dtype = at::kBFloat16;
  const Sizes sizes = fake_step(4, 0, policy);
  EXPECT_EQ(sizes.gathered, 2 * (kRoot + 2 * kLayers * kLayer) * 3 / 4);
  EXPECT_EQ(sizes.peak, 2 * (kRoot + 2 * kLayer));
}

TEST(Llama90m, HybridShardingGathersOverTheShardGroupOnly) {
  const Sizes sizes = fake_step(8, 2, {});
  EXPECT_EQ(sizes.gathered, 4 * (kRoot + 2 * kLayers * kLayer) / 2);
}

TEST(Llama90m, BackwardGathersFromTheSmallerGroup) {
  Policy policy;
  policy.reshard_after_forward = ReshardAfterForward::kSmaller;
  policy.reshard_world = 2;
  const Sizes sizes = fake_step(4, 0, policy);
  // The forward gathers over the four ranks, the backward over two.
  const int64_t all = kRoot + kLayers * kLayer;
  EXPECT_EQ(sizes.gathered, 4 * (all * 3 / 4 + all / 2));
  EXPECT_LT(sizes.peak, 4 * (kRoot + kLayers * kLayer) / 2 + 4 * (kRoot + 2 * kLayer));
}

struct Step {
  int64_t live;
  int64_t peak;
  CommCounters moved;
};

Step step_of(Unit& root, TinyStack& model) {
  root.scheduler().reset_stats();
  const CommCounters before = root.comm_counters();
  model(at::ones({2, 5})).sum().backward();
  root.zero_grad();
  CommCounters moved = root.comm_counters();
  moved.all_gather_bytes -= before.all_gather_bytes;
  moved.reduce_scatter_bytes -= before.reduce_scatter_bytes;
  const Stats& stats = root.scheduler().stats();
  return {stats.unsharded_bytes, stats.peak_unsharded_bytes, moved};
}

TEST(EveryStep, TakesAndMovesTheSame) {
  for (const ReshardAfterForward reshard :
       {ReshardAfterForward::kAuto, ReshardAfterForward::kAlways, ReshardAfterForward::kNever,
        ReshardAfterForward::kSmaller}) {
    for (const Schedule schedule : {Schedule::kAgreed, Schedule::kOnUse}) {
      run_ranks(4, [&](const std::shared_ptr<World>& world) {
        Policy policy;
        policy.reshard_after_forward = reshard;
        policy.reshard_world = 2;
        policy.schedule = schedule;
        const auto model = std::make_shared<TinyStack>(TinyStackOptions{5, 7, 3});
        const auto root =
            fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy, {"TinyBlock"});
        Step second{};
        for (int step = 1; step <= 200; ++step) {
          const Step now = step_of(*root, *model);
          if (step == 2) {
            second = now;
          }
          if (step == 200) {
            EXPECT_EQ(now.live, 0);
            EXPECT_EQ(now.live, second.live);
            EXPECT_EQ(now.peak, second.peak);
            EXPECT_EQ(now.moved.all_gather_bytes, second.moved.all_gather_bytes);
            EXPECT_EQ(now.moved.reduce_scatter_bytes, second.moved.reduce_scatter_bytes);
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace fsdp2::fsdp
