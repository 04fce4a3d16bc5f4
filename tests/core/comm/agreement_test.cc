#include "core/comm/agreement.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

TEST(Agreement, EqualTextsPassWithOneAllGather) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    world->control().reset_counters();
    agree(*world, "options", [] { return "seq_len=32\nlayers=4"; });
    EXPECT_EQ(world->control().counters().all_gathers, 1);
    EXPECT_EQ(world->control().counters().all_gather_bytes, 32);
  });
}

TEST(Agreement, TextsThatDifferAreTheSameErrorOnAllRanks) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    const Error error = error_of([&] {
      agree(*world, "options", [&] {
        return std::string("layers=4\n--seq-len=") + (world->rank() == 1 ? "64" : "32");
      });
    });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.message(),
              "options: the ranks differ in --seq-len: rank 0 has 32, rank 1 has 64");
    agree(*world, "options", [] { return ""; });  // the world stays usable
  });
}

TEST(Agreement, NotesAreToldAndNotCompared) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto agree_on = [&](const std::string& lr) {
      const std::string mine = std::to_string(world->rank());
      agree(*world, "options", [&] {
        return "seed=1\x1f"
               "file" +
               mine + "\nlr=" + lr;
      });
    };
    agree_on("1\x1fline" + std::to_string(world->rank()));
    EXPECT_EQ(error_of([&] { agree_on(world->rank() == 0 ? "1" : "2\x1fx.yaml:3 lr"); }).message(),
              "options: the ranks differ in lr: rank 0 has 1, rank 1 has 2 (x.yaml:3 lr)");
  });
}

TEST(Agreement, ALineThatOnlyOneRankHasIsNamed) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    const auto differ_by = [&](const std::string& first, const std::string& others) {
      return error_of([&] {
               agree(*world, "plan", [&] { return world->rank() == 0 ? first : others; });
             })
          .message();
    };
    EXPECT_EQ(differ_by("a=1", "a=1\nb=2"),
              "plan: the ranks differ in b: rank 0 has nothing, rank 1 has 2");
    EXPECT_EQ(differ_by("a=1\nfrozen", "a=1"),
              "plan: the ranks differ in frozen: rank 0 has it, rank 1 has nothing");
    EXPECT_EQ(differ_by("a=1\nb=2", "b=2\na=1"),
              "plan: the ranks differ in rank 0 and rank 1 have the same lines in another order or "
              "number");
  });
}

TEST(Agreement, ARankThatThrowsKeepsItsErrorAndTheOthersLearnIt) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    const Error error = error_of([&] {
      agree(*world, "options", [&]() -> std::string {
        FSDP2_CHECK(world->rank() != 2, Code::kNotFound, "no file model.yaml");
        return "";
      });
    });
    EXPECT_EQ(error.code(), world->rank() == 2 ? Code::kNotFound : Code::kPeerFailed);
    EXPECT_EQ(error.message(), world->rank() == 2 ? "no file model.yaml"
                                                  : "options: rank 2 failed: no file model.yaml");
    agree(*world, "options", [] { return ""; });
  });
}

TEST(Agreement, WhenAllThrowEachKeepsItsOwnError) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    const Error error = error_of([&] {
      agree(*world, "options",
            [&]() -> std::string { fail(Code::kIo, "rank {} cannot read", world->rank()); });
    });
    EXPECT_EQ(error.message(), "rank " + std::to_string(world->rank()) + " cannot read");
  });
}

TEST(Agreement, AllRanksThatThrowAreNamed) {
  run_ranks(3, [](const std::shared_ptr<World>& world) {
    const Error error = error_of([&] {
      agree(*world, "loading", [&]() -> std::string {
        FSDP2_CHECK(world->rank() == 1, Code::kIo, "disk {} is gone", world->rank());
        return "";
      });
    });
    if (world->rank() == 1) {
      EXPECT_EQ(error.code(), Code::kPeerFailed);
      EXPECT_EQ(error.message(),
                "loading: rank 0 failed: disk 0 is gone; rank 2 failed: disk 2 is gone");
    }
  });
}

TEST(Agreement, OfManyThatThrowSomeAreNamedAndTheRestCounted) {
  run_ranks(12, [](const std::shared_ptr<World>& world) {
    const Error error = error_of([&] {
      agree(*world, "loading", [&]() -> std::string {
        FSDP2_CHECK(world->rank() == 0, Code::kIo, "no");
        return "";
      });
    });
    if (world->rank() == 0) {
      EXPECT_NE(error.message().find("; rank 8 failed: no; and 3 more ranks"), std::string::npos)
          << error.message();
    }
  });
}

TEST(Agreement, RanksAtDifferentStepsAreNamed) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const std::string step = world->rank() == 0 ? "mesh" : "shard options";
    const Error error = error_of([&] { agree(*world, step, [] { return ""; }); });
    EXPECT_EQ(error.message(), step +
                                   ": the ranks differ in the step: rank 0 has mesh, rank 1 has "
                                   "shard options");
  });
}

TEST(Agreement, OneRankAgreesWithItselfAndKeepsItsErrors) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    agree(*world, "options", [] { return "a=1"; });
    EXPECT_THROW(agree(*world, "options", []() -> std::string { throw 1; }), int);
  });
}

}  // namespace
}  // namespace fsdp2
