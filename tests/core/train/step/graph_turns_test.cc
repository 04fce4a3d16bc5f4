// Which steps are recorded and replayed.
#include "core/train/step/graph_turns.h"

#include <gtest/gtest.h>

#include <vector>

namespace fsdp2::train {
namespace {

using Turn = GraphTurns::Turn;

constexpr StepKey kShort{1, 2, 3};
constexpr StepKey kLong{1, 2, 4};

std::vector<Turn> turns_of(GraphTurns& turns, const StepKey& key, int steps) {
  std::vector<Turn> all;
  for (int i = 0; i < steps; ++i) {
    all.push_back(turns.next(key));
    if (all.back() == Turn::kRecord) {
      turns.has_recorded(key);
    }
  }
  return all;
}

void record(GraphTurns& turns, const StepKey& key) { turns_of(turns, key, 4); }

TEST(GraphTurns, AKeyIsRecordedAfterItsWarmUpsAndReplayedFromThenOn) {
  GraphTurns turns;
  EXPECT_EQ(turns_of(turns, kShort, 6),
            (std::vector<Turn>{Turn::kRun, Turn::kRun, Turn::kRun, Turn::kRecord, Turn::kReplay,
                               Turn::kReplay}));
}

TEST(GraphTurns, EachKeyHasWarmUpsOfItsOwn) {
  GraphTurns turns;
  record(turns, kShort);
  EXPECT_EQ(turns_of(turns, kLong, 2), (std::vector<Turn>{Turn::kRun, Turn::kRun}));
  EXPECT_EQ(turns.next(kShort), Turn::kReplay);
  EXPECT_EQ(turns_of(turns, kLong, 3),
            (std::vector<Turn>{Turn::kRun, Turn::kRecord, Turn::kReplay}));
}

TEST(GraphTurns, KeysBeyondTheMostRunAsTheyAreWhichIsToldOnce) {
  GraphTurns turns;
  for (size_t i = 0; i < GraphTurns::kMostGraphs; ++i) {
    record(turns, {static_cast<int64_t>(i), 0, 0});
  }
  EXPECT_FALSE(turns.is_newly_full());
  EXPECT_EQ(turns_of(turns, kLong, 6), std::vector<Turn>(6, Turn::kRun));
  EXPECT_TRUE(turns.is_newly_full());
  turns.next(kLong);
  EXPECT_FALSE(turns.is_newly_full());
  EXPECT_EQ(turns.next({0, 0, 0}), Turn::kReplay);
}

TEST(GraphTurns, AKeyThatIsRefusedRunsAsItIsAndOthersAreReplayedAndRecorded) {
  GraphTurns turns;
  record(turns, kShort);
  EXPECT_EQ(turns_of(turns, kLong, 3), std::vector<Turn>(3, Turn::kRun));
  EXPECT_EQ(turns.next(kLong), Turn::kRecord);
  turns.refuse(kLong);
  EXPECT_EQ(turns_of(turns, kLong, 6), std::vector<Turn>(6, Turn::kRun));
  EXPECT_EQ(turns.next(kShort), Turn::kReplay);
  EXPECT_EQ(turns_of(turns, {5, 5, 5}, 5).back(), Turn::kReplay);
  turns.forget();
  EXPECT_EQ(turns_of(turns, kLong, 6), std::vector<Turn>(6, Turn::kRun));
}

TEST(GraphTurns, AfterTheMostRefusalsNoOtherKeyIsTriedAndWhatIsRecordedStays) {
  GraphTurns turns;
  record(turns, kShort);
  for (size_t i = 0; i < GraphTurns::kMostRefusals; ++i) {
    const StepKey key{static_cast<int64_t>(i), 0, 0};
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(turns.next(key), Turn::kRun);
    }
    EXPECT_EQ(turns.next(key), Turn::kRecord);
    turns.refuse(key);
  }
  EXPECT_EQ(turns_of(turns, kLong, 6), std::vector<Turn>(6, Turn::kRun));
  EXPECT_EQ(turns.next(kShort), Turn::kReplay);
  EXPECT_FALSE(turns.has_given_up());
  turns.forget();
  EXPECT_TRUE(turns.has_given_up());
}

TEST(GraphTurns, WhatIsForgottenIsRecordedAnew) {
  GraphTurns turns;
  record(turns, kShort);
  turns.forget();
  EXPECT_EQ(turns_of(turns, kShort, 4),
            (std::vector<Turn>{Turn::kRun, Turn::kRun, Turn::kRun, Turn::kRecord}));
}

// Else a run of lengths that never come again would hold a count for each.
TEST(GraphTurns, ShapesThatNeverComeAgainDoNotKeepOthersFromBeingRecorded) {
  GraphTurns turns;
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(turns.next({i, i, i}), Turn::kRun);
  }
  EXPECT_EQ(turns_of(turns, kShort, 5).back(), Turn::kReplay);
}

}  // namespace
}  // namespace fsdp2::train
