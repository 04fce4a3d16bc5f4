// Meshes of ranks that share sequences.
#include "core/comm/sequence_dim.h"

#include <gtest/gtest.h>

#include "core/comm/mesh_layout.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using Shape = std::vector<int64_t>;

std::shared_ptr<Mesh> mesh_of(const std::shared_ptr<World>& world, int64_t fsdp_size,
                              int64_t sequence_size) {
  MeshLayout layout;
  layout.fsdp_size = fsdp_size;
  layout.sequence_size = sequence_size;
  return make_mesh(world, layout);
}

TEST(SequenceDim, IsTheLastOfBlocksOfConsecutiveRanks) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto mesh = mesh_of(world, 0, 2);
    EXPECT_EQ(mesh->shape(), (Shape{2, 2}));
    EXPECT_EQ(mesh->dim_names(), (Mesh::Names{"dp", "cp"}));
    const int first = world->rank() / 2 * 2;
    EXPECT_EQ(mesh->group("cp")->members, (std::vector<int>{first, first + 1}));
    EXPECT_EQ(sequence_ranks(*mesh), 2);
    EXPECT_EQ(data_share(*mesh).rank, world->rank() / 2);
    EXPECT_EQ(data_share(*mesh).ranks, 2);
    EXPECT_EQ(mesh_of(world, 0, 4)->shape(), (Shape{1, 4}));
    EXPECT_EQ(mesh_of(world, 4, 4)->shape(), (Shape{1, 4}));
    EXPECT_EQ(mesh_of(world, 0, 1)->dim_names(), (Mesh::Names{"fsdp"}));
  });
}

TEST(SequenceDim, IsOneWithTheOneBeforeItToParameters) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto flat = parameter_mesh(mesh_of(world, 0, 2));
    EXPECT_EQ(flat->shape(), Shape{4});
    EXPECT_EQ(flat->ranks(), (std::vector<int>{0, 1, 2, 3}));
    const auto replicas = mesh_of(world, 2, 2);
    EXPECT_EQ(replicas->shape(), (Shape{2, 1, 2}));
    EXPECT_EQ(parameter_mesh(replicas)->shape(), (Shape{2, 2}));
    EXPECT_EQ(parameter_mesh(replicas)->dim_names(), (Mesh::Names{"ddp", "fsdp_cp"}));
    EXPECT_EQ(data_share(*replicas).ranks, 2);
    const auto other = Mesh::create(world, {2, 2}, {"ddp", "fsdp"});
    EXPECT_EQ(parameter_mesh(other), other);
    EXPECT_EQ(data_share(*other).rank, world->rank());
    const auto alone = Mesh::create(world, {4}, {"cp"});
    EXPECT_EQ(parameter_mesh(alone), alone);
    EXPECT_EQ(data_share(*alone).ranks, 1);
  });
}

TEST(SequenceDim, HasToDivideRanksAndShardGroups) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto error = [&](int64_t fsdp_size, int64_t sequence_size) {
      return message_of_error([&] { mesh_of(world, fsdp_size, sequence_size); },
                              Code::kInvalidArgument);
    };
    EXPECT_EQ(error(0, 3), "ulysses_size 3 does not divide the 4 ranks");
    EXPECT_EQ(error(2, 4),
              "ulysses_size 4: expected a divisor of fsdp_size, since ranks that share sequences "
              "are of one shard group, found fsdp_size 2");
    EXPECT_EQ(error(-1, 2),
              "ulysses_size 2: expected a divisor of fsdp_size, since ranks that share sequences "
              "are of one shard group, found fsdp_size -1");
    EXPECT_EQ(message_of_error([&] { mesh_of(world, 0, world->rank() == 0 ? 1 : 2); },
                               Code::kInvalidArgument)
                  .find("mesh: the ranks differ in "),
              0U);
  });
}

}  // namespace
}  // namespace fsdp2
