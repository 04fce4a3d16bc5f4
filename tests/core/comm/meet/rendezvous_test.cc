// What keeps a rank from the others before it has met them.
#include "core/comm/meet/rendezvous.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/comm/meet/versions.h"
#include "tests/core/base/few_descriptors.h"
#include "tests/support/errors.h"
#include "tests/support/free_port.h"

namespace fsdp2 {
namespace {

Place place_of(int rank) {
  Place place;
  place.rank = rank;
  place.size = 2;
  place.meeting = Meeting::kTcp;
  place.where = "127.0.0.1";
  place.port = 1;  // where nobody listens
  return place;
}

TEST(Rendezvous, TakesMoreFilesThanAProcessMayOpen) {
  constexpr std::chrono::seconds kTimeout{2};
  for (const auto& [rank, files] : {std::pair(0, "15"), std::pair(1, "2")}) {
    const FewDescriptors few(3);
    const auto start = std::chrono::steady_clock::now();
    const std::string message =
        message_of_error([&, rank = rank] { open_store(place_of(rank), kTimeout); }, Code::kIo);
    EXPECT_LT(std::chrono::steady_clock::now() - start, kTimeout);
    EXPECT_EQ(message,
              "rank " + std::to_string(rank) + " may open 0 more files, and needs " + files +
                  " to meet the others (Too many open files): allow it more, as by ulimit -n");
  }
}

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kToCome{60};
constexpr char kOther[] = "libfsdp2 0.0.9 with LibTorch 2.10.0";

// What each rank hears that meets others, and runs the versions; empty: it has met them.
std::vector<std::string> outcomes_of(const std::vector<std::string>& versions) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<int> ranks;
  for (size_t rank = 0; rank < versions.size(); ++rank) {
    ranks.push_back(static_cast<int>(rank));
  }
  std::vector<std::string> outcomes(versions.size());
  std::vector<std::thread> threads;
  for (const int rank : ranks) {
    threads.emplace_back([&, rank] {
      try {
        meet_at(*store, rank, ranks, kToCome, {}, versions[rank]);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kInvalidArgument);
        outcomes[rank] = error.message();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return outcomes;
}

TEST(Rendezvous, RanksOfDifferentVersionsAllSaySoAtOnce) {
  const auto start = Clock::now();
  for (const std::string& outcome : outcomes_of({own_versions(), own_versions(), kOther})) {
    EXPECT_NE(outcome.find("rank 2 runs " + std::string(kOther)), std::string::npos) << outcome;
    EXPECT_TRUE(outcome.find("rank 0 runs " + own_versions()) != std::string::npos ||
                outcome.find("rank 1 runs " + own_versions()) != std::string::npos)
        << outcome;
  }
  EXPECT_LT(Clock::now() - start, kToCome / 2);
}

TEST(Rendezvous, ARankThatDoesNotSayWhatItRunsMeetsTheOthers) {
  for (const std::string& outcome : outcomes_of({own_versions(), "", own_versions()})) {
    EXPECT_EQ(outcome, "");
  }
}

c10::intrusive_ptr<c10d::TCPStore> store_of_another_process() {
  c10d::TCPStoreOptions hosted;
  hosted.port = 0;
  hosted.isServer = true;
  hosted.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", hosted);
}

TEST(Rendezvous, EveryJobComparesVersions) {
  const auto launcher = store_of_another_process();
  c10d::PrefixStore world("world1", launcher);
  world.set("here/1", kOther);
  world.set("versions", kOther);
  Place place = place_of(0);
  place.port = launcher->getPort();
  place.launcher_hosts_store = true;
  EXPECT_EQ(message_of_error([&] { open_store(place, kToCome); }, Code::kInvalidArgument),
            "rank 0 runs " + own_versions() + ", rank 1 runs " + kOther +
                ": install the same versions for all ranks");
}

// Of a rank on a thread of its own: "met", or why it has not met the others.
std::future<std::string> outcome_of(const Place& place) {
  return std::async(std::launch::async, [place]() -> std::string {
    try {
      open_store(place, kToCome);
      return "met";
    } catch (const Error& error) {
      return error.message();
    }
  });
}

void expect_to_meet_rank_0(Place place, std::future<std::string> outcome) {
  place.rank = 0;
  const MeetingPoint met = open_store(place, kToCome);  // kept until the other rank has read it
  EXPECT_EQ(outcome.get(), "met");
}

// As when a job is started again, and the rank 0 of the first one has not ended yet.
TEST(Rendezvous, ARankMeetsTheNextRank0WhereAnEarlierOneEnds) {
  auto earlier = store_of_another_process();
  earlier->add("arrivals/1", 1);
  Place place = place_of(1);
  place.port = earlier->getPort();
  auto outcome = outcome_of(place);
  while (earlier->add("arrivals/1", 0) < 2) {
    std::this_thread::yield();
  }
  earlier.reset();
  expect_to_meet_rank_0(place, std::move(outcome));
}

// As an earlier rank 0 that ends while others connect to it.
TEST(Rendezvous, ARankConnectsAgainWhereTheListenerEndsMeanwhile) {
  const test::FreePort port;
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port.number()));
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(listener, 16), 0);
  Place place = place_of(1);
  place.port = static_cast<uint16_t>(port.number());
  auto outcome = outcome_of(place);
  for (int i = 0; i < 2; ++i) {  // a trial, and the connection to the store
    ::close(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  }
  ::close(listener);
  expect_to_meet_rank_0(place, std::move(outcome));
}

}  // namespace
}  // namespace fsdp2
