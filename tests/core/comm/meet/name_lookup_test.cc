// What ranks ask the name service, and what becomes of them if it does not answer.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/comm/meet/rendezvous.h"
#include "core/comm/world.h"
#include "tests/support/free_port.h"

namespace {

constexpr char kSlowName[] = "slow.invalid";
constexpr char kFleetingName[] = "fleeting.invalid";  // has an address when first asked for

std::string name_of_machine() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::atomic<int> asked_for_machine{0};
std::atomic<int> asked_for_fleeting{0};

// A name server that nobody reaches: an answer takes long, but for the test to end it ends.
class SlowAnswer {
 public:
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    over_.wait_for(lock, std::chrono::seconds(20), [this] { return is_over_; });
  }
  void end() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
    over_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
};

SlowAnswer& slow_answer() {
  static auto* answer = new SlowAnswer;  // threads that wait for it may outlive the test
  return *answer;
}

}  // namespace

// In place of the C library's, also for LibTorch.
extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* node,
                                                                  const char* service,
                                                                  const addrinfo* wanted,
                                                                  addrinfo** found) {
  static const auto original =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (node != nullptr && std::string(node) == kSlowName) {
    slow_answer().wait();
    return EAI_AGAIN;
  }
  if (node != nullptr && std::string(node) == kFleetingName) {
    return asked_for_fleeting++ == 0 ? original("127.0.0.1", service, wanted, found) : EAI_NONAME;
  }
  asked_for_machine += node != nullptr && node == name_of_machine() ? 1 : 0;
  return original(node, service, wanted, found);
}

namespace fsdp2 {
namespace {

using Clock = std::chrono::steady_clock;

// Debian gives a machine's name the address 127.0.1.1, which no other machine reaches.
TEST(NameLookup, GroupsOverGlooDoNotAskForTheNameOfTheMachine) {
  const std::string url = "file://" + testing::TempDir() + "/met" + std::to_string(getpid());
  const auto join = [&](int rank) {
    World::join({BackendKind::kGloo, url, rank, 2, rank, std::chrono::seconds(60)})
        ->control()
        .barrier();
  };
  std::thread other([&] { join(1); });
  join(0);
  other.join();
  EXPECT_EQ(asked_for_machine, 0);
}

TEST(NameLookup, IsDoneOnceForAllConnectionsToTheStore) {
  c10d::TCPStoreOptions hosted;
  hosted.port = 0;
  hosted.isServer = true;
  hosted.waitWorkers = false;
  const auto launcher = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", hosted);
  Place place;
  place.meeting = Meeting::kTcp;
  place.where = kFleetingName;
  place.port = launcher->getPort();
  place.launcher_hosts_store = true;
  const auto store = open_store(place, std::chrono::seconds(60)).store;
  EXPECT_EQ(store->clone()->add("key", 1), 1);
  EXPECT_EQ(asked_for_fleeting, 1);
}

TEST(NameLookup, ThatDoesNotEndHoldsNoRankUpBeyondTheTimeOut) {
  constexpr std::chrono::milliseconds kTimeout{1500};
  const test::FreePort port;
  const std::string url = std::string("tcp://") + kSlowName + ":" + port.text();
  for (const int rank : {1, 0}) {
    const auto start = Clock::now();
    try {
      World::join({BackendKind::kAuto, url, rank, 2, rank, kTimeout});
      ADD_FAILURE() << "rank " << rank << ": no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kTimeout) << error.message();
      EXPECT_NE(error.message().find("does the name server answer?"), std::string::npos)
          << error.message();
    }
    EXPECT_LT(Clock::now() - start, kTimeout + std::chrono::seconds(5)) << "rank " << rank;
  }
  slow_answer().end();
}

}  // namespace
}  // namespace fsdp2
