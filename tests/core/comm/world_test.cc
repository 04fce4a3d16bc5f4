// Joining: by threads, by TCP and by file, and all that can go wrong on the way.
#include "core/comm/world.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/comm/meet/place.h"
#include "core/comm/meet/rendezvous.h"
#include "tests/support/errors.h"
#include "tests/support/free_port.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using std::chrono::milliseconds;

// For ranks that come, on a machine that is busy, and for those that wait in vain for another.
constexpr milliseconds kTimeToCome{7000};

// Where ranks meet that are given this port.
std::string url_of(const test::FreePort& port) { return "tcp://127.0.0.1:" + port.text(); }

// Runs each call in a thread of its own.
void together(const std::vector<std::function<void()>>& calls) {
  std::vector<std::thread> threads;
  for (const auto& call : calls) {
    threads.emplace_back(call);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

WorldOptions options(const std::string& rendezvous, int rank, int world_size,
                     milliseconds timeout = milliseconds(60000)) {
  WorldOptions result;
  result.rendezvous = rendezvous;
  result.rank = rank;
  result.world_size = world_size;
  result.timeout = timeout;
  return result;
}

TEST(World, OneRankNeedsNoLauncher) {
  const auto world = World::join({});
  EXPECT_EQ(world->rank(), 0);
  EXPECT_EQ(world->size(), 1);
  EXPECT_EQ(world->local_rank(), 0);
  EXPECT_EQ(world->backend(at::kCPU), BackendKind::kGloo);
  world->control().barrier();
  world->failure().publish("first");
  world->failure().publish("second");
  EXPECT_EQ(world->failure().text(), "first");
  EXPECT_EQ(error_of([&] { world->control().barrier(); }).message(),
            "barrier of group control on rank 0 given up, since a rank failed: first");
}

TEST(World, BackendsThatAreNotThereAreNamed) {
  WorldOptions asked;
  asked = options("file:///tmp/x", 0, 2);
  asked.backend = BackendKind::kThread;
  EXPECT_EQ(error_of([&] { World::join(asked); }).message(),
            "backend thread: its ranks meet at thread://name, nowhere else");
  EXPECT_EQ(error_of([&] { World::join(options("", 0, 1, milliseconds(0))); }).message(),
            "timeout is 0 ms: expected more than 0");
}

TEST(World, ThreadsThatDoNotComeAreNamed) {
  const Error error =
      error_of([] { World::join(options("thread://missing", 1, 3, milliseconds(50))); });
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_EQ(error.message(), "thread://missing: 1 of 3 ranks came within 0.1 s, missing: 0, 2");
}

// Why a rank is refused by one that is there: until that one has come, there is nobody to refuse
// it.
std::string refusal_of(int rank, int world_size) {
  for (;;) {
    const Error error =
        error_of([&] { World::join(options("thread://odd", rank, world_size, milliseconds(1))); });
    if (error.code() != Code::kTimeout) {
      return error.message();
    }
  }
}

TEST(World, ThreadsThatContradictEachOtherAreNamed) {
  std::shared_ptr<World> first;
  const auto join_first = [&] { first = World::join(options("thread://odd", 0, 2)); };
  together({[&] {
              // Is refused itself while the other one waits for it.
              while (error_of(join_first).code() == Code::kInvalidArgument) {
              }
            },
            [] {
              EXPECT_EQ(refusal_of(1, 3),
                        "thread://odd: rank 1 says that there are 3 ranks, another one said 2");
              EXPECT_EQ(refusal_of(0, 2), "thread://odd: rank 0 is there already");
              EXPECT_EQ(World::join(options("thread://odd", 1, 2))->rank(), 1);
            }});
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->rank(), 0);
}

TEST(World, ANameOfThreadsIsFreeAgainOnceAllHaveCome) {
  for (int time = 0; time < 3; ++time) {
    std::vector<std::shared_ptr<World>> worlds(2);
    together({[&] { worlds[0] = World::join(options("thread://again", 0, 2)); },
              [&] { worlds[1] = World::join(options("thread://again", 1, 2)); }});
    EXPECT_EQ(worlds[1]->rank(), 1);
    EXPECT_EQ(worlds[1]->backend(at::kCPU), BackendKind::kThread);
  }
}

TEST(World, MeetsByTcp) {
  const test::FreePort port;
  std::mutex mutex;
  int sum = 0;
  std::vector<std::function<void()>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto world = World::join(options(url_of(port), rank, 3));
      at::Tensor one = at::ones({1});
      world->control().all_reduce(one, ReduceOp::kSum).wait();
      const std::lock_guard<std::mutex> lock(mutex);
      sum += one.item<int>();
    });
  }
  together(ranks);
  EXPECT_EQ(sum, 9);
}

