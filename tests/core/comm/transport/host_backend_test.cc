// Processes of one machine exchange through shared memory: the same values as any transport, no
// hang whatever the order of waits, an error where ranks disagree or one ends.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <deque>
#include <memory>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/comm/mesh.h"
#include "core/comm/transport/host_backend.h"
#include "core/comm/transport/shared_segment.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

// Elements of 3 rings.
constexpr int64_t kBeyondTheRing = 3 * SharedSegment::kRingBytes / sizeof(float) + 5;

// What a rank passes: small whole numbers, so that sums are exact in any order.
at::Tensor values_of(int rank, int64_t numel) {
  return at::arange(numel).remainder(97).add_(rank).to(at::kFloat);
}

class HostBackend : public ::testing::TestWithParam<int> {};

TEST_P(HostBackend, GathersScattersReducesAndBroadcasts) {
  run_rank_processes(GetParam(), [](const std::shared_ptr<World>& world) {
    const int size = world->size();
    Comm& comm = world->control();
    for (const int64_t numel : {int64_t{0}, int64_t{1}, int64_t{1000}, kBeyondTheRing}) {
      const at::Tensor own = values_of(world->rank(), numel);
      at::Tensor all = at::empty({size * numel});
      comm.all_gather(all, own).wait();
      at::Tensor sum = at::zeros({numel});
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_TRUE(at::equal(all.narrow(0, rank * numel, numel), values_of(rank, numel)));
        sum.add_(values_of(rank, numel));
      }
      at::Tensor reduced = own.clone();
      comm.all_reduce(reduced, ReduceOp::kSum).wait();
      EXPECT_TRUE(at::equal(reduced, sum));
      at::Tensor slice = at::empty({numel});
      comm.reduce_scatter(slice, own.repeat({size}), ReduceOp::kSum).wait();
      EXPECT_TRUE(at::equal(slice, sum));
      at::Tensor from_last = own.clone();
      comm.broadcast(from_last, size - 1).wait();
      EXPECT_TRUE(at::equal(from_last, values_of(size - 1, numel)));
      at::Tensor piece = at::empty({numel});
      comm.scatter(piece, world->rank() == 0 ? all : at::Tensor(), 0).wait();
      EXPECT_TRUE(at::equal(piece, own));
      at::Tensor exchanged = at::empty({size * numel});
      comm.all_to_all(exchanged, own.repeat({size}).add_(at::arange(size).repeat_interleave(numel)))
          .wait();
      EXPECT_TRUE(at::equal(exchanged, all.add(world->rank())));
      comm.barrier();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, HostBackend, ::testing::Values(2, 3, 4));

// Each rank waits in an order of its own, in two groups, for more than the rings hold.
TEST(HostBackendOrder, OfWaitsMayDifferBetweenRanks) {
  run_rank_processes(3, [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::for_fsdp(world, 0);
    mesh->connect();
    const at::Tensor own = values_of(world->rank(), kBeyondTheRing);
    for (int round = 0; round < 3; ++round) {
      at::Tensor gathered = at::empty({3 * kBeyondTheRing});
      at::Tensor reduced = own.clone();
      CommWork gather = mesh->comm(0, Lane::kGather).all_gather(gathered, own);
      CommWork reduce = mesh->comm(0, Lane::kReduce).all_reduce(reduced, ReduceOp::kMax);
      if (world->rank() == 1) {
        reduce.wait();
        gather.wait();
      } else {
        gather.wait();
        reduce.wait();
      }
      EXPECT_TRUE(at::equal(reduced, gathered.view({3, -1}).amax(0)));
    }
  });
}

TEST(HostBackendFailure, RanksThatCallDifferentCollectivesAreTold) {
  const auto ends = spawn_ranks(2, [](const std::shared_ptr<World>& world) {
    at::Tensor values = at::ones({8});
    try {
      if (world->rank() == 0) {
        world->control().broadcast(values, 0).wait();
      } else {
        at::Tensor all = at::empty({16});
        world->control().all_gather(all, values).wait();
      }
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("disagree"), std::string::npos) << error.message();
    }
    stay_until_told(*world, {1});
  });
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.exit_code, 0) << end.output;
  }
}

TEST(HostBackendFailure, ARankThatEndsIsNoticedLongBeforeTheTimeout) {
  RankOptions options;
  options.timeout = std::chrono::milliseconds(120000);
  const auto ends = spawn_ranks(
      3,
      [](const std::shared_ptr<World>& world) {
        if (world->rank() == 1) {
          std::raise(SIGKILL);
        }
        at::Tensor values = at::ones({8});
        try {
          world->control().all_reduce(values, ReduceOp::kSum).wait();
          ADD_FAILURE() << "expected an error";
        } catch (const Error& error) {
          EXPECT_TRUE(error.code() == Code::kComm || error.code() == Code::kPeerFailed);
          EXPECT_NE(error.message().find("rank 1"), std::string::npos) << error.message();
        }
        stay_until_told(*world, {2});
      },
      options);
  EXPECT_EQ(ends[0].exit_code, 0) << ends[0].output;
  EXPECT_EQ(ends[1].signal, SIGKILL);
  EXPECT_EQ(ends[2].exit_code, 0) << ends[2].output;
}

