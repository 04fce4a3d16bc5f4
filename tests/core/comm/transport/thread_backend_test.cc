// What only ranks as threads promise: calls that do not match are errors on all ranks.
#include "core/comm/transport/thread_backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "core/base/error.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

// Runs two ranks that must both fail, and returns the reason.
std::string common_reason(const std::function<void(Comm& comm)>& body) {
  std::mutex mutex;
  std::vector<std::string> texts;
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    try {
      world->control().barrier();
      body(world->control());
      ADD_FAILURE() << "rank " << world->rank() << " did not notice";
    } catch (const Error& error) {
      const std::lock_guard<std::mutex> lock(mutex);
      texts.push_back(error.message());
    }
  });
  std::set<std::string> reasons;
  for (const std::string& text : texts) {
    reasons.insert(text.substr(text.find("ranks disagree")));
  }
  EXPECT_EQ(texts.size(), 2);
  EXPECT_EQ(reasons.size(), 1);
  return *reasons.begin();
}

// Which rank comes first is a matter of timing.
testing::AssertionResult either_way(const std::string& reason, const std::string& call0,
                                    const std::string& call1) {
  const std::string start = "ranks disagree about call 1: ";
  if (reason == start + call0 + " on rank 0, " + call1 + " on rank 1" ||
      reason == start + call1 + " on rank 1, " + call0 + " on rank 0") {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << reason;
}

TEST(ThreadBackend, SizesThatDifferAreAnErrorOnAllRanks) {
  EXPECT_TRUE(either_way(common_reason([](Comm& comm) {
                           const int64_t length = 1 + comm.rank();
                           comm.all_gather(at::empty({2 * length}), at::ones({length})).wait();
                         }),
                         "all_gather of 1 x Float", "all_gather of 2 x Float"));
}

TEST(ThreadBackend, DtypesThatDifferAreAnErrorOnAllRanks) {
  EXPECT_TRUE(either_way(common_reason([](Comm& comm) {
                           const auto dtype = comm.rank() == 0 ? at::kFloat : at::kInt;
                           comm.all_reduce(at::ones({2}, dtype), ReduceOp::kSum).wait();
                         }),
                         "all_reduce(sum) of 2 x Float", "all_reduce(sum) of 2 x Int"));
}

TEST(ThreadBackend, CallsThatDifferAreAnErrorOnAllRanks) {
  EXPECT_TRUE(
      either_way(common_reason([](Comm& comm) {
                   if (comm.rank() == 0) {
                     comm.all_gather(at::empty({4}), at::ones({2})).wait();
                   } else {
                     comm.reduce_scatter(at::empty({2}), at::ones({4}), ReduceOp::kAverage).wait();
                   }
                 }),
                 "all_gather of 2 x Float", "reduce_scatter(average) of 4 x Float"));
}

TEST(ThreadBackend, ExchangesOfSizesThatDifferAreAnErrorOnAllRanks) {
  EXPECT_TRUE(either_way(common_reason([](Comm& comm) {
                           const int64_t numel = comm.rank() == 0 ? 4 : 6;
                           comm.all_to_all(at::empty({numel}), at::ones({numel})).wait();
                         }),
                         "all_to_all of 4 x Float", "all_to_all of 6 x Float"));
}

TEST(ThreadBackend, ARankThatHasLeftIsAnErrorAtOnce) {
  const auto group = make_thread_group(2);
  auto stays = make_thread_backend(group, 0);
  make_thread_backend(group, 1).reset();
  try {
    stays->barrier()->wait(std::chrono::milliseconds(0));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "rank 1 has left the group");
  }
}

TEST(ThreadBackend, WhatARankHasPostedBeforeItLeftStillCounts) {
  const auto group = make_thread_group(2);
  auto stays = make_thread_backend(group, 0);
  auto leaves = make_thread_backend(group, 1);
  at::Tensor in = at::ones({1});
  at::Tensor out = at::empty({2});
  at::Tensor unread = at::empty({2});
  (void)leaves->_allgather_base(unread, in);
  leaves.reset();
  EXPECT_TRUE(stays->_allgather_base(out, in)->wait(std::chrono::milliseconds(0)));
  EXPECT_EQ(out[1].item<float>(), 1);
}

TEST(ThreadBackend, AWaitReturnsFalseWhenItsTimeIsOver) {
  const auto group = make_thread_group(2);
  auto early = make_thread_backend(group, 0);
  auto late = make_thread_backend(group, 1);
  auto work = early->barrier();
  EXPECT_FALSE(work->wait(std::chrono::milliseconds(1)));
  (void)late->barrier();
  EXPECT_TRUE(work->wait(std::chrono::milliseconds(0)));
}

TEST(ThreadBackend, AbortFailsWhatIsPending) {
  const auto group = make_thread_group(2);
  auto backend = make_thread_backend(group, 0);
  auto other = make_thread_backend(group, 1);
  auto work = backend->barrier();
  other->abort();
  EXPECT_THROW(work->wait(std::chrono::milliseconds(0)), Error);
}

}  // namespace
}  // namespace fsdp2
