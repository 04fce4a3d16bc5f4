// Gloo between processes: what comes through, and what happens when one of them does not.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/comm/mesh.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// Longer than a process stands still on a machine that is busy: all collectives end within it but
// those that are meant not to.
constexpr seconds kTimeout{12};
// Seconds after it, as promised: a rank asks the others where they are, and leaves the world.
constexpr int kLate = 5;

// Runs the call, which must fail; prints the error for the parent to look at.
void print_error_of(const std::function<void()>& call) {
  const auto start = Clock::now();
  try {
    call();
    std::printf("no error\n");
  } catch (const Error& error) {
    std::printf("%d after %.1f s: %s\n", static_cast<int>(error.code()),
                std::chrono::duration<double>(Clock::now() - start).count(),
                error.message().c_str());
  }
  std::fflush(stdout);
}

bool is_within_the_time(const RankEnd& end) { return end.seconds < kTimeout.count() + kLate; }

// How three ranks end whose time-out is kTimeout. Where a busy machine holds one of them up for so
// long that the others say `late` of it, all begin anew, up to three times.
std::vector<RankEnd> ends_of_three(const RankBody& body, BackendKind backend = BackendKind::kAuto,
                                   const std::string& late = "") {
  std::vector<RankEnd> ends;
  bool is_held_up = true;
  for (int i = 0; i < 3 && is_held_up; ++i) {
    ends = spawn_ranks(3, body, {backend, kTimeout});
    is_held_up = !late.empty() && std::any_of(ends.begin(), ends.end(), [&](const RankEnd& end) {
      return end.output.find(late) != std::string::npos;
    });
  }
  return ends;
}

void all_gather(Comm& comm) {
  at::Tensor out = at::empty({1000 * comm.size()});
  comm.all_gather(out, at::ones({1000})).wait();
}

void check_collectives(const std::shared_ptr<World>& world) {
  const auto mesh = Mesh::for_fsdp(world, 0);
  Comm& gather = mesh->comm(0, Lane::kGather);
  Comm& reduce = mesh->comm(0, Lane::kReduce);
  const int size = world->size();
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    at::Tensor out = at::empty({3 * size}, dtype);
    at::Tensor sum = at::empty({3}, dtype);
    CommWork gathering = gather.all_gather(out, at::full({3}, world->rank() + 1, dtype));
    CommWork reducing = reduce.reduce_scatter(
        sum, at::arange(3 * size, at::kFloat).mul_(world->rank() + 1).to(dtype),
        ReduceOp::kAverage);
    reducing.wait();
    gathering.wait();
    EXPECT_EQ(out[3 * size - 1].item<float>(), size);
    const at::Tensor expected =
        at::arange(3 * world->rank(), 3 * world->rank() + 3, at::kFloat).mul_((size + 1) / 2.0);
    EXPECT_TRUE(at::equal(sum, expected.to(dtype)));
  }
  at::Tensor scalar = at::full({1}, world->rank(), at::kDouble);
  world->control().all_reduce(scalar, ReduceOp::kMax).wait();
  EXPECT_EQ(scalar.item<double>(), size - 1);
  world->control().barrier();
  EXPECT_EQ(gather.counters().all_gathers, 2);
  EXPECT_EQ(gather.counters().all_gather_bytes, (12 + 6) * (size - 1));
}

TEST(Processes, TwoRanksCommunicate) { run_rank_processes(2, check_collectives); }
TEST(Processes, ThreeRanksCommunicate) { run_rank_processes(3, check_collectives); }

TEST(Processes, ANormalEndIsSilentAndQuickWhoeverLeavesFirst) {
  const auto ends = spawn_ranks(3,
                                [](const std::shared_ptr<World>& world) {
                                  world->control().barrier();
                                  std::this_thread::sleep_for(milliseconds(300 * world->rank()));
                                  EXPECT_FALSE(world->failure().failed());
                                },
                                {BackendKind::kAuto, seconds(60)});
  for (const RankEnd& end : ends) {
    EXPECT_EQ(end.exit_code, 0);
    EXPECT_EQ(end.output.find("failed"), std::string::npos) << end.output;
    EXPECT_EQ(end.output.find("rror"), std::string::npos) << end.output;
  }
}

