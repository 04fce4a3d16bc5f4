// What the ranks of a group are told when one is late or fails.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/comm/comm.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

// A time-out that is long for what does not need it.
constexpr std::chrono::seconds kLong{60};

// The errors that the ranks of a run get, by rank.
struct Outcome {
  Code code = Code::kInternal;
  std::string text;
};

class Outcomes {
 public:
  explicit Outcomes(int size) : outcomes_(size) {}

  RankBody of(const RankBody& body) {
    return [this, body](const std::shared_ptr<World>& world) {
      try {
        body(world);
      } catch (const Error& error) {
        const std::lock_guard<std::mutex> lock(mutex_);
        outcomes_[world->rank()] = {error.code(), error.message()};
      }
    };
  }
  const Outcome& operator[](int rank) const { return outcomes_[rank]; }

 private:
  std::vector<Outcome> outcomes_;
  std::mutex mutex_;
};

// What the first of ranks 0 and 1 says whose time-out is over.
std::string overdue(const char* collective, int rank, std::chrono::milliseconds timeout) {
  return fmt::format("{} of group control failed on rank {}: not done within {:.1f} s: ",
                     collective, rank, std::chrono::duration<double>(timeout).count());
}

// Comes once the others have given up.
void come_late(World& world) {
  while (!world.failure().failed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Three ranks make the collective, the last of them late. Returns the time-out.
auto run_with_a_late_rank(BackendKind backend, Outcomes& got,
                          const std::function<void(Comm& control)>& collective) {
  return run_ranks_to_the_time_out(
      3, [](const auto&) {}, got.of([collective](const std::shared_ptr<World>& world) {
        if (world->rank() == 2) {
          come_late(*world);
        }
        collective(world->control());
      }),
      backend);
}

TEST(Comm, ALateRankIsATimeOutOnOneAndItsTextOnTheOthers) {
  for (const auto backend : {BackendKind::kThread, BackendKind::kGloo}) {
    Outcomes got(3);
    const auto timeout = run_with_a_late_rank(backend, got, [](Comm& control) {
      at::Tensor out = at::empty({3});
      control.all_gather(out, at::ones({1})).wait();
    });
    const int first = got[0].code == Code::kTimeout ? 0 : 1;
    const std::string text = overdue("all_gather", first, timeout);
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
  Outcomes got(3);
  run_ranks(3, got.of([elements](const std::shared_ptr<World>& world) {
    if (world->rank() == 1) {
      fail(Code::kIo, "the data file is gone");
    }
    at::Tensor tensor = at::ones({elements});
    world->control().all_reduce(tensor, ReduceOp::kSum).wait();
  }),
            {backend, kLong});
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong / 2);
  EXPECT_EQ(got[1].code, Code::kIo);
  EXPECT_NE(got[0].code, Code::kInternal);
  EXPECT_NE(got[2].code, Code::kInternal);
}

TEST(Comm, ARankThatFailsReachesTheOthersInTheirWait) {
  expect_a_failure_to_reach_others(BackendKind::kThread, 3);
  expect_a_failure_to_reach_others(BackendKind::kGloo, 3);
  expect_a_failure_to_reach_others(BackendKind::kGloo, 600000);  // by slices
}

TEST(Comm, AnExchangeThatARankIsLateForIsATimeOutThatNamesIt) {
  for (const auto backend : {BackendKind::kThread, BackendKind::kGloo}) {
    Outcomes got(3);
    const auto timeout = run_with_a_late_rank(backend, got, [](Comm& control) {
      at::Tensor out = at::empty({3});
      control.all_to_all(out, at::ones({3})).wait();
    });
    const int first = got[0].code == Code::kTimeout ? 0 : 1;
    const std::string text = overdue("all_to_all", first, timeout);
    EXPECT_EQ(got[first].text.substr(0, text.size()), text);
    EXPECT_NE(got[first].text.find("rank 2 is in no collective"), std::string::npos)
        << got[first].text;
    EXPECT_EQ(got[2].code, Code::kPeerFailed);
  }
}

TEST(Comm, APublishedTextReachesTheOthersAndTheWorldIsSpent) {
  for (const auto backend : {BackendKind::kThread, BackendKind::kGloo}) {
    const auto start = std::chrono::steady_clock::now();
    Outcomes got(3);
    run_ranks(3, got.of([](const std::shared_ptr<World>& world) {
      if (world->rank() == 1) {
        world->failure().publish("rank 1: the data file is gone");
      }
      at::Tensor tensor = at::ones({3});
      try {
        world->control().all_reduce(tensor, ReduceOp::kSum).wait();
      } catch (const Error&) {
      }
      world->control().barrier();
    }),
              {backend, kLong});
    EXPECT_LT(std::chrono::steady_clock::now() - start, kLong / 2);
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

}  // namespace
}  // namespace fsdp2
