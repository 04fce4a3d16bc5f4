// What every transport computes, by threads and by Gloo.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "core/comm/comm.h"
#include "tests/core/comm/tensor_values.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

// Values whose sum depends on the order of the additions.
at::Tensor rough(int64_t numel, int rank, at::ScalarType dtype) {
  return at::arange(numel, at::kDouble)
      .mul_(0.37 + rank)
      .sin_()
      .mul_(std::pow(3.0, rank))
      .to(dtype);
}

// The sum that every transport must give: rank 0 first, 16-bit values in fp32, rounded once.
at::Tensor sum_by_rank(int64_t numel, int size, at::ScalarType dtype) {
  const bool narrow = dtype == at::kBFloat16 || dtype == at::kHalf;
  at::Tensor sum = rough(numel, 0, dtype).to(narrow ? at::kFloat : dtype);
  for (int rank = 1; rank < size; ++rank) {
    sum.add_(rough(numel, rank, dtype).to(sum.scalar_type()));
  }
  return sum;
}

struct Case {
  int size;
  BackendKind backend;
};

class Collectives : public testing::TestWithParam<Case> {
 protected:
  void on_ranks(const std::function<void(Comm& comm)>& body) {
    run_ranks(GetParam().size, [&](const std::shared_ptr<World>& world) { body(world->control()); },
              {GetParam().backend});
  }
};

INSTANTIATE_TEST_SUITE_P(Threads, Collectives,
                         testing::Values(Case{1, BackendKind::kAuto}, Case{2, BackendKind::kAuto},
                                         Case{3, BackendKind::kAuto}, Case{4, BackendKind::kAuto},
                                         Case{8, BackendKind::kAuto}));
INSTANTIATE_TEST_SUITE_P(Gloo, Collectives,
                         testing::Values(Case{2, BackendKind::kGloo}, Case{3, BackendKind::kGloo},
                                         Case{4, BackendKind::kGloo}));

TEST_P(Collectives, AllGatherLaysRanksOutInOrder) {
  on_ranks([](Comm& comm) {
    at::Tensor out = at::zeros({2 * comm.size()}, at::kBFloat16);
    comm.all_gather(out, at::full({2}, comm.rank() + 1, at::kBFloat16)).wait();
    std::vector<double> expected;
    for (int rank = 0; rank < comm.size(); ++rank) {
      expected.insert(expected.end(), 2, rank + 1);
    }
    EXPECT_EQ(values(out), expected);
  });
}

TEST_P(Collectives, AllGatherOutOfItsOwnSlice) {
  on_ranks([](Comm& comm) {
    at::Tensor out = at::zeros({3 * comm.size()});
    at::Tensor own = out.narrow(0, 3 * comm.rank(), 3).fill_(comm.rank() + 1);
    comm.all_gather(out, own).wait();
    for (int rank = 0; rank < comm.size(); ++rank) {
      EXPECT_EQ(values(out)[3 * rank + 2], rank + 1);
    }
  });
}

TEST_P(Collectives, ReduceScatterSumsInRankOrderBitEqual) {
  on_ranks([](Comm& comm) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      constexpr int64_t kLength = 40000;  // more than one block of the summation
      at::Tensor out = at::empty({kLength}, dtype);
      comm.reduce_scatter(out, rough(kLength * comm.size(), comm.rank(), dtype), ReduceOp::kSum)
          .wait();
      const at::Tensor all = sum_by_rank(kLength * comm.size(), comm.size(), dtype);
      EXPECT_TRUE(at::equal(out, all.narrow(0, kLength * comm.rank(), kLength).to(dtype)))
          << c10::toString(dtype);
    }
  });
}

TEST_P(Collectives, ReduceScatterAveragesBySumThenDivision) {
  on_ranks([](Comm& comm) {
    at::Tensor out = at::empty({5});
    comm.reduce_scatter(out, rough(5 * comm.size(), comm.rank(), at::kFloat), ReduceOp::kAverage)
        .wait();
    const at::Tensor all = sum_by_rank(5 * comm.size(), comm.size(), at::kFloat);
    EXPECT_TRUE(at::equal(out, all.narrow(0, 5 * comm.rank(), 5).div(comm.size())));
  });
}

