// The lines MSH-20 to MSH-22 of the parity checklist, and PLN-10: what goes through a mesh.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/comm/byte_collectives.h"
#include "core/comm/mesh.h"
#include "core/comm/mesh_collectives.h"
#include "tests/core/comm/rank_lists.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

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
}  // namespace fsdp2::checklist
