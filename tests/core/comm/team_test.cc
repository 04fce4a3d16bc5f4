// The ranks that make collective calls together: each team by itself, whatever the others do.
#include "core/comm/team.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/comm/agreement.h"
#include "core/comm/mesh.h"
#include "core/comm/shared_notes.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using Ranks = std::vector<int>;

TEST(Team, SomeRanksAreOneTeamInTheOrderOfTheJob) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const int rank = world->rank();
    const Ranks own = rank % 2 == 0 ? Ranks{2, 0} : Ranks{1, 3};
    const auto team = world->of(own);
    EXPECT_EQ(team->members(), rank % 2 == 0 ? (Ranks{0, 2}) : (Ranks{1, 3}));
    EXPECT_EQ(team->size(), 2);
    EXPECT_EQ(team->rank(), rank / 2);
    EXPECT_EQ(team->rank_in_job(1), rank % 2 + 2);
    EXPECT_EQ(&team->world(), world.get());
    EXPECT_FALSE(team->is_whole_job());
    EXPECT_EQ(team, world->of({own[1], own[0]}));
    EXPECT_EQ(team, Mesh::create(world, {2, 2}, {"a", "b"})->submesh({"a"})->shared_team());
  });
}

TEST(Team, AllRanksOfTheJobAreTheWorld) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    EXPECT_EQ(world->of({2, 0, 1}), world);
    EXPECT_TRUE(world->is_whole_job());
    EXPECT_EQ(&Mesh::create_from_ranks(world, {2, 1, 0}, {3}, {})->team(), world.get());
  });
}

TEST(Team, CountsByItself) {
  for (const BackendKind backend : {BackendKind::kThread, BackendKind::kGloo}) {
    run_ranks(4,
              [](const std::shared_ptr<World>& world) {
                const int rank = world->rank();
                const auto team = world->of(rank < 2 ? Ranks{0, 1} : Ranks{2, 3});
                // The upper team makes three groups more than the lower one.
                for (int i = 0; i < (rank < 2 ? 4 : 1); ++i) {
                  const auto comm = team->make_comm("extra", team->members(), at::kCPU);
                  EXPECT_EQ(comm->size(), 2);
                  agree(*team, "step", [i] { return "i=" + std::to_string(i); });
                }
                world->make_comm("of all", {0, 1, 2, 3}, at::kCPU)->barrier();
              },
              {backend});
  }
}

TEST(Team, HasNamesOfItsOwnInTheStore) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto team = world->of(world->rank() < 2 ? Ranks{0, 1} : Ranks{2, 3});
    SharedNotes notes(*team, "test");
    notes.count("ranks", 1);
    team->control().barrier();
    EXPECT_EQ(notes.count("ranks", 0), 2);
    world->control().barrier();
  });
}

TEST(Team, AgreesAloneAndNamesRanksByTheirNumbersInTheJob) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const int rank = world->rank();
    if (rank < 2) {
      return;
    }
    const auto team = world->of({2, 3});
    const Error differs = error_of(
        [&] { agree(*team, "options", [&] { return "layers=" + std::to_string(rank); }); });
    EXPECT_EQ(differs.message(), "options: the ranks differ in layers: rank 2 has 2, rank 3 has 3");
    const Error threw = error_of([&] {
      agree(*team, "options", [&]() -> std::string {
        FSDP2_CHECK(rank != 3, Code::kNotFound, "no file model.yaml");
        return "";
      });
    });
    EXPECT_EQ(threw.message(),
              rank == 3 ? "no file model.yaml" : "options: rank 3 failed: no file model.yaml");
  });
}

TEST(Team, TablesOfRanksMayMakeTeamsOfDifferentSizes) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    const bool alone = world->rank() == 2;
    const auto mesh = alone ? Mesh::create_from_ranks(world, {2}, {1}, {"solo"})
                            : Mesh::create_from_ranks(world, {0, 1}, {1, 2}, {"a", "b"});
    EXPECT_EQ(mesh->team().size(), alone ? 1 : 2);
    mesh->team().control().barrier();
    EXPECT_THROW(Mesh::create_from_ranks(world, {0, 1, 2}, {3}, {alone ? "a" : "b"}), Error);
  });
}

// Ranks that have flattened the same dims before, with fewer ranks, are no step ahead of the
// others.
TEST(Team, FlatteningInASliceAndThenInTheWholeMeshDoesNotMix) {
  run_ranks(8, [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, {2, 2, 2}, {"pp", "dp", "cp"});
    if (world->rank() < 4) {
      mesh->submesh({"dp", "cp"})->flatten({"dp", "cp"});
    }
    const auto flat = mesh->flatten({"dp", "cp"});
    flat->team().control().barrier();
    flat->comm(0, Lane::kGather).barrier();
    mesh->flatten({"pp", "dp"})->comm(0, Lane::kReduce).barrier();
  });
}

}  // namespace
}  // namespace fsdp2
