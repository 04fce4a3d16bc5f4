// Runs a test's body once per rank: as threads of the test, or as processes over Gloo.
//
//   run_ranks(4, [](const std::shared_ptr<World>& world) { EXPECT_EQ(world->size(), 4); });
//
// A rank that throws publishes its error, so that the others leave their waits instead of hanging.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/world.h"

namespace fsdp2 {

using RankBody = std::function<void(const std::shared_ptr<World>& world)>;

struct RankOptions {
  BackendKind backend = BackendKind::kAuto;
  std::chrono::milliseconds timeout{60000};
};

// Ranks as threads with one LibTorch thread each (kGloo: Gloo over loopback sockets between them).
// When all have ended, throws the error of the rank that failed first, if any.
void run_ranks(int size, const RankBody& body, const RankOptions& options = {});

// For what ranks are told once the time-out is over, which is a short one. Where a machine is too
// busy for all of them to join and to prepare themselves within it, they begin again with a long
// one. Returns the one that it was. For bodies that do not throw.
std::chrono::milliseconds run_ranks_to_the_time_out(int size, const RankBody& prepare,
                                                    const RankBody& body,
                                                    BackendKind backend = BackendKind::kAuto);

// How a process ended.
struct RankEnd {
  int exit_code = -1;  // 0: well; 1: an expectation failed; 2: the body threw
  int signal = 0;
  std::string output;
  double seconds = -1;  // from having joined the world to having left it, if it came to that
};

// Ranks as processes over Gloo. The test's own program runs again for each
// rank, only with the current test, whose call of spawn_ranks is where it runs the body and ends:
// call it once per test, before all else. A rank that has stopped itself
// is killed when all others have ended.
std::vector<RankEnd> spawn_ranks(int size, const RankBody& body, const RankOptions& options = {});

// In the body of spawn_ranks: a folder that the ranks share, and that goes with them.
std::string folder_of_ranks();

// In the body of spawn_ranks, by ranks that have been told of a failure. Rank 0, which keeps the
// store, stays until `ranks` have been, too: one that stands still meanwhile would hear no more
// than that the store is lost.
void stay_until_told(const World& world, const std::vector<int>& ranks);

// spawn_ranks, expecting that all end well.
void run_rank_processes(int size, const RankBody& body, const RankOptions& options = {});

}  // namespace fsdp2
