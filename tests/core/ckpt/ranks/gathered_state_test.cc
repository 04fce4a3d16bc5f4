// Full states in memory: gathered from all ranks, read from, and sent by rank 0.
#include "core/ckpt/ranks/gathered_state.h"

#include <gtest/gtest.h>

#include "core/ckpt/ranks/broadcast_source.h"
#include "core/ckpt/state/memory_source.h"
#include "tests/core/ckpt/ranks/checkpoint_fixture.h"

namespace fsdp2::ckpt {
namespace {

TEST(GatheredState, HoldsEveryChunkWhateverItsDtype) {
  for (const int ranks : {1, 3, 8}) {
    run_ranks(ranks, [](const std::shared_ptr<World>& world) {
      StateDict state = example_state(world->rank(), world->size(), 5);
      add_rows(&state, {"flags"}, at::arange(9).remainder(2).to(at::kBool), world->rank(),
               world->size());
      const StateDict full = gather_state(*world, state, GatherTo::kEveryRank);
      const MemorySource memory(full);
      EXPECT_TRUE(holds_example(memory, 5));
      EXPECT_TRUE(read_whole(memory, "flags").equal(at::arange(9).remainder(2).to(at::kBool)));
    });
  }
}

TEST(GatheredState, SeveralChunksOfARankAreOneTensor) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    StateDict state;
    for (int64_t part = 0; part < 2; ++part) {
      const int64_t row = 2 * part + world->rank();
      state.add_tensor({"rows"}, {4, 3}, {row, 0}, at::full({1, 3}, static_cast<double>(row)));
    }
    const StateDict full = gather_state(*world, state, GatherTo::kEveryRank);
    ASSERT_EQ(full.tensors.size(), 1U);
    EXPECT_TRUE(full.tensors[0].local.equal(at::arange(4, at::kFloat).view({4, 1}).expand({4, 3})));
  });
}

TEST(GatheredState, ATensorThatNoRankHoldsWhollyIsAnErrorOnAllRanks) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    StateDict state;
    state.add_tensor({"rows"}, {4}, {world->rank()}, at::ones({1}));
    EXPECT_ERROR(gather_state(*world, state, GatherTo::kRankZero), Code::kInvalidArgument, "rows");
    EXPECT_TRUE(holds_example(  // the world is usable
        MemorySource(
            gather_state(*world, example_state(world->rank(), 2, 1), GatherTo::kEveryRank)),
        1));
  });
}

TEST(MemorySource, BoxesAreCopiedAndConverted) {
  const MemorySource memory(example_state(0, 1, 0));
  at::Tensor out = at::zeros({2, 2}, at::kDouble);
  memory.read(*memory.find("model.a.weight"), {5, 1}, out);
  EXPECT_TRUE(out.equal(at::arange(21, at::kDouble).view({7, 3}).narrow(0, 5, 2).narrow(1, 1, 2)));
}

TEST(MemorySource, AShardIsRefused) {
  EXPECT_ERROR(MemorySource(example_state(1, 2, 0)), Code::kInvalidArgument, "model.a.weight");
}

TEST(BroadcastSource, EveryRankReadsWhatRankZeroHas) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    const MemorySource memory(world->rank() == 0 ? example_state(0, 1, 4) : StateDict());
    const BroadcastSource source(*world, world->rank() == 0 ? &memory : nullptr);
    EXPECT_TRUE(holds_example(source, 4));
    EXPECT_EQ(source.find("optim.param_groups.0.betas")->path,
              (StatePath{"optim", "param_groups", int64_t{0}, "betas"}));
    // Boxes of each rank's own, one of them empty.
    const int rank = world->rank();
    const at::Tensor rows = at::zeros({rank, 3});
    source.read(*source.find("model.a.weight"), {rank, 0}, rows);
    EXPECT_TRUE(rows.equal((at::arange(21, at::kFloat).view({7, 3}) + 4).narrow(0, rank, rank)));
  });
}

class FailingState final : public StateSource {
 public:
  FailingState() : StateSource("failing") { set_entries({{"t", {"t"}, at::kFloat, {2}, 0}}); }
  void read(const StateEntry& /*entry*/, at::IntArrayRef /*begin*/,
            const at::Tensor& /*out*/) const override {
    fail(Code::kIo, "the disk is gone");
  }
  PythonValue read_object(const StateEntry& /*entry*/) const override { return {}; }
  void verify() const override {}
};

TEST(BroadcastSource, AnErrorOfRankZeroIsToldToAll) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const FailingState failing;
    const BroadcastSource source(*world, world->rank() == 0 ? &failing : nullptr);
    EXPECT_ERROR(read_whole(source, "t"), world->rank() == 0 ? Code::kIo : Code::kPeerFailed,
                 "the disk is gone");
    EXPECT_ERROR(BroadcastSource(*world, nullptr),
                 world->rank() == 0 ? Code::kInvalidArgument : Code::kPeerFailed, "rank 0");
  });
}

// Beside a tensor, an object that no plain data can stand for.
class ForeignState final : public StateSource {
 public:
  ForeignState() : StateSource("foreign") {
    set_entries({{"t", {"t"}, at::kFloat, {2}, 0}, {"rng", {"rng"}, std::nullopt, {}, 1}});
  }
  void read(const StateEntry& /*entry*/, at::IntArrayRef /*begin*/,
            const at::Tensor& out) const override {
    out.fill_(5);
  }
  PythonValue read_object(const StateEntry& /*entry*/) const override {
    fail(Code::kUnsupported, "foreign: rng: needs numpy");
  }
  void verify() const override {}
};

TEST(BroadcastSource, AnObjectThatCannotBeReadHindersNothingElse) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const ForeignState foreign;
    const BroadcastSource source(*world, world->rank() == 0 ? &foreign : nullptr);
    EXPECT_TRUE(read_whole(source, "t").equal(at::full({2}, 5.0)));
    EXPECT_ERROR(source.read_object(*source.find("rng")), Code::kUnsupported, "needs numpy");
  });
}

}  // namespace
}  // namespace fsdp2::ckpt
