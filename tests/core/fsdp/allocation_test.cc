// Memory as an allocator counts it, not as the scheduler does: a step's peak is a formula over the
// sizes of units, and nothing is left over after any step.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/fsdp/fully_shard.h"
#include "tests/core/nn/live_bytes.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

constexpr int64_t kWidth = 512;
constexpr int64_t kInner = 1024;
constexpr int64_t kBlocks = 4;
constexpr int64_t kUnit = 4 * (2 * kWidth * kInner + kWidth + kInner);
constexpr int64_t kRoot = 4 * (kWidth * kWidth + kWidth);

struct Sharded {
  Sharded(const std::shared_ptr<World>& world, const TinyStackOptions& options,
          const Policy& policy)
      : model(std::make_shared<TinyStack>(options)),
        root(fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy, {"TinyBlock"})),
        input(at::ones({2, options.width})) {}

  void step() const {
    (*model)(input).sum().backward();
    root->zero_grad();
  }

  std::shared_ptr<TinyStack> model;
  std::shared_ptr<Unit> root;
  at::Tensor input;
};

// Without copies into packed buffers.
Policy direct(int prefetch) {
  Policy policy;
  policy.comm_path = CommPath::kDirect;
  policy.prefetch = prefetch;
  return policy;
}

// The bytes that a rank takes in a step, besides its shards. The most is alive when the first
// unit's backward is about to end: the root and the unit are gathered, and those ahead of it if any
// are left; its gradients are whole, so are those of the unit before, whose reduction is under way;
// the sharded gradients of all but itself are there.
double peak_of_step(int ranks) {
  const double sharded = static_cast<double>((kBlocks - 1) * kUnit) / ranks;
  return static_cast<double>(kRoot + kUnit + 2 * kUnit) + sharded;
}

// One rank alone, so nothing but its own memory is counted.
TEST(Allocations, PeakOfAStepIsItsFormula) {
  live_bytes();
  for (const int ranks : {2, 4}) {
    WorldOptions options;
    options.backend = BackendKind::kFake;
    options.rank = 0;
    options.world_size = ranks;
    const Sharded s(World::join(options), {kWidth, kInner, kBlocks}, direct(0));
    s.step();
    const int64_t before = live_bytes();
    const PeakBytes peak;
    s.step();
    const auto taken = static_cast<double>(peak.get() - before);
    EXPECT_NEAR(taken / peak_of_step(ranks), 1.0, 0.01) << ranks << " ranks: " << taken;
    EXPECT_EQ(live_bytes(), before);
  }
}

// Shards in fp32, computed in bf16: a rank casts its shard where the gather puts it.
TEST(Allocations, AGatherInAnotherDtypeTakesWhatItGathersAndNoMore) {
  live_bytes();
  WorldOptions options;
  options.backend = BackendKind::kFake;
  options.rank = 0;
  options.world_size = 2;
  Policy policy = direct(0);
  policy.mixed_precision.param_dtype = at::kBFloat16;
  const Sharded s(World::join(options), {kWidth, kInner, kBlocks}, policy);
  const int64_t before = live_bytes();
  const PeakBytes peak;
  s.root->unshard();
  EXPECT_EQ(live_bytes() - before, kRoot / 2);
  EXPECT_EQ(peak.get() - before, kRoot / 2);
}

TEST(Allocations, ManyRanksTakeNoMoreThanOneEach) {
  live_bytes();
  for (const int ranks : {2, 4}) {
    run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      const Sharded s(world, {kWidth, kInner, kBlocks}, direct(0));
      Comm& all = world->control();
      s.step();
      all.barrier();
      const int64_t before = live_bytes();
      const PeakBytes peak;
      all.barrier();  // before which nobody allocates
      s.step();
      all.barrier();
      const auto taken = static_cast<double>(peak.get() - before) / ranks;
      EXPECT_LE(taken, 1.01 * peak_of_step(ranks) + 256 * 1024);  // scratch of a reduction's sum
      // What is gathered alone is more than half of it, so a peak that is not counted would show.
      EXPECT_GE(taken, static_cast<double>(kRoot + kUnit));
      all.barrier();
    });
  }
}

TEST(Allocations, NothingIsLeftAfterTwoHundredSteps) {
  live_bytes();
  for (const int ranks : {2, 4}) {
    for (const ReshardAfterForward reshard :
         {ReshardAfterForward::kAuto, ReshardAfterForward::kNever, ReshardAfterForward::kSmaller}) {
      run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
        Policy policy;
        policy.reshard_after_forward = reshard;
        policy.reshard_world = 2;
        const Sharded s(world, {8, 12, 3}, policy);
        Comm& all = world->control();
        int64_t after_second = 0;
        for (int step = 1; step <= 200; ++step) {
          s.step();
          if (step == 2 || step == 200) {
            all.barrier();
            const int64_t now = live_bytes();
            after_second = step == 2 ? now : after_second;
            EXPECT_EQ(now, after_second) << "step " << step;
            all.barrier();
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace fsdp2::fsdp
