// The lines MSH-14 to MSH-19 of the parity checklist, and INIT-19: parts of a mesh, and meshes of a
// group.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/comm/mesh.h"
#include "tests/core/comm/rank_lists.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

TEST(MeshChecklist, MSH14_SlicingByANameThatIsNotThereListsThoseThatAre) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {2, 2}, {"dp", "tp"});
    EXPECT_EQ(message_of_error([&] { mesh->submesh({"pp"}); }, Code::kNotFound),
              "mesh: no dim 'pp', there are: dp, tp");
    const auto unnamed = Mesh::create(world, {2, 2}, {});
    EXPECT_EQ(message_of_error([&] { unnamed->submesh({"dp"}); }, Code::kNotFound),
              "mesh: no dim 'dp', its dims have no names");
  });
}

TEST(MeshChecklist, MSH15_SlicesOfTwoDimsAreTheRowAndTheColumn) {
  run_ranks(8, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {2, 4}, {"DP", "TP"});
    const int row = world->rank() / 4;
    const int column = world->rank() % 4;
    EXPECT_EQ(mesh->submesh({"TP"})->ranks(), range(row * 4, row * 4 + 4));
    EXPECT_EQ(mesh->submesh({"DP"})->ranks(), (Ranks{column, column + 4}));
  });
}

TEST(MeshChecklist, MSH16_TheOnlyDimOfAMeshIsTheMesh) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {4}, {"dp"});
    EXPECT_EQ(*mesh->submesh({"dp"}), *mesh);
    expect_same_place(*mesh->submesh({"dp"}), *mesh);
    EXPECT_EQ(message_of_error([&] { mesh->submesh({"tp"}); }, Code::kNotFound),
              "mesh: no dim 'tp', there are: dp");
  });
}

TEST(MeshChecklist, MSH17_SubMeshOfSeveralNamesInTheMeshsOrder) {
  run_ranks(8, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {2, 2, 2}, {"dp", "pp", "cp"});
    const auto sub = mesh->submesh({"dp", "cp"});
    const bool first = world->rank() / 2 % 2 == 0;
    EXPECT_EQ(sub->ranks(), first ? (Ranks{0, 1, 4, 5}) : (Ranks{2, 3, 6, 7}));
    EXPECT_EQ(sub->shape(), (std::vector<int64_t>{2, 2}));
    EXPECT_EQ(sub->group("cp"), mesh->group("cp"));
    EXPECT_EQ(message_of_error([&] { mesh->submesh({"cp", "dp"}); }, Code::kInvalidArgument),
              "submesh: dims (cp, dp) are not in the mesh's own order, (dp, pp, cp), or overlap");
    EXPECT_EQ(sub->submesh({"cp"})->ranks(), mesh->submesh({"cp"})->ranks());
  });
}

TEST(MeshChecklist, MSH18_FlattenedDimsAreOneDimWithAGroupOfItsOwn) {
  run_ranks(8, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {2, 2, 2}, {"dp", "cp", "tp"});
    const auto dp_cp = mesh->flatten({"dp", "cp"});
    EXPECT_EQ(dp_cp->ranks(), range(world->rank() % 2, 8, 2));
    EXPECT_EQ(dp_cp->ndim(), 1);
    EXPECT_EQ(dp_cp->dim_name(0), "dp_cp");
    EXPECT_EQ(dp_cp->coordinate(0), world->rank() / 2);
    EXPECT_EQ(dp_cp->group(0)->members, dp_cp->ranks());
    const auto groups = mesh->groups();
    EXPECT_EQ(std::count(groups.begin(), groups.end(), dp_cp->group(0)), 0);
    at::Tensor sum = at::full({1}, world->rank(), at::kLong);
    dp_cp->comm(0, Lane::kReduce).all_reduce(sum, ReduceOp::kSum).wait();
    EXPECT_EQ(sum.item<int64_t>(), world->rank() % 2 == 0 ? 12 : 16);
    const auto dp_tp = mesh->flatten({"dp", "tp"}, "wide");
    const int cp = world->rank() / 2 % 2;
    EXPECT_EQ(dp_tp->ranks(), (Ranks{2 * cp, 2 * cp + 1, 2 * cp + 4, 2 * cp + 5}));
    // The new names are known to the mesh, beside the old ones, and made once.
    EXPECT_EQ(*mesh->submesh({"dp_cp"}), *dp_cp);
    EXPECT_EQ(mesh->flatten({"dp", "cp"})->group(0), dp_cp->group(0));
    const auto both = mesh->submesh({"dp_cp", "tp"});
    EXPECT_EQ(both->ranks(), range(0, 8));
    EXPECT_EQ(both->shape(), (std::vector<int64_t>{4, 2}));
    EXPECT_EQ(message_of_error([&] { mesh->flatten({"dp", "cp"}, "tp"); }, Code::kInvalidArgument),
              "flatten: the mesh has another dim 'tp' already");
    EXPECT_EQ(
        message_of_error([&] { mesh->submesh({"dp_cp", "cp"}); }, Code::kInvalidArgument),
        "submesh: dims (dp_cp, cp) are not in the mesh's own order, (dp, cp, tp), or overlap");
    EXPECT_EQ(message_of_error([&] { mesh->submesh({"tp"})->submesh({"dp_cp"}); }, Code::kNotFound),
              "mesh: no dim 'dp_cp', there are: tp");
  });
}

TEST(MeshChecklist, MSH19_ASliceKnowsItsRootAndItsDimThere) {
  run_ranks(8, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {2, 2, 2}, {"dp", "pp", "cp"});
    EXPECT_EQ(mesh->root(), nullptr);
    EXPECT_TRUE(mesh->root_dims().empty());
    EXPECT_EQ(Mesh::from_group(world, mesh->group(0), "dp")->root(), nullptr);
    const auto sub = mesh->submesh({"dp", "cp"});
    EXPECT_EQ(sub->root(), mesh);
    EXPECT_EQ(sub->root_dims(), (Ranks{0, 2}));
    const auto of_sub = sub->submesh({"cp"});
    EXPECT_EQ(of_sub->root(), mesh);
    EXPECT_EQ(of_sub->root_dims(), (Ranks{2}));
    const auto flat = mesh->flatten({"dp", "pp"});
    EXPECT_EQ(flat->root(), mesh);
    EXPECT_EQ(flat->root_dims(), (Ranks{0, 1}));
  });
}

TEST(MeshChecklist, INIT19_AMeshOfASlicesGroupIsTheSlice) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {2, 2}, {"dp", "tp"});
    const auto slice = mesh->submesh({"dp"});
    const auto made = Mesh::from_group(world, mesh->group("dp"), "dp");
    expect_same_place(*made, *slice);
    EXPECT_EQ(*made, *slice);
  });
}

}  // namespace
}  // namespace fsdp2::checklist
