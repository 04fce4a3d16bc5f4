// Ranks that cannot reach each other while they make a group.
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <future>
#include <memory>

#include "core/base/error.h"
#include "core/comm/world.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr seconds kForever{30};  // of a transport that nobody connects to, for the test to end

// The first of two ranks waits to be connected to, as Gloo does, and the second cannot connect.
void add_transport_that_fails(World& world, const std::shared_future<void>& over) {
  const at::Device device(at::kXLA, static_cast<c10::DeviceIndex>(world.rank()));
  const auto connect = [over](const std::string&, int rank,
                              int) -> c10::intrusive_ptr<c10d::Backend> {
    if (rank == 0) {
      over.wait_for(kForever);
    }
    fail(Code::kComm, "no route to rank 0");
  };
  world.add_transport(device, connect, CollectiveOrder::kOnHost);
}

TEST(Connect, WhoWaitsForARankThatCannotComeHearsOfItAtOnce) {
  std::promise<void> over;
  const std::shared_future<void> is_over = over.get_future().share();
  run_ranks(2,
            [&](const std::shared_ptr<World>& world) {
              add_transport_that_fails(*world, is_over);
              const auto start = Clock::now();
              const Error error =
                  error_of([&] { world->make_comm("pair", {0, 1}, at::Device(at::kXLA)); });
              EXPECT_LT(Clock::now() - start, kForever / 2);
              EXPECT_NE(error.message().find("no route to rank 0"), std::string::npos)
                  << error.message();
              EXPECT_EQ(error.code(), world->rank() == 0 ? Code::kPeerFailed : Code::kComm);
            },
            {BackendKind::kGloo});
  over.set_value();
}

}  // namespace
}  // namespace fsdp2