TEST(World, APortInUseIsNamed) {
  const test::FreePort port;
  port.listen();
  const Error error = error_of([&] { World::join(options(url_of(port), 0, 2)); });
  EXPECT_EQ(error.code(), Code::kIo);
  EXPECT_EQ(error.message(),
            "rank 0 cannot listen on port " + port.text() +
                ": it is in use; set MASTER_PORT to a free one, or end the program that holds it");
}

TEST(World, RanksMissingAtATcpStoreAreNamed) {
  const test::FreePort port;
  const Error error =
      error_of([&] { World::join(options(url_of(port), 0, 3, milliseconds(1000))); });
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_EQ(error.message(), "1 of 3 ranks came within 1.0 s, missing: 1, 2");
}

// Rank 0 gives up first, and takes the store with it.
TEST(World, ARankMissingAtATcpStoreIsNamedByAllOthers) {
  const test::FreePort port;
  const auto rank = [&](int number, milliseconds timeout) {
    const Error error = error_of([&] { World::join(options(url_of(port), number, 3, timeout)); });
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_NE(error.message().find("missing: 2"), std::string::npos) << error.message();
  };
  together({[&] { rank(0, kTimeToCome); }, [&] { rank(1, 3 * kTimeToCome); }});
}

TEST(World, RankZeroMissingAtATcpStoreIsNamed) {
  const test::FreePort port;
  const Error error =
      error_of([&] { World::join(options(url_of(port), 1, 2, milliseconds(1000))); });
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_EQ(error.message().substr(0, 27), "rank 1 found no rank 0 at 1");
}

