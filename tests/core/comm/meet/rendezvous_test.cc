// What keeps a rank from the others before it has met them.
#include "core/comm/meet/rendezvous.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "tests/core/base/few_descriptors.h"
#include "tests/support/errors.h"

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

}  // namespace
}  // namespace fsdp2