TEST_P(Collectives, ReduceScatterOfBf16IntoFp32IsNotRounded) {
  on_ranks([](Comm& comm) {
    at::Tensor out = at::empty({4}, at::kFloat);
    comm.reduce_scatter(out, rough(4 * comm.size(), comm.rank(), at::kBFloat16), ReduceOp::kSum)
        .wait();
    const at::Tensor all = sum_by_rank(4 * comm.size(), comm.size(), at::kBFloat16);
    EXPECT_TRUE(at::equal(out, all.narrow(0, 4 * comm.rank(), 4)));
  });
}

TEST_P(Collectives, SmallAllReduceSumsInRankOrderBitEqual) {
  on_ranks([](Comm& comm) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      at::Tensor tensor = rough(1001, comm.rank(), dtype);
      comm.all_reduce(tensor, ReduceOp::kSum).wait();
      EXPECT_TRUE(at::equal(tensor, sum_by_rank(1001, comm.size(), dtype).to(dtype)));
    }
  });
}

TEST_P(Collectives, LargeAllReduceAverages) {
  on_ranks([](Comm& comm) {
    at::Tensor tensor = at::full({600000}, comm.rank() + 1.0);
    comm.all_reduce(tensor, ReduceOp::kAverage).wait();
    EXPECT_TRUE(at::equal(tensor, at::full({600000}, (comm.size() + 1) / 2.0)));
  });
}

TEST_P(Collectives, LargeAllReduceSumsInRankOrderBitEqual) {
  on_ranks([](Comm& comm) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
      constexpr int64_t kLength = 600001;  // does not divide into slices
      at::Tensor tensor = rough(kLength, comm.rank(), dtype);
      comm.all_reduce(tensor, ReduceOp::kSum).wait();
      EXPECT_TRUE(at::equal(tensor, sum_by_rank(kLength, comm.size(), dtype).to(dtype)))
          << c10::toString(dtype);
    }
  });
}

TEST_P(Collectives, AFiniteAverageOfFp16DoesNotOverflowOnTheWay) {
  on_ranks([](Comm& comm) {
    at::Tensor tensor = at::full({600000}, 30000.0, at::kHalf);
    comm.all_reduce(tensor, ReduceOp::kAverage).wait();
    EXPECT_TRUE(tensor.eq(30000.0).all().item<bool>());
  });
}

TEST_P(Collectives, LargeAllReducesUnderWayAreWaitedForInAnyOrder) {
  on_ranks([](Comm& comm) {
    std::vector<at::Tensor> tensors;
    std::vector<CommWork> works;
    for (int call = 0; call < 4; ++call) {
      tensors.push_back(at::full({300000}, 10.0 * call + comm.rank()));
      works.push_back(comm.all_reduce(tensors.back(), ReduceOp::kMax));
    }
    for (int call = 3; call >= 0; --call) {
      works[static_cast<size_t>(call)].wait();
      const double expected = 10.0 * call + comm.size() - 1;
      EXPECT_TRUE(tensors[static_cast<size_t>(call)].eq(expected).all().item<bool>()) << call;
    }
  });
}

TEST_P(Collectives, AllReduceOfMaxAndOfIntegers) {
  on_ranks([](Comm& comm) {
    at::Tensor maximum = at::full({2}, comm.rank() == 0 ? 7.0 : -1.0);
    comm.all_reduce(maximum, ReduceOp::kMax).wait();
    EXPECT_EQ(values(maximum), (std::vector<double>{7, 7}));
    at::Tensor count = at::full({}, comm.rank() + 1, at::kLong);
    comm.all_reduce(count, ReduceOp::kSum).wait();
    EXPECT_EQ(count.item<int64_t>(), comm.size() * (comm.size() + 1) / 2);
  });
}