TEST(World, AServiceThatNeverAnswersIsATimeOut) {
  const test::FreePort port;
  port.listen();
  const auto start = std::chrono::steady_clock::now();
  const Error error =
      error_of([&] { World::join(options(url_of(port), 1, 2, milliseconds(1000))); });
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_EQ(error.message(),
            "127.0.0.1:" + port.text() +
                " accepts connections but does not answer as a store: rank 0 is stopped, or "
                "another service listens there");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(World, ARankThatCameTwiceIsNamed) {
  const test::FreePort port;
  std::mutex mutex;
  int named = 0;
  const auto rank = [&](int number) {
    const Error error =
        error_of([&] { World::join(options(url_of(port), number, 3, kTimeToCome)); });
    const std::lock_guard<std::mutex> lock(mutex);
    named += error.message().find(
                 "missing: 2; rank 1 came twice: do two processes have the same "
                 "RANK?") != std::string::npos;
  };
  together({[&] { rank(0); }, [&] { rank(1); }, [&] { rank(1); }});
  EXPECT_GE(named, 1);
}

TEST(World, RanksThatCountDifferentlyAreToldAtOnce) {
  const test::FreePort port;
  const auto start = std::chrono::steady_clock::now();
  const auto rank = [&](int number, int size) {
    const Error error =
        error_of([&] { World::join(options(url_of(port), number, size, milliseconds(60000))); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find("is WORLD_SIZE the same for all of them?"), std::string::npos)
        << error.message();
  };
  together({[&] { rank(0, 3); }, [&] { rank(1, 2); }});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

// How many of ranks 0 and 1 have read why they give up once rank 0 leaves, which may keep the
// store. Rank 1 stands still for a moment, as on a machine that is busy.
int64_t readers_at_the_end(size_t ranks_that_rank_1_counts) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::promise<void> has_come;
  int64_t readers = 0;
  const auto give_up = [&](int rank, size_t ranks, const std::function<void()>& look) {
    std::vector<int> all(ranks);
    std::iota(all.begin(), all.end(), 0);
    const Code code = error_of([&] { meet_at(*store, rank, all, milliseconds(500), look); }).code();
    EXPECT_EQ(code, ranks_that_rank_1_counts == 3 ? Code::kTimeout : Code::kInvalidArgument);
  };
  together({[&] {
              has_come.get_future().wait();
              give_up(0, 3, {});
              readers = store->add("read", 0);
            },
            [&] {
              bool is_first = true;
              give_up(1, ranks_that_rank_1_counts, [&] {
                if (std::exchange(is_first, false)) {
                  has_come.set_value();
                  std::this_thread::sleep_for(milliseconds(2200));
                }
              });
            }});
  return readers;
}

TEST(World, ARankThatGivesUpStaysUntilTheOthersHaveReadWhy) {
  for (const size_t ranks : {3, 4}) {
    int64_t readers = 0;
    for (int i = 0; i < 5 && readers < 2; ++i) {  // a busy machine holds rank 1 up, too
      readers = readers_at_the_end(ranks);
    }
    EXPECT_EQ(readers, 2) << ranks;
  }
}

TEST(World, AStoreOfTheLauncherServesOneWorldAfterTheOther) {
  c10d::TCPStoreOptions hosted;
  hosted.port = 0;
  hosted.isServer = true;
  hosted.waitWorkers = false;
  c10d::TCPStore agent("127.0.0.1", hosted);
  const auto join = [&](int rank) {
    Place place;
    place.rank = rank;
    place.size = 2;
    place.meeting = Meeting::kTcp;
    place.where = "127.0.0.1";
    place.port = agent.getPort();
    place.launcher_hosts_store = true;
    place.key_prefix = "attempt0";
    const auto store = open_store(place, milliseconds(60000)).store;
    const auto notice = FailureNotice::over_store(store, rank, 2, milliseconds(60000));
    EXPECT_FALSE(notice->failed());
    c10d::PrefixStore again("again", store);
    meet_at(again, rank, {0, 1}, milliseconds(60000));
    if (rank == 1) {
      notice->publish("over");  // must not be seen by the next world
    }
  };
  for (int time = 0; time < 2; ++time) {
    together({[&] { join(0); }, [&] { join(1); }});
  }
}

TEST(World, AGroupThatARankDoesNotMakeNamesIt) {
  run_ranks(3,
            [](const std::shared_ptr<World>& world) {
              if (world->rank() == 1) {
                return;
              }
              const Error error = error_of([&] { world->make_comm("extra", {0, 1, 2}, at::kCPU); });
              EXPECT_TRUE(error.code() == Code::kTimeout || error.code() == Code::kPeerFailed);
              EXPECT_NE(error.message().find("2 of 3 ranks came within 7.0 s, missing: 1"),
                        std::string::npos)
                  << error.message();
            },
            {BackendKind::kGloo, kTimeToCome});
}

TEST(World, MembersOfAGroupMustFit) {
  const auto world = World::join({});
  EXPECT_EQ(error_of([&] { world->make_comm("pair", {0, 1}, at::kCPU); }).message(),
            "group pair: members (0, 1) must be different ranks of 1 and hold this one, 0");
  EXPECT_EQ(error_of([&] { world->make_comm("none", {}, at::kCPU); }).code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace fsdp2
