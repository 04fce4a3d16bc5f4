// What a group of ranks counts, and what it refuses.
#include "core/comm/comm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/core/comm/tensor_values.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

TEST(Comm, CountsCallsAndMinimalBytes) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    Comm& comm = world->control();
    comm.reset_counters();
    at::Tensor whole = at::ones({400});
    at::Tensor part = at::ones({100});
    comm.all_gather(whole, part).wait();
    comm.all_gather(whole, part).wait();
    comm.reduce_scatter(part, whole, ReduceOp::kSum).wait();
    comm.all_reduce(whole, ReduceOp::kAverage).wait();
    comm.broadcast(part, 1).wait();
    comm.all_to_all(at::empty({400}), whole).wait();
    comm.barrier();
    const CommCounters& counters = comm.counters();
    EXPECT_EQ(counters.all_gathers, 2);
    EXPECT_EQ(counters.reduce_scatters, 1);
    EXPECT_EQ(counters.all_reduces, 1);
    EXPECT_EQ(counters.broadcasts, 1);
    EXPECT_EQ(counters.all_to_alls, 1);
    EXPECT_EQ(counters.barriers, 1);
    EXPECT_EQ(counters.all_to_all_bytes, 1200);
    EXPECT_EQ(counters.all_gather_bytes, 2400);
    EXPECT_EQ(counters.reduce_scatter_bytes, 1200);
    EXPECT_EQ(counters.all_reduce_bytes, 3 * 1600);  // small, so gathered
    EXPECT_EQ(counters.broadcast_bytes, comm.rank() == 1 ? 0 : 400);
  });
}

TEST(Comm, AGroupOfOneRankCountsNothing) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    Comm& comm = world->control();
    at::Tensor out = at::zeros({3});
    comm.all_gather(out, at::ones({3})).wait();
    EXPECT_EQ(values(out), (std::vector<double>{1, 1, 1}));
    at::Tensor narrow = at::zeros({3}, at::kBFloat16);
    comm.reduce_scatter(narrow, out, ReduceOp::kAverage).wait();
    EXPECT_EQ(values(narrow), (std::vector<double>{1, 1, 1}));
    comm.all_reduce(out, ReduceOp::kSum).wait();
    comm.barrier();
    EXPECT_EQ(comm.counters().all_gathers, 0);
    EXPECT_EQ(comm.counters().reduce_scatter_bytes, 0);
    EXPECT_EQ(comm.counters().barriers, 0);
  });
}

TEST(Comm, TwoLanesInDifferentInterleavingsDoNotDeadlock) {
  for (const auto backend : {BackendKind::kThread, BackendKind::kGloo}) {
    run_ranks(3,
              [](const std::shared_ptr<World>& world) {
                const auto gather = world->make_comm("gather", {0, 1, 2}, at::kCPU);
                const auto reduce = world->make_comm("reduce", {0, 1, 2}, at::kCPU);
                at::Tensor out = at::empty({3});
                at::Tensor sum = at::empty({1});
                const auto start_gather = [&] { return gather->all_gather(out, at::ones({1})); };
                const auto start_reduce = [&] {
                  return reduce->reduce_scatter(sum, at::ones({3}), ReduceOp::kSum);
                };
                for (int round = 0; round < 20; ++round) {
                  if (world->rank() == 0) {
                    start_gather().wait();
                    start_reduce().wait();
                  } else if (world->rank() == 1) {
                    CommWork reducing = start_reduce();
                    start_gather().wait();
                    reducing.wait();
                  } else {
                    CommWork gathering = start_gather();
                    CommWork reducing = start_reduce();
                    reducing.wait();
                    gathering.wait();
                  }
                }
                EXPECT_EQ(values(sum), (std::vector<double>{3}));
                EXPECT_EQ(gather->counters().all_gathers, 20);
                EXPECT_EQ(reduce->counters().all_gathers, 0);
              },
              {backend});
  }
}

TEST(Comm, RefusesTensorsThatDoNotFit) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    Comm& comm = world->control();
    const auto text_of = [](const std::function<void()>& call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kInvalidArgument);
        return error.message();
      }
      return "";
    };
    EXPECT_EQ(text_of([&] { comm.all_gather(at::empty({3}), at::empty({2})).wait(); }),
              "all_gather: the output has 3 elements, expected 2 x 2 ranks");
    EXPECT_EQ(text_of([&] {
                comm.reduce_scatter(at::empty({2}), at::empty({3}), ReduceOp::kSum).wait();
              }),
              "reduce_scatter: the input has 3 elements, expected 2 x 2 ranks");
    EXPECT_EQ(text_of([&] { comm.all_gather(at::empty({4}), at::empty({2}, at::kInt)).wait(); }),
              "all_gather: the output is Float, the input Int");
    EXPECT_EQ(text_of([&] { comm.all_reduce(at::empty({4, 4}).t(), ReduceOp::kSum).wait(); }),
              "all_reduce: the tensor is not a contiguous tensor");
    EXPECT_EQ(
        text_of([&] { comm.all_reduce(at::empty({1}, at::kLong), ReduceOp::kAverage).wait(); }),
        "all_reduce: no average of Long: expected a floating-point tensor");
    EXPECT_EQ(text_of([&] { comm.broadcast(at::empty({1}), 2).wait(); }),
              "broadcast: root 2 is not a rank of group control, which has 2");
    EXPECT_EQ(text_of([&] { comm.broadcast(at::Tensor(), 0).wait(); }),
              "broadcast: the tensor is not a contiguous tensor");
    const at::Tensor four = at::empty({4});
    EXPECT_EQ(text_of([&] { comm.all_to_all(at::empty({3}), at::empty({3})).wait(); }),
              "all_to_all: expected an output and an input of as many elements, in 2 equal parts, "
              "found 3 and 3");
    EXPECT_EQ(text_of([&] { comm.all_to_all(at::empty({2}), four).wait(); }),
              "all_to_all: expected an output and an input of as many elements, in 2 equal parts, "
              "found 2 and 4");
    EXPECT_EQ(text_of([&] { comm.all_to_all(four, four.view({2, 2})).wait(); }),
              "all_to_all: expected an output with memory of its own, found the input's");
    EXPECT_EQ(text_of([&] { comm.all_to_all(at::empty({4}, at::kInt), four).wait(); }),
              "all_to_all: the output is Int, the input Float");
    EXPECT_EQ(comm.counters().all_gathers, 0);
    EXPECT_EQ(comm.counters().all_to_alls, 0);
    comm.barrier();  // refusals leave the group as it was
  });
}

TEST(Comm, AnUnwaitedWorkMayBeDropped) {
  for (const auto backend : {BackendKind::kThread, BackendKind::kGloo}) {
    run_ranks(2,
              [](const std::shared_ptr<World>& world) {
                (void)world->control().all_gather(at::empty({2}), at::ones({1}));
                world->control().barrier();
              },
              {backend});
  }
}

}  // namespace
}  // namespace fsdp2