TEST(Processes, AKilledRankIsAnErrorOnTheOthersAtOnce) {
  const auto ends = spawn_ranks(3,
                                [](const std::shared_ptr<World>& world) {
                                  all_gather(world->control());
                                  if (world->rank() == 1) {
                                    raise(SIGKILL);
                                  }
                                  print_error_of([&] { all_gather(world->control()); });
                                  stay_until_told(*world, {2});
                                },
                                {BackendKind::kAuto, seconds(60)});
  EXPECT_EQ(ends[1].signal, SIGKILL);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ends[rank].exit_code, 0) << "signal " << ends[rank].signal << ends[rank].output;
    EXPECT_NE(ends[rank].output.find("all_gather of group control"), std::string::npos)
        << ends[rank].output;
    // On a busy machine nobody but the transport may say who it is.
    EXPECT_TRUE(ends[rank].output.find(
                    "rank 1 does not answer: it has ended, is stopped, or cannot be reached") !=
                    std::string::npos ||
                ends[rank].output.find("the process of rank 1 of the group has ended") !=
                    std::string::npos)
        << ends[rank].output;
    EXPECT_LT(ends[rank].seconds, 30);
  }
}

TEST(Processes, TheDeathOfTheRankThatKeepsTheStoreIsAnErrorToo) {
  const auto ends = spawn_ranks(3,
                                [](const std::shared_ptr<World>& world) {
                                  all_gather(world->control());
                                  if (world->rank() == 0) {
                                    raise(SIGKILL);
                                  }
                                  print_error_of([&] { all_gather(world->control()); });
                                },
                                {BackendKind::kAuto, seconds(60)});
  EXPECT_EQ(ends[0].signal, SIGKILL);
  for (const int rank : {1, 2}) {
    EXPECT_EQ(ends[rank].exit_code, 0) << "signal " << ends[rank].signal << ends[rank].output;
    EXPECT_NE(ends[rank].output.find("all_gather of group control"), std::string::npos)
        << ends[rank].output;
    EXPECT_NE(ends[rank].output.find("rank 0"), std::string::npos) << ends[rank].output;
    EXPECT_LT(ends[rank].seconds, 30);
  }
}

TEST(Processes, AStoppedRankIsATimeOutAndTheOthersEndSoon) {
  const auto ends = ends_of_three([](const std::shared_ptr<World>& world) {
    all_gather(world->control());
    if (world->rank() == 2) {
      raise(SIGSTOP);
    }
    print_error_of([&] { all_gather(world->control()); });
    stay_until_told(*world, {1});
  });
  EXPECT_EQ(ends[2].signal, SIGKILL);
  bool timed_out = false;
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ends[rank].exit_code, 0) << "signal " << ends[rank].signal << ends[rank].output;
    EXPECT_TRUE(is_within_the_time(ends[rank])) << ends[rank].seconds;
    timed_out |= ends[rank].output.find("402 after ") != std::string::npos;
    EXPECT_NE(ends[rank].output.find("rank 2 does not answer"), std::string::npos)
        << ends[rank].output;
  }
  EXPECT_TRUE(timed_out) << ends[0].output << ends[1].output;
}

// Rank 0 keeps the store, which does not answer then.
TEST(Processes, AStoppedRankZeroIsATimeOutThatNamesIt) {
  const auto ends = ends_of_three([](const std::shared_ptr<World>& world) {
    all_gather(world->control());
    if (world->rank() == 0) {
      raise(SIGSTOP);
    }
    print_error_of([&] { all_gather(world->control()); });
  });
  EXPECT_EQ(ends[0].signal, SIGKILL);
  for (const int rank : {1, 2}) {
    EXPECT_EQ(ends[rank].exit_code, 0) << "signal " << ends[rank].signal << ends[rank].output;
    EXPECT_NE(ends[rank].output.find("402 after "), std::string::npos) << ends[rank].output;
    EXPECT_NE(ends[rank].output.find("rank 0 does not answer"), std::string::npos)
        << ends[rank].output;
    EXPECT_TRUE(is_within_the_time(ends[rank])) << ends[rank].seconds;
  }
}

