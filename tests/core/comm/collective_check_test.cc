// FSDP2_DEBUG=detail: what ranks are told whose collectives differ.
#include "core/comm/check/collective_check.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/comm/check/collective_subject.h"
#include "core/comm/comm.h"
#include "tests/core/comm/tensor_values.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  std::optional<Code> code;  // none: no error
  std::string text;
};

class DetailedChecks : public testing::TestWithParam<BackendKind> {
 protected:
  void SetUp() override { setenv("FSDP2_DEBUG", "detail", 1); }
  void TearDown() override { unsetenv("FSDP2_DEBUG"); }

  static std::vector<Outcome> outcomes(
      int size, const std::function<void(World&)>& body,
      std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    std::vector<Outcome> result(static_cast<size_t>(size));
    std::mutex mutex;
    run_ranks(size,
              [&](const std::shared_ptr<World>& world) {
                try {
                  body(*world);
                } catch (const Error& error) {
                  const std::lock_guard<std::mutex> lock(mutex);
                  result[static_cast<size_t>(world->rank())] = {error.code(), error.message()};
                }
              },
              {GetParam(), timeout});
    return result;
  }

  static void expect_all_are_told(const std::vector<Outcome>& got, const std::string& text) {
    for (const Outcome& outcome : got) {
      EXPECT_EQ(outcome.code, Code::kInvalidArgument) << outcome.text;
      EXPECT_EQ(outcome.text, text);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(All, DetailedChecks,
                         testing::Values(BackendKind::kThread, BackendKind::kGloo),
                         [](const auto& info) {
                           return info.param == BackendKind::kThread ? "Threads" : "Gloo";
                         });

TEST_P(DetailedChecks, ChangeNoCollectiveThatIsAlike) {
  const auto got = outcomes(3, [](World& world) {
    Comm& comm = world.control();
    at::Tensor gathered = at::empty({3});
    for (int i = 0; i < 20; ++i) {
      comm.all_gather(gathered, at::full({1}, static_cast<double>(comm.rank() + i))).wait();
    }
    EXPECT_EQ(values(gathered), (std::vector<double>{19, 20, 21}));
    at::Tensor sum = at::ones({4});
    comm.all_reduce(sum, ReduceOp::kSum).wait();
    EXPECT_EQ(values(sum), std::vector<double>(4, 3));
    at::Tensor part = at::empty({1});
    comm.reduce_scatter(part, at::ones({3}), ReduceOp::kAverage).wait();
    comm.scatter(part, comm.rank() == 1 ? gathered : at::Tensor(), 1).wait();
    EXPECT_EQ(values(part), std::vector<double>(1, 19 + comm.rank()));
    comm.all_to_all(at::empty({3}), gathered).wait();
    comm.broadcast(sum, 2).wait();
    comm.barrier();
  });
  for (const Outcome& outcome : got) {
    EXPECT_FALSE(outcome.code.has_value()) << outcome.text;
  }
}

TEST_P(DetailedChecks, NameAShapeThatDiffers) {
  const auto got = outcomes(3, [](World& world) {
    Comm& comm = world.control();
    comm.barrier();
    const int64_t numel = comm.rank() == 2 ? 5 : 4;
    comm.all_gather(at::empty({3 * numel}), at::ones({numel})).wait();
  });
  expect_all_are_told(got,
                      "call 2 of group control: the ranks differ: rank 0 has all_gather of Float "
                      "[4], rank 2 has all_gather of Float [5]");
}

TEST_P(DetailedChecks, NameAnOrderThatDiffers) {
  const auto got = outcomes(2, [](World& world) {
    Comm& comm = world.control();
    at::Tensor tensor = at::ones({6});
    const std::string name = comm.rank() == 0 ? "first.weight" : "second.weight";
    const auto ask = [&] { return name; };
    const CollectiveSubject subject(ask);
    if (comm.rank() == 0) {
      comm.all_reduce(tensor, ReduceOp::kSum).wait();
      comm.barrier();
    } else {
      comm.barrier();
      comm.all_reduce(tensor, ReduceOp::kSum).wait();
    }
  });
  expect_all_are_told(got,
                      "call 1 of group control: the ranks differ: rank 0 has all_reduce of Float "
                      "[6] by sum for first.weight, rank 1 has barrier for second.weight");
}

TEST_P(DetailedChecks, NameADtypeAnOperationAndARootThatDiffer) {
  struct Case {
    std::function<void(World&)> body;
    std::string text;
  };
  const std::vector<Case> cases = {
      {[](World& world) {
         Comm& comm = world.control();
         at::Tensor tensor = at::ones({2}, comm.rank() == 0 ? at::kFloat : at::kBFloat16);
         comm.all_reduce(tensor, ReduceOp::kSum).wait();
       },
       "rank 0 has all_reduce of Float [2] by sum, rank 1 has all_reduce of BFloat16 [2] by sum"},
      {[](World& world) {
         Comm& comm = world.control();
         at::Tensor tensor = at::ones({2});
         comm.all_reduce(tensor, comm.rank() == 0 ? ReduceOp::kMax : ReduceOp::kAverage).wait();
       },
       "rank 0 has all_reduce of Float [2] by max, rank 1 has all_reduce of Float [2] by average"},
      {[](World& world) {
         Comm& comm = world.control();
         comm.broadcast(at::ones({2}), comm.rank()).wait();
       },
       "rank 0 has broadcast of Float [2] from rank 0 of the group, rank 1 has broadcast of Float "
       "[2] from rank 1 of the group"}};
  for (const Case& each : cases) {
    expect_all_are_told(outcomes(2, each.body),
                        "call 1 of group control: the ranks differ: " + each.text);
  }
}

// For the others to come to their call, on a machine that is busy.
constexpr std::chrono::seconds kTimeToCome{8};

TEST_P(DetailedChecks, NameTheRankThatSkipsACollective) {
  const auto got = outcomes(
      3,
      [](World& world) {
        Comm& comm = world.control();
        comm.barrier();
        if (comm.rank() == 2) {
          while (!comm.failure()->failed()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          }
          return;
        }
        at::Tensor tensor = at::ones({7});
        comm.all_reduce(tensor, ReduceOp::kSum).wait();
      },
      kTimeToCome);
  const size_t first = got[0].code == Code::kTimeout ? 0 : 1;
  EXPECT_EQ(got[first].code, Code::kTimeout);
  EXPECT_EQ(got[first].text,
            "all_reduce of group control failed on rank " + std::to_string(first) +
                ": not done within 8.0 s: rank 2 has not made call 2 of the group, after barrier "
                "as call 1; rank 2 is in no collective");
  EXPECT_EQ(got[1 - first].code, Code::kPeerFailed);
  EXPECT_THAT(got[1 - first].text, HasSubstr(got[first].text));
}

TEST_P(DetailedChecks, NameTheOtherGroupThatARankWaitsIn) {
  const auto got = outcomes(
      2,
      [](World& world) {
        const auto first = world.make_comm("first", {0, 1}, at::kCPU);
        const auto second = world.make_comm("second", {0, 1}, at::kCPU);
        at::Tensor tensor = at::ones({3});
        (world.rank() == 0 ? first : second)->all_reduce(tensor, ReduceOp::kSum).wait();
      },
      kTimeToCome);
  const size_t rank = got[0].code == Code::kTimeout ? 0 : 1;
  EXPECT_EQ(got[rank].code, Code::kTimeout) << got[rank].text;
  const std::string other = std::to_string(1 - rank);
  EXPECT_THAT(got[rank].text,
              HasSubstr("rank " + other + " has not made call 1 of the group; rank " + other +
                        " is in all_reduce of Float [3] by sum of group " +
                        (rank == 0 ? "second" : "first")));
}

TEST(DetailedCheck, IsAskedForByOneWord) {
  for (const char* value : {"", "off", "detail"}) {
    setenv("FSDP2_DEBUG", value, 1);
    EXPECT_EQ(wants_detailed_checks(), std::string(value) == "detail");
  }
  setenv("FSDP2_DEBUG", "DETAILS", 1);
  try {
    wants_detailed_checks();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.message(), "FSDP2_DEBUG is 'DETAILS': expected detail or off");
  }
  unsetenv("FSDP2_DEBUG");
  EXPECT_FALSE(wants_detailed_checks());
}

TEST(DetailedCheck, NamesWhoHasNotComeUnlessTheLastHasJustCome) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  CollectiveCheck first(store, "group", 0, {3, 5});
  CollectiveCheck second(store, "group", 1, {3, 5});
  first.announce("barrier");
  EXPECT_EQ(first.describe_missing(), "rank 5 has not made call 1 of the group");
  second.announce("barrier");
  EXPECT_EQ(first.describe_missing(), "the last rank has only now made call 1 of the group");
}

TEST(CollectiveSubjects, HideThoseAroundThem) {
  EXPECT_EQ(CollectiveSubject::text(), "");
  const auto outer = [] { return std::string("outer"); };
  const CollectiveSubject around(outer);
  {
    const auto inner = [] { return std::string("inner"); };
    const CollectiveSubject within(inner);
    EXPECT_EQ(CollectiveSubject::text(), "inner");
  }
  EXPECT_EQ(CollectiveSubject::text(), "outer");
  std::thread([] { EXPECT_EQ(CollectiveSubject::text(), ""); }).join();
}

}  // namespace
}  // namespace fsdp2
