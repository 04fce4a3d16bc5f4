// The lines MSH-1 to MSH-13 of the parity checklist: how users of PyTorch's device meshes make
// them.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/comm/byte_collectives.h"
#include "core/comm/mesh.h"
#include "core/comm/transport/fake_backend.h"
#include "tests/core/comm/rank_lists.h"
#include "tests/support/errors.h"
#include "tests/support/free_port.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

TEST(MeshChecklist, MSH1_OneDimOverAllRanksReusesTheWorldGroup) {
  run_ranks(2,
            [](const WorldPtr& world) {
              const auto mesh = Mesh::create(world, {2}, {"dp"});
              EXPECT_EQ(mesh->group(0), world->everyone());
              EXPECT_TRUE(mesh->comm(0, Lane::kGather).connected());
              EXPECT_FALSE(mesh->comm(0, Lane::kReduce).connected());
              mesh->connect();
              EXPECT_TRUE(mesh->comm(0, Lane::kReduce).connected());
              mesh->comm(0, Lane::kReduce).barrier();  // nobody leaves while another connects
            },
            {BackendKind::kGloo});
}

TEST(MeshChecklist, MSH2_AMeshNeedsNoMoreThanTheEnvironment) {
  run_rank_processes(2, [](const WorldPtr& world) {
    // What a launcher would have set; the store of the surrounding test is not used.
    setenv("RANK", std::to_string(world->rank()).c_str(), 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    const test::FreePort own;
    const std::string port = broadcast_bytes(world->control(), own.text(), 0);
    setenv("MASTER_PORT", port.c_str(), 1);
    const auto mesh = Mesh::create(World::join({}), {2}, {"dp"});
    EXPECT_EQ(mesh->coordinate(0), world->rank());
    at::Tensor sum = at::ones({1});
    mesh->comm(0, Lane::kGather).all_reduce(sum, ReduceOp::kSum).wait();
    EXPECT_EQ(sum.item<float>(), 2);
  });
}

TEST(MeshChecklist, MSH3_AGroupIsOneObjectByIndexByNameAndOnSlices) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {2, 2}, {"dp", "tp"});
    EXPECT_EQ(mesh->group(0), mesh->group("dp"));
    EXPECT_EQ(mesh->group(1), mesh->group("tp"));
    EXPECT_NE(mesh->group(0), mesh->group(1));
    EXPECT_EQ(mesh->submesh({"dp"})->group(0), mesh->group("dp"));
    EXPECT_EQ(mesh->submesh({"tp"})->group(0), mesh->group("tp"));
    EXPECT_EQ(mesh->groups(), (std::vector{mesh->group(0), mesh->group(1)}));
  });
}

TEST(MeshChecklist, MSH4_LocalRanksByNameByIndexAndOnTheSliceAgree) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {2, 2}, {"dp", "tp"});
    for (const std::string name : {"dp", "tp"}) {
      EXPECT_EQ(mesh->coordinate(name), mesh->coordinate(mesh->dim_index(name)));
      EXPECT_EQ(mesh->coordinate(name), mesh->submesh({name})->coordinate(0));
      EXPECT_EQ(mesh->coordinate(name), mesh->group(name)->rank());
    }
    if (world->rank() == 3) {
      EXPECT_EQ(mesh->coordinate("dp"), 1);
      EXPECT_EQ(mesh->coordinate("tp"), 1);
    }
  });
}

TEST(MeshChecklist, MSH5_ATableOfRanksGivesColumnsAndRows) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto mesh = Mesh::create_from_ranks(world, {0, 1, 2, 3}, {2, 2}, {});
    const int rank = world->rank();
    EXPECT_EQ(mesh->group(0)->members, (Ranks{rank % 2, rank % 2 + 2}));
    EXPECT_EQ(mesh->group(1)->members, (Ranks{rank / 2 * 2, rank / 2 * 2 + 1}));
    const auto turned = Mesh::create_from_ranks(world, {3, 1, 2, 0}, {2, 2}, {"a", "b"});
    EXPECT_EQ(turned->coordinate("a"), rank == 2 || rank == 0);
    EXPECT_EQ(turned->coordinate("b"), rank == 1 || rank == 0);
    EXPECT_EQ(turned->group("a")->members, rank % 2 == 1 ? (rank == 3 ? Ranks{3, 2} : Ranks{1, 0})
                                                         : (rank == 2 ? Ranks{3, 2} : Ranks{1, 0}));
  });
}

