// What really goes through a transport in a step, by strategy: no more than the minimum (but for
// flags and small tensors), and what the counters say.
#include "core/comm/transport/transport_bytes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/fsdp/fully_shard.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

// Two units with matrices of 512 KiB, which travel by themselves.
constexpr TinyStackOptions kOptions{256, 512, 2};
constexpr int64_t kUnitBytes = 4 * (2 * 256 * 512 + 256 + 512);
constexpr int64_t kRootBytes = 4 * (256 * 256 + 256);
constexpr int64_t kAllBytes = 2 * kUnitBytes + kRootBytes;
constexpr int kRanks = 4;

struct Strategy {
  const char* name;
  int64_t fsdp_size;
  ReshardAfterForward reshard;
  double minimum;  // bytes that a rank receives in a step
};

// Parts of a tensor over n ranks: (n - 1) / n of it comes from others.
const std::vector<Strategy>& strategies() {
  static const std::vector<Strategy> all = {
      // Units gathered twice and the root once; all reduced.
      {"FULL_SHARD", 0, ReshardAfterForward::kAuto,
       0.75 * (2 * 2 * kUnitBytes + kRootBytes + kAllBytes)},
      {"SHARD_GRAD_OP", 0, ReshardAfterForward::kNever, 0.75 * (kAllBytes + kAllBytes)},
      {"NO_SHARD", 1, ReshardAfterForward::kAuto, 2 * 0.75 * kAllBytes},
      // Over two ranks, then halves over two replicas.
      {"HYBRID_SHARD", 2, ReshardAfterForward::kAuto,
       0.5 * (2 * 2 * kUnitBytes + kRootBytes + kAllBytes) + 0.5 * kAllBytes}};
  return all;
}

std::shared_ptr<Mesh> mesh_of(const std::shared_ptr<World>& world, int64_t fsdp_size) {
  return fsdp_size == 1 ? Mesh::create(world, {kRanks, 1}, {"ddp", "fsdp"})
                        : Mesh::for_fsdp(world, fsdp_size);
}

struct CountedShards {
  CountedShards(const std::shared_ptr<World>& world, const Strategy& strategy) {
    Policy policy;
    policy.reshard_after_forward = strategy.reshard;
    root = fully_shard_by_kind(model, mesh_of(world, strategy.fsdp_size), policy, {"TinyBlock"});
  }
  std::shared_ptr<TinyStack> model = std::make_shared<TinyStack>(kOptions);
  std::shared_ptr<Unit> root;
};

int64_t counted_bytes(const CountedShards& s) {
  const CommCounters counters = s.root->comm_counters();
  return counters.all_gather_bytes + counters.reduce_scatter_bytes + counters.all_reduce_bytes;
}

int64_t counted_in_a_step(const CountedShards& s) {
  const int64_t before = counted_bytes(s);
  (*s.model)(at::ones({2, 256})).sum().backward();
  return counted_bytes(s) - before;
}

// ranks_here: how many ranks this process counts for.
void expect_minimum(const std::shared_ptr<World>& world, const Strategy& strategy, int ranks_here) {
  const CountedShards s(world, strategy);
  counted_in_a_step(s);  // which connects
  // The count is the whole process's: nobody goes on while somebody else reads it.
  world->control().barrier();
  const int64_t before = transport_bytes_received();
  world->control().barrier();
  const int64_t counted = counted_in_a_step(s);
  world->control().barrier();
  const int64_t received = (transport_bytes_received() - before) / ranks_here;
  world->control().barrier();
  EXPECT_EQ(received, counted) << strategy.name;
  EXPECT_GE(static_cast<double>(received), strategy.minimum) << strategy.name;
  EXPECT_LE(static_cast<double>(received), 1.01 * strategy.minimum) << strategy.name;
}

TEST(TransportBytes, GlooReceivesTheMinimumByEveryStrategy) {
  for (const Strategy& strategy : strategies()) {
    run_ranks(kRanks,
              [&](const std::shared_ptr<World>& world) { expect_minimum(world, strategy, kRanks); },
              {BackendKind::kGloo});
  }
}

TEST(TransportBytes, SharedMemoryReceivesTheMinimumByEveryStrategy) {
  run_rank_processes(kRanks, [](const std::shared_ptr<World>& world) {
    for (const Strategy& strategy : strategies()) {
      expect_minimum(world, strategy, /*ranks_here=*/1);
    }
  });
}

TEST(TransportBytes, AFakeWorldCountsWhatARealOneReceives) {
  for (const Strategy& strategy : strategies()) {
    int64_t real = 0;
    run_ranks(kRanks, [&](const std::shared_ptr<World>& world) {
      const int64_t counted = counted_in_a_step(CountedShards(world, strategy));
      if (world->rank() == 0) {
        real = counted;
      }
    });
    WorldOptions options;
    options.backend = BackendKind::kFake;
    options.rank = 0;
    options.world_size = kRanks;
    EXPECT_EQ(counted_in_a_step(CountedShards(World::join(options), strategy)), real)
        << strategy.name;
  }
}

}  // namespace
}  // namespace fsdp2::fsdp