using Segment = std::unique_ptr<SharedSegment>;

// One process, two threads.
std::pair<Segment, Segment> two_ranks() {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  Segment second;
  std::thread other([&] { second = SharedSegment::open(*store, 1, 2, std::chrono::seconds(20)); });
  Segment first = SharedSegment::open(*store, 0, 2, std::chrono::seconds(20));
  other.join();
  return {std::move(first), std::move(second)};
}

TEST(SharedSegment, IsSeenByBothAndTellsWhoHasLeft) {
  auto [first, second] = two_ranks();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  first->ring(0)[SharedSegment::kRingBytes - 1] = std::byte{42};
  first->written(0).store(7);
  second->read(0, 1).store(5);
  EXPECT_EQ(second->ring(0)[SharedSegment::kRingBytes - 1], std::byte{42});
  EXPECT_EQ(second->written(0).load(), 7U);
  EXPECT_EQ(first->read(0, 1).load(), 5U);
  EXPECT_FALSE(first->has_left(1));
  second.reset();
  EXPECT_TRUE(first->has_left(1));
}

// A process that a rank has forked and left behind, as a reader of data.
class Fork {
 public:
  Fork() {
    std::array<int, 2> ready{};
    FSDP2_CHECK(pipe(ready.data()) == 0, Code::kInternal, "pipe: error {}", errno);
    pid_ = fork();
    FSDP2_CHECK(pid_ >= 0, Code::kInternal, "fork: error {}", errno);
    if (pid_ == 0) {
      while (write(ready[1], "", 1) == 1) {
        pause();
      }
      _exit(1);
    }
    close(ready[1]);  // of a child that has ended there is nothing to read then
    char byte = 0;
    ssize_t bytes = 0;
    do {
      bytes = read(ready[0], &byte, 1);
    } while (bytes < 0 && errno == EINTR);
    EXPECT_EQ(bytes, 1);
    close(ready[0]);
  }
  ~Fork() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;

 private:
  pid_t pid_;
};

TEST(SharedSegment, IsLeftByARankWhoseForkLives) {
  auto [first, second] = two_ranks();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  const Fork fork;
  EXPECT_FALSE(first->has_left(1));
  second.reset();
  EXPECT_TRUE(first->has_left(1));
}

// Another thread of the process may fork just when it opens the file.
TEST(SharedSegment, IsLeftByARankWhoseForkWasMadeMeanwhile) {
  constexpr size_t kMostForks = 100;
  constexpr auto kLong = std::chrono::seconds(10);
  std::atomic<bool> is_over{false};
  std::deque<Fork> forks;
  std::thread forking([&] {
    while (!is_over && forks.size() < kMostForks) {
      forks.emplace_back();
    }
  });
  for (int time = 0; time < 5; ++time) {
    auto [first, second] = two_ranks();
    ASSERT_NE(first, nullptr);
    second.reset();
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (!first->has_left(1) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    EXPECT_TRUE(first->has_left(1)) << "time " << time;
  }
  is_over = true;
  forking.join();
}

// A rank that cannot map the memory keeps all of them from using it.
TEST(SharedSegment, IsForAllOrForNobody) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->set("mapped1", std::vector<uint8_t>{'n', 'o'});
  EXPECT_EQ(SharedSegment::open(*store, 0, 2, std::chrono::seconds(20)), nullptr);
  EXPECT_EQ(store->get("shared"), (std::vector<uint8_t>{'n', 'o'}));
}

using Backend = c10::intrusive_ptr<c10d::Backend>;

std::pair<Backend, Backend> two_backends() {
  auto [first, second] = two_ranks();
  return {make_host_backend(std::move(first), 0, 2), make_host_backend(std::move(second), 1, 2)};
}

// Whoever waits moves the data of all groups of the process.
TEST(HostBackendEnd, MayComeWhileAnotherThreadMovesItsData) {
  const auto others = two_backends();
  std::atomic<bool> is_over{false};
  std::thread mover([&] {
    while (!is_over) {
      const auto first = others.first->barrier();
      EXPECT_TRUE(others.second->barrier()->wait(std::chrono::seconds(20)));
      EXPECT_TRUE(first->wait(std::chrono::seconds(20)));
    }
  });
  for (int time = 0; time < 20; ++time) {
    auto ending = two_backends();
    std::vector<at::Tensor> sent{values_of(0, kBeyondTheRing)};
    std::vector<at::Tensor> received{at::empty({kBeyondTheRing})};
    (void)ending.first->broadcast(sent);
    (void)ending.second->broadcast(received);
    ending.first.reset();
    ending.second.reset();
  }
  is_over = true;
  mover.join();
}

}  // namespace
}  // namespace fsdp2
