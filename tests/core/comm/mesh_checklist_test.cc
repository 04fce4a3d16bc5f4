// The lines MSH-1 to MSH-22 of the parity checklist, and PLN-10: what users of PyTorch's device
// meshes rely on.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/error.h"
#include "core/comm/byte_collectives.h"
#include "core/comm/mesh.h"
#include "core/comm/mesh_collectives.h"
#include "core/comm/transport/fake_backend.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using Ranks = std::vector<int>;
using WorldPtr = std::shared_ptr<World>;

int free_port() {
  const int number = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(number, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(number, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(number);
  return ntohs(address.sin6_port);
}

Ranks range(int first, int end, int step = 1) {
  Ranks ranks;
  for (int rank = first; rank < end; rank += step) {
    ranks.push_back(rank);
  }
  return ranks;
}

void expect_same_place(const Mesh& a, const Mesh& b) {
  EXPECT_EQ(a.ranks(), b.ranks());
  EXPECT_EQ(a.coordinate(0), b.coordinate(0));
  EXPECT_EQ(a.group(0), b.group(0));
}

TEST(MeshChecklist, MSH1_OneDimOverAllRanksReusesTheWorldGroup) {
  run_ranks(2,
            [](const WorldPtr& world) {
              const auto mesh = Mesh::create(world, {2}, {"dp"});
              EXPECT_EQ(mesh->group(0), world->everyone());
              EXPECT_TRUE(mesh->comm(0, Lane::kGather).connected());
              EXPECT_FALSE(mesh->comm(0, Lane::kReduce).connected());
              mesh->connect();
              EXPECT_TRUE(mesh->comm(0, Lane::kReduce).connected());
            },
            {BackendKind::kGloo});
}

TEST(MeshChecklist, MSH2_AMeshNeedsNoMoreThanTheEnvironment) {
  run_rank_processes(2, [](const WorldPtr& world) {
    // What a launcher would have set; the store of the surrounding test is not used.
    setenv("RANK", std::to_string(world->rank()).c_str(), 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    const std::string port =
        broadcast_bytes(world->control(), world->rank() == 0 ? std::to_string(free_port()) : "", 0);
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
        "mesh: device type 'tpu': expected cpu or cuda");
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

TEST(MeshChecklist, MSH20_BroadcastSendsTheValueOfTheDimsFirstRank) {
  for (const BackendKind backend : {BackendKind::kAuto, BackendKind::kGloo}) {
    run_ranks(8,
              [](const WorldPtr& world) {
                const auto mesh = Mesh::create(world, {2, 2, 2}, {"dp", "pp", "cp"});
                for (int dim = 0; dim < 3; ++dim) {
                  const at::Tensor value = at::full({3, 3}, world->rank(), at::kFloat);
                  mesh_broadcast(*mesh, dim, value);
                  EXPECT_TRUE(value.eq(mesh->group(dim)->members.front()).all().item<bool>());
                  const at::Tensor turned = at::full({3, 2}, world->rank(), at::kHalf).t();
                  mesh_broadcast(*mesh, dim, turned);
                  EXPECT_TRUE(turned.eq(mesh->group(dim)->members.front()).all().item<bool>());
                }
              },
              {backend});
  }
}

TEST(MeshChecklist, MSH21_ScatterGivesEachRankItsContiguousPiece) {
  for (const BackendKind backend : {BackendKind::kAuto, BackendKind::kGloo}) {
    run_ranks(8,
              [](const WorldPtr& world) {
                const auto mesh = Mesh::create(world, {8}, {"dp"});
                const at::Tensor whole = at::arange(8 * 16 * 24, at::kFloat).view({8, 16, 24});
                for (int64_t dim = 0; dim < 3; ++dim) {
                  const at::Tensor piece =
                      mesh_scatter(*mesh, 0, world->rank() == 0 ? whole : at::Tensor(), dim);
                  EXPECT_TRUE(piece.equal(whole.chunk(8, dim)[world->rank()]));
                  EXPECT_TRUE(piece.is_contiguous());
                }
              },
              {backend});
  }
}

TEST(MeshChecklist, MSH21_ScatterAndReduceScatterCutUnevenTensorsLikeChunk) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto mesh = Mesh::create(world, {4}, {"dp"});
    const at::Tensor whole = at::arange(5 * 6, at::kInt).view({5, 6});
    const int64_t rows[] = {2, 2, 1, 0};
    const int64_t start[] = {0, 2, 4, 5};
    const int rank = world->rank();
    const at::Tensor expected = whole.narrow(0, start[rank], rows[rank]);
    const at::Tensor piece = mesh_scatter(*mesh, 0, rank == 0 ? whole : at::Tensor(), 0);
    EXPECT_TRUE(piece.equal(expected));
    const at::Tensor sum = mesh_reduce_scatter(*mesh, 0, whole, 0, ReduceOp::kSum);
    EXPECT_TRUE(sum.equal(expected.mul(4)));
    const at::Tensor columns =
        mesh_reduce_scatter(*mesh, 0, whole.to(at::kDouble), 1, ReduceOp::kAverage);
    EXPECT_TRUE(
        columns.equal(whole.to(at::kDouble).narrow(1, std::min(2 * rank, 6), rank < 3 ? 2 : 0)));
    EXPECT_TRUE(mesh_all_gather(*mesh, 0, piece, 0).equal(whole));
  });
}

TEST(MeshChecklist, MSH22_GatheredPaddedPiecesRestoreTheTensor) {
  for (const BackendKind backend : {BackendKind::kAuto, BackendKind::kGloo}) {
    run_ranks(4,
              [](const WorldPtr& world) {
                const auto mesh = Mesh::create(world, {4}, {"dp"});
                const at::Tensor whole = at::ones({11, 9});
                for (int64_t dim = 0; dim < 2; ++dim) {
                  // 9 columns make three pieces: the fourth is empty.
                  const int64_t chunk = (whole.size(dim) + 3) / 4;
                  const int64_t start = std::min(chunk * world->rank(), whole.size(dim));
                  const at::Tensor piece =
                      whole.narrow(dim, start, std::min(chunk, whole.size(dim) - start));
                  EXPECT_TRUE(mesh_all_gather(*mesh, 0, piece, dim).equal(whole));
                  std::vector<int64_t> shape = whole.sizes().vec();
                  shape[dim] = chunk;
                  const at::Tensor padded = at::zeros(shape);
                  padded.narrow(dim, 0, piece.size(dim)).copy_(piece);
                  const at::Tensor all = mesh_all_gather(*mesh, 0, padded, dim);
                  EXPECT_EQ(all.size(dim), 4 * chunk);
                  EXPECT_TRUE(all.narrow(dim, 0, whole.size(dim)).equal(whole));
                }
              },
              {backend});
  }
}

TEST(MeshChecklist, MSH22_TensorsThatDoNotFitAreAnErrorOnAllRanksAndNoHang) {
  run_ranks(
      2,
      [](const WorldPtr& world) {
        const auto mesh = Mesh::create(world, {2}, {"dp"});
        const bool odd = world->rank() == 1;
        EXPECT_EQ(
            message_of_error(
                [&] { mesh_all_gather(*mesh, 0, odd ? at::ones({2, 4}) : at::ones({2, 3}), 0); },
                Code::kInvalidArgument),
            "all_gather in group world/gather: rank 0 has Float (2, 3), rank 1 has "
            "Float (2, 4)");
        EXPECT_EQ(
            message_of_error(
                [&] { mesh_broadcast(*mesh, 0, at::ones({2}, odd ? at::kDouble : at::kFloat)); },
                Code::kInvalidArgument),
            "broadcast in group world/gather: rank 0 has Float (2), rank 1 has "
            "Double (2)");
        message_of_error([&] { mesh_all_gather(*mesh, 0, at::ones({2}), odd ? 0 : 3); },
                         odd ? Code::kPeerFailed : Code::kInvalidArgument);
        message_of_error(
            [&] { mesh_scatter(*mesh, 0, odd ? at::Tensor() : at::ones({2, 2}), odd); },
            Code::kInvalidArgument);
        world->control().barrier();
      },
      {BackendKind::kGloo});
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

TEST(MeshChecklist, PLN10_PlansGoThroughTheFirstRankOfASubgroup) {
  for (const BackendKind backend : {BackendKind::kAuto, BackendKind::kGloo}) {
    run_ranks(
        4,
        [](const WorldPtr& world) {
          const auto mesh = Mesh::create(world, {2, 2}, {"column", "row"});
          Comm& row = mesh->comm(mesh->dim_index("row"), Lane::kGather);
          const std::string mine =
              std::string(world->rank() * 5, '.') + std::to_string(world->rank());
          const auto plans = gather_bytes(row, mine, 0);
          std::vector<std::string> answers;
          if (row.rank() == 0) {
            ASSERT_EQ(plans.size(), 2U);
            EXPECT_EQ(plans[0], mine);
            for (const std::string& plan : plans) {
              answers.push_back(plan + " by " + std::to_string(world->rank()));
            }
          } else {
            EXPECT_TRUE(plans.empty());
          }
          const int coordinator = world->rank() / 2 * 2;
          EXPECT_EQ(scatter_bytes(row, answers, 0), mine + " by " + std::to_string(coordinator));
          EXPECT_EQ(broadcast_bytes(row, row.rank() == 0 ? "done" : "", 0), "done");
          EXPECT_EQ(all_gather_bytes(row, "").size(), 2U);
          EXPECT_EQ(
              message_of_error([&] { scatter_bytes(row, {"one"}, 0); }, Code::kInvalidArgument),
              "scatter in group row/gather: rank 0 of it passed another number of "
              "parts than 2 ranks");
        },
        {backend});
  }
}

}  // namespace
}  // namespace fsdp2
