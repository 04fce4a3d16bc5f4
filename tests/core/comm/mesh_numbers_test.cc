// Calls over all ranks of a mesh, of the whole job or a part of it, and meshes by their layout.
#include "core/comm/mesh_numbers.h"

#include <gtest/gtest.h>

#include <memory>

#include "core/comm/mesh_layout.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

TEST(MeshNumbers, AreReducedOverAllRanksOfAnyMesh) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto whole = Mesh::create(world, {2, 2}, {"ddp", "fsdp"});
    const auto row = whole->submesh({"fsdp"});
    const int first = world->rank() / 2 * 2;
    double values[2] = {1.0, static_cast<double>(world->rank())};
    mesh_reduce_numbers(*whole, values, 2, ReduceOp::kSum);
    EXPECT_EQ(values[0], 4.0);
    EXPECT_EQ(values[1], 6.0);
    double rank = world->rank();
    mesh_reduce_numbers(*row, &rank, 1, ReduceOp::kSum);
    EXPECT_EQ(rank, 2.0 * first + 1);
    mesh_barrier(*row);
    mesh_barrier(*whole);
  });
}

TEST(MeshNumbers, ARankHasItsPositionInRowMajorOrder) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto whole = Mesh::create(world, {2, 2}, {"ddp", "fsdp"});
    EXPECT_EQ(whole->position(), world->rank());
    EXPECT_EQ(whole->submesh({"ddp"})->position(), world->rank() / 2);
    EXPECT_EQ(whole->submesh({"fsdp"})->position(), world->rank() % 2);
  });
}

TEST(MeshLayout, AMeshIsMadeByShapeRanksOrShardGroup) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    MeshLayout layout;
    EXPECT_EQ(make_mesh(world, layout)->shape(), (std::vector<int64_t>{4}));
    layout.fsdp_size = 2;
    EXPECT_EQ(make_mesh(world, layout)->shape(), (std::vector<int64_t>{2, 2}));
    layout.fsdp_size = -1;
    const auto replicas = make_mesh(world, layout);
    EXPECT_EQ(replicas->shape(), (std::vector<int64_t>{4, 1}));
    EXPECT_EQ(replicas->dim_names(), (Mesh::Names{"ddp", "fsdp"}));
    layout = {};
    layout.shape = {2};
    layout.names = {"tp"};
    layout.ranks = world->rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3};
    EXPECT_EQ(make_mesh(world, layout)->ranks(), layout.ranks);
    layout.ranks.clear();
    layout.shape = {4};
    EXPECT_EQ(make_mesh(world, layout)->dim_names(), (Mesh::Names{"tp"}));
  });
}

}  // namespace
}  // namespace fsdp2