TEST_P(Collectives, BroadcastFromTheLastRank) {
  on_ranks([](Comm& comm) {
    at::Tensor tensor = at::full({3, 2}, comm.rank(), at::kInt);
    comm.broadcast(tensor, comm.size() - 1).wait();
    EXPECT_EQ(values(tensor), std::vector<double>(6, comm.size() - 1));
  });
}

TEST_P(Collectives, AllToAllGivesEachRankItsPartOfEveryOther) {
  on_ranks([](Comm& comm) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kBool}) {
      constexpr int64_t kPart = 5;
      const auto part = [&](int from, int to) {
        return at::arange(kPart, at::kLong).add_(100 * from + 10 * to).remainder_(7).to(dtype);
      };
      std::vector<at::Tensor> parts;
      std::vector<at::Tensor> expected;
      for (int peer = 0; peer < comm.size(); ++peer) {
        parts.push_back(part(comm.rank(), peer));
        expected.push_back(part(peer, comm.rank()));
      }
      at::Tensor out = at::zeros({comm.size(), kPart}, dtype);
      comm.all_to_all(out, at::cat(parts)).wait();
      EXPECT_TRUE(at::equal(out, at::stack(expected))) << c10::toString(dtype);
    }
  });
}

TEST_P(Collectives, AllToAllTwiceGivesEverythingBack) {
  on_ranks([](Comm& comm) {
    constexpr int64_t kPart = 300001;  // more than a ring of shared memory holds
    const at::Tensor own = rough(kPart * comm.size(), comm.rank(), at::kFloat);
    at::Tensor away = at::empty_like(own);
    at::Tensor back = at::empty_like(own);
    comm.all_to_all(away, own).wait();
    comm.all_to_all(back, away).wait();
    EXPECT_TRUE(at::equal(back, own));
    EXPECT_EQ(at::equal(away, own), comm.size() == 1);
  });
}

TEST_P(Collectives, EmptyTensorsPass) {
  on_ranks([](Comm& comm) {
    comm.all_gather(at::empty({0}), at::empty({0})).wait();
    comm.reduce_scatter(at::empty({0}), at::empty({0}), ReduceOp::kSum).wait();
    at::Tensor nothing = at::empty({0});
    comm.all_reduce(nothing, ReduceOp::kSum).wait();
    comm.broadcast(nothing, 0).wait();
    comm.all_to_all(at::empty({0}), nothing).wait();
    comm.barrier();
  });
}

TEST_P(Collectives, SeveralUnderWayAreWaitedForInAnyOrder) {
  on_ranks([](Comm& comm) {
    std::vector<at::Tensor> outs;
    std::vector<CommWork> works;
    for (int call = 0; call < 6; ++call) {
      outs.push_back(at::empty({comm.size()}));
      works.push_back(comm.all_gather(outs.back(), at::full({1}, 10.0 * call + comm.rank())));
    }
    const bool backwards = comm.rank() % 2 == 1;
    for (int step = 0; step < 6; ++step) {
      works[backwards ? 5 - step : step].wait();
    }
    for (int call = 0; call < 6; ++call) {
      EXPECT_EQ(values(outs[call]).back(), 10.0 * call + comm.size() - 1);
    }
  });
}

TEST_P(Collectives, VersionsAndAutogradAreLeftAlone) {
  on_ranks([](Comm& comm) {
    at::Tensor leaf = at::ones({2}).requires_grad_();
    at::Tensor out = at::zeros({2 * comm.size()});
    at::Tensor sum = at::zeros({2});
    at::Tensor exchanged = at::zeros({2 * comm.size()});
    comm.all_gather(out, leaf).wait();
    comm.all_to_all(exchanged, out.requires_grad_()).wait();
    out.requires_grad_(false);
    EXPECT_FALSE(exchanged.requires_grad());
    EXPECT_EQ(exchanged._version(), 1);
    comm.reduce_scatter(sum, out, ReduceOp::kAverage).wait();
    EXPECT_FALSE(out.requires_grad());
    EXPECT_EQ(out._version(), 1);  // zeros() itself
    EXPECT_EQ(sum._version(), 1);
  });
}

}  // namespace
}  // namespace fsdp2
