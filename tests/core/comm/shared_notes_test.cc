#include "core/comm/shared_notes.h"

#include <gtest/gtest.h>

#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

TEST(SharedNotes, AreSeenByAllRanks) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    SharedNotes notes(*world, "testing");
    if (world->rank() == 0) {
      EXPECT_FALSE(notes.has("text"));
      notes.put("text", "it is");
    }
    world->control().barrier();
    EXPECT_TRUE(notes.has("text"));
    EXPECT_EQ(notes.get("text"), "it is");
    world->control().barrier();
    if (world->rank() == 1) {
      notes.remove("text");
    }
    world->control().barrier();
    EXPECT_FALSE(notes.has("text"));
  });
}

TEST(SharedNotes, CountForAllRanks) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    SharedNotes notes(*world, "testing");
    notes.count("reads", 2);
    world->control().barrier();
    EXPECT_EQ(notes.count("reads", 0), 6);
  });
}

}  // namespace
}  // namespace fsdp2