TEST(MeshChecklist, MSH5_TablesThatDoNotFitAreErrorsOnAllRanks) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto mesh_of = [&](Ranks ranks, std::vector<int64_t> shape) {
      return message_of_error([&] { Mesh::create_from_ranks(world, ranks, shape, {}); },
                              Code::kInvalidArgument);
    };
    EXPECT_EQ(mesh_of({0, 1, 2, 2}, {2, 2}),
              "mesh: ranks (0, 1, 2, 2): expected different ranks of 4");
    EXPECT_EQ(mesh_of({0, 1, 2, 4}, {2, 2}),
              "mesh: ranks (0, 1, 2, 4): expected different ranks of 4");
    EXPECT_EQ(mesh_of({0, 1, 2, 3}, {2, 3}), "mesh: shape (2, 3) does not make 4 ranks");
    const bool odd = world->rank() == 3;
    try {
      Mesh::create_from_ranks(world, odd ? Ranks{0, 1, 3, 2} : range(0, 4), {4}, {});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("ranks 0 and 3 are in one table"), std::string::npos)
          << error.message();
    }
    world->control().barrier();
  });
}

TEST(MeshChecklist, MSH6_AMeshOfTheWorldGroupEqualsAFreshOne) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto fresh = Mesh::create(world, {4}, {});
    const auto from_group = Mesh::from_group(world, world->everyone(), "");
    EXPECT_EQ(*from_group, *fresh);
    expect_same_place(*from_group, *fresh);
  });
}

TEST(MeshChecklist, MSH7_ADeviceTypeWithAnIndexIsRefused) {
  run_ranks(2, [](const WorldPtr& world) {
    for (const std::string type : {"cuda:0", "cpu:0"}) {
      EXPECT_EQ(
          message_of_error([&] { Mesh::create(world, {2}, {"dp"}, type); }, Code::kInvalidArgument),
          "mesh: device type '" + type + "' with an index: expected '" +
              type.substr(0, type.size() - 2) + "', since each rank has a device of its own");
    }
    EXPECT_EQ(
        message_of_error([&] { Mesh::create(world, {2}, {"dp"}, "tpu"); }, Code::kInvalidArgument),
        "mesh: device type 'tpu': expected cpu, cuda or auto");
  });
}

TEST(MeshChecklist, MSH8_EqualityAndHashGoByTableNamesAndDeviceType) {
  run_ranks(8, [](const WorldPtr& world) {
    const auto one = Mesh::create(world, {4, 2}, {"dp", "tp"});
    const auto same = Mesh::create(world, {4, 2}, {"dp", "tp"});
    EXPECT_EQ(*one, *same);
    EXPECT_EQ(one->hash(), same->hash());
    const auto cube = Mesh::create(world, {2, 2, 2}, {"dp", "pp", "tp"});
    EXPECT_NE(*one, *cube);
    EXPECT_NE(one->hash(), cube->hash());
    EXPECT_NE(*one, *Mesh::create(world, {4, 2}, {"dp", "cp"}));
    world->add_transport(at::kCUDA, [](const std::string& /*key*/, int rank, int size) {
      return make_fake_backend(rank, size);
    });
    EXPECT_NE(*one, *Mesh::create(world, {4, 2}, {"dp", "tp"}, "cuda"));
  });
}

