#include "core/comm/mesh.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <mutex>

#include "core/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

TEST(Mesh, TwoByTwoIsRowMajor) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, {2, 2}, {"ddp", "fsdp"});
    EXPECT_EQ(mesh->ndim(), 2);
    EXPECT_EQ(mesh->coordinate(0), world->rank() / 2);
    EXPECT_EQ(mesh->coordinate(1), world->rank() % 2);
    const int row = world->rank() / 2 * 2;
    const int column = world->rank() % 2;
    EXPECT_EQ(mesh->comm(0, Lane::kGather).members(), (std::vector<int>{column, column + 2}));
    EXPECT_EQ(mesh->comm(1, Lane::kReduce).members(), (std::vector<int>{row, row + 1}));
    EXPECT_EQ(mesh->comm(1, Lane::kGather).rank(), column);
    EXPECT_EQ(mesh->comm(1, Lane::kGather).name(), "fsdp/gather");
    EXPECT_EQ(mesh->comm(0, Lane::kReduce).name(), "ddp/reduce");
  });
}

TEST(Mesh, TwoByThreePrintsItself) {
  run_ranks(6, [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, {2, 3}, {"ddp", "fsdp"});
    EXPECT_EQ(mesh->size(0), 2);
    EXPECT_EQ(mesh->size(1), 3);
    EXPECT_EQ(mesh->comm(0, Lane::kGather).members(),
              (std::vector<int>{world->rank() % 3, world->rank() % 3 + 3}));
    if (world->rank() == 5) {
      EXPECT_EQ(mesh->to_string(), "Mesh(ddp=2, fsdp=3) rank 5 at (1, 2)");
    }
  });
}

TEST(Mesh, CollectivesOfADimStayInItsGroup) {
  run_ranks(6, [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, {2, 3}, {"ddp", "fsdp"});
    for (const Lane lane : {Lane::kGather, Lane::kReduce}) {
      at::Tensor sum = at::full({1}, world->rank(), at::kLong);
      mesh->comm(1, lane).all_reduce(sum, ReduceOp::kSum).wait();
      EXPECT_EQ(sum.item<int64_t>(), world->rank() < 3 ? 3 : 12);
      sum.fill_(world->rank());
      mesh->comm(0, lane).all_reduce(sum, ReduceOp::kSum).wait();
      EXPECT_EQ(sum.item<int64_t>(), world->rank() % 3 * 2 + 3);
    }
  });
}

TEST(Mesh, ADimOfOneRankHasGroupsThatCommunicateNothing) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, {2, 1}, {"dp", "cp"});
    EXPECT_EQ(mesh->size(1), 1);
    EXPECT_EQ(mesh->comm(1, Lane::kGather).members(), (std::vector<int>{world->rank()}));
    mesh->comm(1, Lane::kGather).barrier();
    EXPECT_EQ(mesh->comm(1, Lane::kGather).counters().barriers, 0);
  });
}

TEST(Mesh, SubmeshSharesGroups) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, {2, 2, 1}, {"pp", "dp", "cp"});
    const auto sub = mesh->submesh({"dp", "cp"});
    EXPECT_EQ(sub->ndim(), 2);
    EXPECT_EQ(sub->dim_name(0), "dp");
    EXPECT_EQ(sub->dim_index("cp"), 1);
    EXPECT_EQ(sub->coordinate(0), world->rank() % 2);
    EXPECT_EQ(sub->group(0), mesh->group(1));
    EXPECT_FALSE(mesh->comm(1, Lane::kReduce).connected());
    sub->connect();
    EXPECT_TRUE(mesh->comm(1, Lane::kReduce).connected());  // one connection, whoever has made it
    EXPECT_EQ(message_of_error([&] { mesh->submesh({"dp", "dp"}); }, Code::kInvalidArgument),
              "submesh: dim 'dp' was named twice");
    EXPECT_EQ(message_of_error([&] { mesh->submesh({}); }, Code::kInvalidArgument),
              "submesh: no dim was named");
  });
}

TEST(Mesh, ForFsdpIsOneDimUnlessTheShardGroupIsSmaller) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    for (const int64_t fsdp_size : {-1, 0, 1, 4, 5}) {
      const auto mesh = Mesh::for_fsdp(world, fsdp_size);
      EXPECT_EQ(mesh->ndim(), 1);
      EXPECT_EQ(mesh->dim_name(0), "fsdp");
      EXPECT_EQ(mesh->size(0), 4);
    }
    const auto hsdp = Mesh::for_fsdp(world, 2);
    EXPECT_EQ(hsdp->dim_name(0), "ddp");
    EXPECT_EQ(hsdp->dim_name(1), "fsdp");
    EXPECT_EQ(hsdp->size(0), 2);
    EXPECT_EQ(hsdp->size(1), 2);
    EXPECT_EQ(message_of_error([&] { Mesh::for_fsdp(world, 3); }, Code::kInvalidArgument),
              "fsdp_size 3 does not divide the world size 4");
  });
}

TEST(Mesh, AShardGroupThatOnlyOneRankAsksForInVainIsAnErrorOnAll) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const bool in_vain = world->rank() == 1;
    const std::string message =
        message_of_error([&] { Mesh::for_fsdp(world, in_vain ? 3 : 2); },
                         in_vain ? Code::kInvalidArgument : Code::kPeerFailed);
    const std::string reason = "fsdp_size 3 does not divide the world size 4";
    EXPECT_EQ(message, in_vain ? reason : "mesh: rank 1 failed: " + reason);
    world->control().barrier();
  });
}

TEST(Mesh, ShapesThatDoNotFitAreErrorsThatLeaveTheWorldUsable) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto error = [&](std::vector<int64_t> shape, std::vector<std::string> names) {
      return message_of_error([&] { Mesh::create(world, shape, names); }, Code::kInvalidArgument);
    };
    EXPECT_EQ(error({2, 3}, {"a", "b"}), "mesh: shape (2, 3) does not make 4 ranks");
    EXPECT_EQ(error({2}, {"a"}), "mesh: shape (2) makes 2 ranks, the world has 4");
    EXPECT_EQ(error({int64_t{1} << 62, 4}, {"a", "b"}),
              "mesh: shape (4611686018427387904, 4) does not make 4 ranks");
    EXPECT_EQ(error({-2, -2}, {"a", "b"}), "mesh: shape (-2, -2) does not make 4 ranks");
    EXPECT_EQ(error({4}, {"a", "b"}),
              "mesh: 1 dims with 2 names, expected at least one dim, and one name per dim or none");
    EXPECT_EQ(error({2, 2}, {"a", "a"}),
              "mesh: dim names (a, a): each must be unique and not empty");
    world->control().barrier();
  });
}

TEST(Mesh, ShapesThatDifferBetweenRanksAreAnErrorOnAll) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const bool odd = world->rank() == 2;
    EXPECT_EQ(message_of_error(
                  [&] {
                    Mesh::create(world,
                                 odd ? std::vector<int64_t>{1, 4} : std::vector<int64_t>{2, 2},
                                 {"ddp", "fsdp"});
                  },
                  Code::kInvalidArgument),
              "mesh: the ranks differ in shape: rank 0 has (2, 2), rank 2 has (1, 4)");
  });
}

}  // namespace
}  // namespace fsdp2
