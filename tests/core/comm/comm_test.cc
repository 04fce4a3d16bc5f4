// What every transport promises, by threads and by Gloo.
#include "core/comm/comm.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cmath>
#include <mutex>
#include <stdexcept>

#include "core/base/error.h"
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

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
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

TEST_P(Collectives, EmptyTensorsPass) {
  on_ranks([](Comm& comm) {
    comm.all_gather(at::empty({0}), at::empty({0})).wait();
    comm.reduce_scatter(at::empty({0}), at::empty({0}), ReduceOp::kSum).wait();
    at::Tensor nothing = at::empty({0});
    comm.all_reduce(nothing, ReduceOp::kSum).wait();
    comm.broadcast(nothing, 0).wait();
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
    comm.all_gather(out, leaf).wait();
    comm.reduce_scatter(sum, out, ReduceOp::kAverage).wait();
    EXPECT_FALSE(out.requires_grad());
    EXPECT_EQ(out._version(), 1);  // zeros() itself
    EXPECT_EQ(sum._version(), 1);
  });
}

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
    comm.barrier();
    const CommCounters& counters = comm.counters();
    EXPECT_EQ(counters.all_gathers, 2);
    EXPECT_EQ(counters.reduce_scatters, 1);
    EXPECT_EQ(counters.all_reduces, 1);
    EXPECT_EQ(counters.broadcasts, 1);
    EXPECT_EQ(counters.barriers, 1);
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
    EXPECT_EQ(comm.counters().all_gathers, 0);
    comm.barrier();  // refusals leave the group as it was
  });
}

// The errors that the ranks of a run get, by rank.
struct Outcome {
  Code code = Code::kInternal;
  std::string text;
};

std::vector<Outcome> outcomes(int size, const RankBody& body, const RankOptions& options) {
  std::vector<Outcome> result(size);
  std::mutex mutex;
  run_ranks(
      size,
      [&](const std::shared_ptr<World>& world) {
        try {
          body(world);
        } catch (const Error& error) {
          const std::lock_guard<std::mutex> lock(mutex);
          result[world->rank()] = {error.code(), error.message()};
        }
      },
      options);
  return result;
}

TEST(Comm, ALateRankIsATimeOutOnOneAndItsTextOnTheOthers) {
  for (const auto backend : {BackendKind::kThread, BackendKind::kGloo}) {
    const auto start = std::chrono::steady_clock::now();
    const auto got = outcomes(3,
                              [](const std::shared_ptr<World>& world) {
                                if (world->rank() == 2) {
                                  while (!world->failure().failed()) {
                                    std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                  }
                                }
                                at::Tensor out = at::empty({3});
                                world->control().all_gather(out, at::ones({1})).wait();
                              },
                              {backend, std::chrono::milliseconds(400)});
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3));
    const int first = got[0].code == Code::kTimeout ? 0 : 1;
    const std::string text = "all_gather of group control failed on rank " + std::to_string(first) +
                             ": not done within 0.4 s: ";
    EXPECT_EQ(got[first].code, Code::kTimeout);
    EXPECT_EQ(got[first].text.substr(0, text.size()), text);
    EXPECT_EQ(got[1 - first].code, Code::kPeerFailed);
    EXPECT_NE(got[1 - first].text.find(text), std::string::npos);
    EXPECT_EQ(got[2].code, Code::kPeerFailed);
    EXPECT_NE(got[2].text.find(text), std::string::npos);
  }
}

void expect_a_failure_to_reach_others(BackendKind backend, int64_t elements) {
  const auto start = std::chrono::steady_clock::now();
  const auto got = outcomes(3,
                            [elements](const std::shared_ptr<World>& world) {
                              if (world->rank() == 1) {
                                fail(Code::kIo, "the data file is gone");
                              }
                              at::Tensor tensor = at::ones({elements});
                              world->control().all_reduce(tensor, ReduceOp::kSum).wait();
                            },
                            {backend, std::chrono::seconds(60)});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(got[1].code, Code::kIo);
  EXPECT_NE(got[0].code, Code::kInternal);
  EXPECT_NE(got[2].code, Code::kInternal);
}

TEST(Comm, ARankThatFailsReachesTheOthersInTheirWait) {
  expect_a_failure_to_reach_others(BackendKind::kThread, 3);
  expect_a_failure_to_reach_others(BackendKind::kGloo, 3);
  expect_a_failure_to_reach_others(BackendKind::kGloo, 600000);  // by slices
}

TEST(Comm, APublishedTextReachesTheOthersAndTheWorldIsSpent) {
  for (const auto backend : {BackendKind::kThread, BackendKind::kGloo}) {
    const auto start = std::chrono::steady_clock::now();
    const auto got = outcomes(3,
                              [](const std::shared_ptr<World>& world) {
                                if (world->rank() == 1) {
                                  world->failure().publish("rank 1: the data file is gone");
                                }
                                at::Tensor tensor = at::ones({3});
                                try {
                                  world->control().all_reduce(tensor, ReduceOp::kSum).wait();
                                } catch (const Error&) {
                                }
                                world->control().barrier();
                              },
                              {backend, std::chrono::seconds(60)});
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(got[rank].code, Code::kPeerFailed);
      EXPECT_EQ(got[rank].text, "barrier of group control on rank " + std::to_string(rank) +
                                    " given up, since a rank failed: rank 1: the data file is "
                                    "gone");
    }
  }
}

// As of a transport whose wait ends in time, and which then finds that a connection is gone.
class WorkThatFailsAfterItsWait final : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds /*timeout*/) override { return false; }
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return false; }
  std::exception_ptr exception() const override {
    return std::make_exception_ptr(std::runtime_error("the cable is cut"));
  }
};

class BackendThatFails final : public c10d::Backend {
 public:
  BackendThatFails() : Backend(0, 2) {}
  const std::string getBackendName() const override { return "failing"; }
  void abort() override {}
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& /*options*/) override {
    return c10::make_intrusive<WorkThatFailsAfterItsWait>();
  }
};

TEST(Comm, AFailureAlwaysHasAReason) {
  const auto failure = FailureNotice::local();
  const auto channel = std::make_shared<Channel>(
      [](FailureNotice&) { return c10::make_intrusive<BackendThatFails>(); }, failure);
  Comm comm({"pair", 0, {0, 1}, at::kCPU}, channel, failure, std::chrono::seconds(20));
  try {
    comm.barrier();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kComm);
    EXPECT_EQ(error.message(), "barrier of group pair failed on rank 0: the cable is cut");
  }
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