TEST(MeshChecklist, MSH9_CoordinatesInThreeDims) {
  run_ranks(8, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {2, 2, 2}, {"dp", "pp", "tp"});
    EXPECT_EQ(mesh->coordinate("dp"), world->rank() / 4);
    EXPECT_EQ(mesh->coordinate("pp"), world->rank() / 2 % 2);
    EXPECT_EQ(mesh->coordinate("tp"), world->rank() % 2);
  });
}

TEST(MeshChecklist, MSH10_ANamedSliceIsNotAnUnnamedMeshOfTheSameRanks) {
  run_ranks(8, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {2, 4}, {"dp", "tp"});
    const int first = world->rank() / 4 * 4;
    const auto free = Mesh::create_from_ranks(world, range(first, first + 4), {4}, {});
    const auto other = Mesh::create_from_ranks(world, range(first, first + 4), {4}, {});
    const auto slice = mesh->submesh({"tp"});
    EXPECT_EQ(slice->ranks(), free->ranks());
    EXPECT_NE(*slice, *free);
    EXPECT_NE(slice->hash(), free->hash());
    EXPECT_EQ(*free, *other);
    EXPECT_EQ(free->hash(), other->hash());
    at::Tensor sum = at::full({1}, world->rank(), at::kLong);
    free->comm(0, Lane::kGather).all_reduce(sum, ReduceOp::kSum).wait();
    EXPECT_EQ(sum.item<int64_t>(), world->rank() < 4 ? 6 : 22);
  });
}

TEST(MeshChecklist, MSH11_AShapeGivesTheRowMajorTableWithAndWithoutNames) {
  run_ranks(8, [](const WorldPtr& world) {
    const auto named = Mesh::create(world, {2, 4}, {"DP", "TP"});
    EXPECT_EQ(named->ranks(), range(0, 8));
    EXPECT_EQ(named->shape(), (std::vector<int64_t>{2, 4}));
    EXPECT_EQ(named->dim_names(), (std::vector<std::string>{"DP", "TP"}));
    const auto unnamed = Mesh::create(world, {2, 4}, {});
    EXPECT_EQ(unnamed->ranks(), range(0, 8));
    EXPECT_FALSE(unnamed->has_names());
    if (world->rank() == 6) {
      EXPECT_EQ(unnamed->to_string(), "Mesh(2, 4) rank 6 at (1, 2)");
    }
    EXPECT_EQ(Mesh::create(world, {2, -1}, {})->shape(), (std::vector<int64_t>{2, 4}));
    EXPECT_EQ(message_of_error([&] { Mesh::create(world, {3, -1}, {}); }, Code::kInvalidArgument),
              "mesh: shape (3, -1): 8 ranks do not divide by 3");
    EXPECT_EQ(message_of_error([&] { Mesh::create(world, {-1, -1}, {}); }, Code::kInvalidArgument),
              "mesh: shape (-1, -1) does not make 8 ranks");
  });
}

TEST(MeshChecklist, MSH12_NamesThatAreEqualAreRefused) {
  run_ranks(4, [](const WorldPtr& world) {
    EXPECT_EQ(message_of_error([&] { Mesh::create(world, {2, 2}, {"dp", "dp"}); },
                               Code::kInvalidArgument),
              "mesh: dim names (dp, dp): each must be unique and not empty");
  });
}

TEST(MeshChecklist, MSH13_NamesAndDimsMustBeEquallyMany) {
  run_ranks(8, [](const WorldPtr& world) {
    EXPECT_EQ(
        message_of_error([&] { Mesh::create(world, {8}, {"dp", "tp"}); }, Code::kInvalidArgument),
        "mesh: 1 dims with 2 names, expected at least one dim, and one name per dim or none");
    EXPECT_EQ(
        message_of_error([&] { Mesh::create(world, {2, 4}, {"dp"}); }, Code::kInvalidArgument),
        "mesh: 2 dims with 1 names, expected at least one dim, and one name per dim or none");
  });
}

}  // namespace
}  // namespace fsdp2::checklist