void expect_no_group_with_a_stopped_rank_zero(BackendKind backend) {
  const auto ends = ends_of_three(
      [](const std::shared_ptr<World>& world) {
        const auto mesh = Mesh::for_fsdp(world, 0);
        if (world->rank() == 0) {
          raise(SIGSTOP);
        }
        print_error_of([&] { all_gather(mesh->comm(0, Lane::kReduce)); });
      },
      backend);
  EXPECT_EQ(ends[0].signal, SIGKILL);
  for (const int rank : {1, 2}) {
    EXPECT_EQ(ends[rank].exit_code, 0) << "signal " << ends[rank].signal << ends[rank].output;
    EXPECT_NE(ends[rank].output.find("402 after "), std::string::npos) << ends[rank].output;
    EXPECT_TRUE(is_within_the_time(ends[rank])) << ends[rank].seconds;
  }
}

TEST(Processes, AStoppedRankZeroHoldsNobodyUpWhoMakesAGroupInMemory) {
  expect_no_group_with_a_stopped_rank_zero(BackendKind::kAuto);
}

TEST(Processes, AStoppedRankZeroHoldsNobodyUpWhoMakesAGroupOfGloo) {
  expect_no_group_with_a_stopped_rank_zero(BackendKind::kGloo);
}

TEST(Processes, ARankThatComesAfterTheTimeOutIsNamedAndLifeGoesOn) {
  const auto ends = ends_of_three(
      [](const std::shared_ptr<World>& world) {
        all_gather(world->control());
        while (world->rank() == 2 && !world->failure().failed()) {
          std::this_thread::sleep_for(milliseconds(20));
        }
        print_error_of([&] { all_gather(world->control()); });
        stay_until_told(*world, {1, 2});
        // The process goes on to another world.
        const auto lone = Mesh::create(World::join({BackendKind::kAuto, "", 0, 1}), {1}, {"dp"});
        all_gather(lone->comm(0, Lane::kGather));
      },
      BackendKind::kAuto, "rank 2 does not answer");
  for (const int rank : {0, 1, 2}) {
    EXPECT_EQ(ends[rank].exit_code, 0) << "signal " << ends[rank].signal << ends[rank].output;
    EXPECT_TRUE(is_within_the_time(ends[rank])) << ends[rank].seconds;
    EXPECT_NE(ends[rank].output.find("all_gather of group control"), std::string::npos)
        << ends[rank].output;
    EXPECT_NE(ends[rank].output.find("rank 2 is in no collective"), std::string::npos)
        << ends[rank].output;
  }
}

TEST(Processes, AFailureReachesTheOthersWithItsTextAndFreesThem) {
  const auto ends =
      spawn_ranks(3,
                  [](const std::shared_ptr<World>& world) {
                    const auto note = [](int rank) {
                      return folder_of_ranks() + "/told" + std::to_string(rank);
                    };
                    all_gather(world->control());
                    if (world->rank() != 1) {
                      print_error_of([&] { all_gather(world->control()); });
                      std::ofstream(note(world->rank())) << "";
                      return;
                    }
                    std::this_thread::sleep_for(milliseconds(200));
                    world->failure().publish("rank 1: the data file is gone");
                    // Alive, and with its connections open, until the others have been freed.
                    const auto deadline = Clock::now() + seconds(30);
                    for (const int other : {0, 2}) {
                      while (!std::filesystem::exists(note(other)) && Clock::now() < deadline) {
                        std::this_thread::sleep_for(milliseconds(5));
                      }
                      EXPECT_TRUE(std::filesystem::exists(note(other))) << other;
                    }
                  },
                  {BackendKind::kAuto, seconds(60)});
  EXPECT_EQ(ends[1].exit_code, 0) << ends[1].output;
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ends[rank].exit_code, 0) << "signal " << ends[rank].signal << ends[rank].output;
    EXPECT_NE(
        ends[rank].output.find("given up, since a rank failed: rank 1: the data file is gone"),
        std::string::npos)
        << ends[rank].output;
  }
}

}  // namespace
}  // namespace fsdp2
