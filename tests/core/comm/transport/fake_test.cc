// Worlds of which this process is one rank and the others are not there.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "core/base/error.h"
#include "core/comm/agreement.h"
#include "core/comm/mesh.h"
#include "core/comm/mesh_collectives.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

std::shared_ptr<World> fake_world(int rank, int size) {
  WorldOptions options;
  options.backend = BackendKind::kFake;
  options.rank = rank;
  options.world_size = size;
  return World::join(options);
}

Error error_of(const WorldOptions& options) {
  try {
    World::join(options);
  } catch (const Error& error) {
    return error;
  }
  return {Code::kInternal, "no error"};
}

TEST(Fake, ManyRanksComeUpAtOnce) {
  // Anything that is done for every rank by every rank would take minutes here.
  const auto world = fake_world(70001, 131072);
  const auto mesh = Mesh::create(world, {-1, 64}, {"ddp", "fsdp"});
  EXPECT_EQ(mesh->to_string(), "Mesh(ddp=2048, fsdp=64) rank 70001 at (1093, 49)");
  mesh->connect();
  mesh->comm(0, Lane::kReduce).barrier();
  EXPECT_EQ(mesh->group(1)->members.front(), 1093 * 64);
}

TEST(Fake, TheRendezvousAloneSaysIt) {
  WorldOptions options;
  options.rendezvous = "fake://";
  options.world_size = 8;
  const auto world = World::join(options);
  EXPECT_TRUE(world->is_fake());
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->size(), 8);
}

TEST(Fake, SettingsThatContradictAreNamed) {
  WorldOptions options;
  options.backend = BackendKind::kFake;
  EXPECT_EQ(error_of(options).message(),
            "backend fake: expected an explicit world_size from 1 to 1048576, got -1");
  options.world_size = std::numeric_limits<int>::max();  // as many would take minutes and 8 GB
  EXPECT_EQ(error_of(options).message(),
            "backend fake: expected an explicit world_size from 1 to 1048576, got 2147483647");
  options.world_size = 4;
  options.rank = 4;
  EXPECT_EQ(error_of(options).message(), "rank=4 is not a rank of world_size=4 (ranks start at 0)");
  options.rank = 0;
  options.rendezvous = "thread://x";
  EXPECT_EQ(error_of(options).message(),
            "rendezvous 'thread://x': ranks of backend fake meet nowhere; leave it empty");
  options.rendezvous = "fake://";
  options.backend = BackendKind::kGloo;
  EXPECT_EQ(error_of(options).message(), "rendezvous 'fake://': only backend fake meets there");
}

TEST(Fake, EveryOtherRankPassesWhatThisOneDoes) {
  const auto world = fake_world(2, 4);
  Comm& comm = world->control();
  const at::Tensor own = at::arange(2, at::kFloat);
  const at::Tensor all = at::zeros({8});
  comm.all_gather(all, own).wait();
  EXPECT_TRUE(all.equal(own.repeat({4})));
  const at::Tensor piece = at::zeros({2});
  comm.reduce_scatter(piece, at::arange(8, at::kFloat), ReduceOp::kAverage).wait();
  EXPECT_TRUE(piece.equal(at::arange(4, 6, at::kFloat)));
  comm.reduce_scatter(piece, at::arange(8, at::kFloat), ReduceOp::kSum).wait();
  EXPECT_TRUE(piece.equal(at::arange(4, 6, at::kFloat).mul(4)));
  const at::Tensor exchanged = at::zeros({8});
  comm.all_to_all(exchanged, at::arange(8, at::kFloat)).wait();
  EXPECT_TRUE(exchanged.equal(at::arange(4, 6, at::kFloat).repeat({4})));
  const at::Tensor value = at::full({1}, 3.0);
  comm.all_reduce(value, ReduceOp::kMax).wait();
  EXPECT_EQ(value.item<float>(), 3);
  comm.all_reduce(value, ReduceOp::kSum).wait();
  EXPECT_EQ(value.item<float>(), 12);
}

TEST(Fake, TensorsWithoutMemoryPassThrough) {
  const auto world = fake_world(1, 1024);
  const auto meta = at::TensorOptions().dtype(at::kFloat).device(at::kMeta);
  const int64_t numel = int64_t{1} << 30;
  world->control().all_gather(at::empty({1024 * numel}, meta), at::empty({numel}, meta)).wait();
  EXPECT_EQ(world->control().counters().all_gather_bytes, 1023 * numel * 4);
}

// A Comm counts the same whatever carries its calls.
TEST(Fake, CountsWhatRealRanksCount) {
  const auto use = [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, {2, 2}, {"ddp", "fsdp"});
    for (int dim = 0; dim < 2; ++dim) {
      Comm& comm = mesh->comm(dim, Lane::kGather);
      comm.all_gather(at::zeros({14}), at::zeros({7})).wait();
      comm.reduce_scatter(at::zeros({5}), at::zeros({10}), ReduceOp::kAverage).wait();
      comm.all_reduce(at::zeros({9}), ReduceOp::kSum).wait();
      comm.broadcast(at::zeros({3}), 0).wait();
      comm.all_to_all(at::zeros({6}), at::zeros({6})).wait();
      comm.barrier();
    }
    mesh_all_gather(*mesh, 0, at::zeros({5, 2}), 1);
    CommCounters total;
    for (int dim = 0; dim < 2; ++dim) {
      total += mesh->comm(dim, Lane::kGather).counters();
    }
    return std::vector<int64_t>{total.all_gathers,      total.reduce_scatters,
                                total.all_reduces,      total.broadcasts,
                                total.barriers,         total.all_to_alls,
                                total.all_gather_bytes, total.reduce_scatter_bytes,
                                total.all_reduce_bytes, total.broadcast_bytes,
                                total.all_to_all_bytes};
  };
  run_ranks(4, [&](const std::shared_ptr<World>& world) {
    EXPECT_EQ(use(world), use(fake_world(world->rank(), 4)));
  });
}

TEST(Fake, AFailureIsRememberedAsInRealWorlds) {
  const auto world = fake_world(0, 4);
  EXPECT_THROW(agree(*world, "this", []() -> std::string { fail(Code::kIo, "own"); }), Error);
  world->control().barrier();
  world->failure().publish("over");
  EXPECT_THROW(world->control().barrier(), Error);
}

TEST(Fake, APieceThatAnotherRankWouldScatterIsUnknown) {
  const auto at = [](int rank) { return Mesh::create(fake_world(rank, 4), {4}, {"dp"}); };
  EXPECT_TRUE(mesh_scatter(*at(0), 0, at::arange(8), 0).equal(at::arange(2)));
  EXPECT_THROW(mesh_scatter(*at(1), 0, at::Tensor(), 0), Error);
}

}  // namespace
}  // namespace fsdp2
