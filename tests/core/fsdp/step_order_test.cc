// The order of a step by itself, event for event: no ranks, no tensors, literal expectations.
#include "core/fsdp/step_order.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/core/fsdp/ordered_steps.h"

namespace fsdp2::fsdp {
namespace {

TEST(StepOrder, ForwardGathersOneAheadAndKeepsTheRoot) {
  Steps steps({"", "a", "b"});
  steps.begin_forward();
  EXPECT_EQ(steps.enter(0), "gather root, wait root, gather a");
  EXPECT_EQ(steps.enter(1), "wait a, gather b");
  EXPECT_EQ(steps.leave(1), "free a");
  EXPECT_EQ(steps.enter(2), "wait b");
  EXPECT_EQ(steps.leave(2), "free b");
  EXPECT_EQ(steps.leave(0), "");
  EXPECT_EQ(steps.end_forward(), "");
}

TEST(StepOrder, BackwardGathersInReverseAndReducesOneAtATime) {
  Steps steps({"", "a", "b"});
  steps.forward({1, 2});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads, kAllGrads});
  EXPECT_EQ(steps.enter_backward(0), "gather b");
  EXPECT_EQ(steps.enter_backward(2), "wait b, gather a");
  EXPECT_EQ(steps.gradients_final(2), "free b, reduce b");
  EXPECT_EQ(steps.enter_backward(1), "wait a");
  EXPECT_EQ(steps.gradients_final(1), "free a, finish b, reduce a");
  EXPECT_EQ(steps.gradients_final(0), "free root, finish a, reduce root");
  EXPECT_EQ(steps.end_backward(), "");
  EXPECT_EQ(steps.finish_step(), "finish root");
}

TEST(StepOrder, WithoutPrefetchAUnitIsGatheredAsItIsEntered) {
  Steps steps({"", "a", "b"}, {Schedule::kAgreed, 0});
  steps.begin_forward();
  EXPECT_EQ(steps.enter(0), "gather root, wait root");
  EXPECT_EQ(steps.enter(1), "gather a, wait a");
  EXPECT_EQ(steps.leave(1), "free a");
  EXPECT_EQ(steps.enter(2), "gather b, wait b");
}

TEST(StepOrder, AListReachesFurtherAheadInTheAgreedOrder) {
  Steps steps({"", "a", "b", "c"});
  steps.begin_forward();
  EXPECT_EQ(steps.enter(0, {3}), "gather root, wait root, gather a, gather b, gather c");
  steps.order.reset();
  steps.forward({1, 2, 3});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads, kAllGrads, kAllGrads});
  EXPECT_EQ(steps.enter_backward(0, {2}), "gather c, gather b");
}

TEST(StepOrder, BackwardMeetsParentsFirstAndSiblingsInReverse) {
  const Steps steps({"", "a", "a.x", "a.y", "b"});
  EXPECT_EQ(steps.order.backward_order(), (std::vector<size_t>{0, 4, 1, 3, 2}));
}

TEST(StepOrder, ReductionsWaitForThoseBehindThem) {
  Steps steps({"", "a", "b"});
  steps.forward({1, 2});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads, kAllGrads});
  steps.enter_backward(0);
  steps.enter_backward(2);
  steps.enter_backward(1);
  EXPECT_EQ(steps.gradients_final(0), "free root");
  EXPECT_EQ(steps.gradients_final(1), "free a");
  EXPECT_EQ(steps.gradients_final(2),
            "free b, reduce b, finish b, reduce a, finish a, reduce root");
}

// Other ranks may use it, so it takes its place in every collective.
TEST(StepOrder, AUnitThatIsNotUsedIsGatheredAndReducedLikeTheOthers) {
  Steps steps({"", "a", "b"});
  steps.begin_forward();
  steps.enter(0);
  EXPECT_EQ(steps.enter(2), "gather b, wait b");
  steps.leave(2);
  steps.leave(0);
  EXPECT_EQ(steps.end_forward(), "free a");
  steps.order.begin_backward(true, {kAllGrads, kNoGrads, kAllGrads});
  EXPECT_EQ(steps.enter_backward(0), "gather b");
  EXPECT_EQ(steps.enter_backward(2), "wait b, gather a");
  EXPECT_EQ(steps.gradients_final(2), "free b, reduce b, finish b, reduce a");
  EXPECT_EQ(steps.gradients_final(0), "free root, finish a, reduce root");
  EXPECT_EQ(steps.end_backward(), "free a");
}

// The ranks that do use the unit may join the reduction only after its gather.
TEST(StepOrder, AllIsGatheredBeforeAReductionIsWaitedForIfAUnitIsNotUsed) {
  Steps steps({"", "a", "b"}, {Schedule::kAgreed, 0});
  steps.forward({2});
  steps.order.begin_backward(true, {kAllGrads, kNoGrads, kAllGrads});
  steps.enter_backward(0);
  EXPECT_EQ(steps.enter_backward(2), "gather b, wait b");
  EXPECT_EQ(steps.gradients_final(2), "free b, reduce b, gather a, finish b, reduce a");
}

TEST(StepOrder, AUnitWithFrozenParametersIsFreedWhenTheOneBeforeItBegins) {
  Steps steps({"", "a", "b"}, {Schedule::kAgreed, 0});
  steps.forward({1, 2});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads, kSomeGrads});
  steps.enter_backward(0);
  steps.enter_backward(2);
  EXPECT_EQ(steps.gradients_final(2), "reduce b");
  EXPECT_EQ(steps.enter_backward(1), "free b, gather a, wait a");
}

TEST(StepOrder, SlicesAreCutAfterForwardAndGatheredInBackward) {
  Steps steps({"", "a"}, {Schedule::kAgreed, 0}, ReshardAfterForward::kSmaller);
  steps.begin_forward();
  steps.enter(0);
  steps.enter(1);
  EXPECT_EQ(steps.leave(1), "slice a");
  EXPECT_EQ(steps.leave(0), "slice root");
  EXPECT_EQ(steps.end_forward(), "");
  steps.order.begin_backward(true, {kAllGrads, kAllGrads});
  EXPECT_EQ(steps.enter_backward(0), "gather root, wait root");
  EXPECT_EQ(steps.enter_backward(1), "gather a, wait a");
}

TEST(StepOrder, EachForwardCutsAnUnusedUnitToSlices) {
  Steps steps({"", "a"}, {Schedule::kAgreed, 0}, ReshardAfterForward::kSmaller);
  for (int forward = 0; forward < 2; ++forward) {
    steps.begin_forward();
    steps.enter(0);
    steps.leave(0);
    EXPECT_EQ(steps.end_forward(), "gather a, wait a, slice a");
  }
}

TEST(StepOrder, ASettingGoesBeforeThePolicyAtTheNextEvent) {
  Steps steps({"", "a"});
  steps.begin_forward();
  steps.enter(0);
  steps.enter(1);
  steps.settings[0].reshard_after_forward = true;
  steps.settings[1].reshard_after_forward = false;
  EXPECT_EQ(steps.leave(1), "");
  EXPECT_EQ(steps.leave(0), "free root");
}

// As PyTorch's: what is left does not depend on whether a backward may follow.
TEST(StepOrder, WhatAForwardKeepsServesTheNextOnes) {
  Steps steps({"", "a"}, {}, ReshardAfterForward::kNever);
  steps.begin_forward();
  EXPECT_EQ(steps.enter(0), "gather root, wait root, gather a");
  EXPECT_EQ(steps.enter(1), "wait a");
  EXPECT_EQ(steps.leave(1, /*for_backward=*/false), "");
  EXPECT_EQ(steps.leave(0, /*for_backward=*/false), "");
  EXPECT_EQ(steps.end_forward(), "");
  for (int forward = 0; forward < 2; ++forward) {
    steps.begin_forward();
    EXPECT_EQ(steps.enter(0), "");
    EXPECT_EQ(steps.enter(1), "");
    EXPECT_EQ(steps.leave(1), "");
    EXPECT_EQ(steps.leave(0), "");
    EXPECT_EQ(steps.end_forward(), "");
  }
}

TEST(StepOrder, AUnitWithModulesToComeIsKeptUntilTheForwardEnds) {
  Steps steps({"", "a"});
  steps.begin_forward();
  steps.enter(0);
  steps.enter(1);
  EXPECT_EQ(steps.text(steps.order.leave_forward(1, /*more_to_come=*/true, true)), "");
  steps.leave(0);
  EXPECT_EQ(steps.end_forward(), "free a");
}

TEST(StepOrder, NewShardsFreeWhatForwardsKeptAndWhatWasUnshardedByHand) {
  Steps steps({"", "a", "b"}, {}, ReshardAfterForward::kNever);
  steps.forward({1, 2});
  EXPECT_EQ(steps.text(steps.order.reshard(1)), "free a");
  EXPECT_EQ(steps.text(steps.order.unshard(1)), "gather a, wait a");
  EXPECT_EQ(steps.text(steps.order.shards_changed()), "free root, free a, free b");
  EXPECT_EQ(steps.text(steps.order.shards_changed()), "");
}

TEST(StepOrder, OnUseGathersWhatIsUsedAndTheUnitBeforeItInBackward) {
  Steps steps({"", "a", "b", "c"}, {Schedule::kOnUse, 1}, ReshardAfterForward::kAlways);
  steps.begin_forward();
  EXPECT_EQ(steps.enter(0), "gather root, wait root");
  EXPECT_EQ(steps.enter(1), "gather a, wait a");
  EXPECT_EQ(steps.leave(1), "free a");
  EXPECT_EQ(steps.enter(3), "gather c, wait c");
  EXPECT_EQ(steps.leave(3), "free c");
  const size_t place = steps.order.last_place();
  EXPECT_EQ(steps.leave(0), "free root");
  EXPECT_EQ(steps.end_forward(), "");
  steps.order.begin_backward(true, {kAllGrads, kAllGrads, kNoGrads, kAllGrads});
  EXPECT_EQ(steps.text(steps.order.enter_backward(3, place, {})), "gather c, wait c, gather a");
  EXPECT_EQ(steps.gradients_final(3), "free c, reduce c");
  EXPECT_EQ(steps.gradients_final(1), "free a, finish c, reduce a");
}

TEST(StepOrder, OnUseReducesAtTheEndWhatAnEarlierBackwardHasLeft) {
  Steps steps({"", "a", "b"}, {Schedule::kOnUse, 1});
  steps.order.begin_backward(true, {kAllGrads, kNoGrads, kNoGrads});
  steps.gradients_final(0);
  EXPECT_EQ(steps.text(steps.order.end_backward({false, true, false}, true)),
            "finish root, reduce a");
}

TEST(StepOrder, WithoutGradientSyncGradientsAreKeptAndNothingIsWaitedFor) {
  Steps steps({"", "a"});
  steps.settings[1].requires_gradient_sync = false;
  steps.forward({1});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads});
  steps.enter_backward(0);
  steps.enter_backward(1);
  EXPECT_EQ(steps.gradients_final(1), "free a, accumulate a");
  EXPECT_EQ(steps.gradients_final(0), "free root, reduce root");
}

TEST(StepOrder, AReductionStaysUnderWayWhileMoreBackwardsFollow) {
  Steps steps({"", "a"});
  steps.forward({1});
  for (const char* const first : {"free a, reduce a", "free a, finish root, reduce a"}) {
    steps.order.begin_backward(true, {kAllGrads, kAllGrads});
    steps.enter_backward(0);
    steps.enter_backward(1);
    EXPECT_EQ(steps.gradients_final(1), first);
    steps.gradients_final(0);
    steps.end_backward(/*last=*/false);
  }
  EXPECT_EQ(steps.text(steps.order.finish_reduction()), "finish root");
  EXPECT_EQ(steps.text(steps.order.finish_reduction()), "");
}

// The order of PyTorch 2.11, seen with hooks on its unshard and post_backward.
TEST(StepOrder, TwoForwardsBeforeABackwardAreGoneThroughOneAfterTheOther) {
  for (const Schedule schedule : {Schedule::kAgreed, Schedule::kOnUse}) {
    Steps steps({"", "a", "b"}, {schedule, 1}, ReshardAfterForward::kAlways);
    steps.forward({1, 2});
    steps.forward({1, 2});
    steps.order.begin_backward(true, {kAllGrads, kAllGrads, kAllGrads});
    EXPECT_EQ(steps.enter_backward(0), "gather root, wait root, gather b");
    EXPECT_EQ(steps.enter_backward(2), "wait b, gather a");
    EXPECT_EQ(steps.enter_backward(1), "free b, leave b, wait a");
    EXPECT_EQ(steps.enter_earlier_backward(0), "free a, leave a, gather b");
    EXPECT_EQ(steps.enter_earlier_backward(2), "wait b, gather a");
    EXPECT_EQ(steps.gradients_final(2), "free b, reduce b");
    EXPECT_EQ(steps.enter_earlier_backward(1), "wait a");
    EXPECT_EQ(steps.gradients_final(1), "free a, finish b, reduce a");
    EXPECT_EQ(steps.gradients_final(0), "free root, finish a, reduce root");
    EXPECT_EQ(steps.end_backward(), "");
  }
}

// Other ranks may use them, in either forward.
TEST(StepOrder, EachOfSeveralForwardsGathersEveryUnitWhetherItIsUsedOrNot) {
  Steps steps({"", "a", "b"}, {Schedule::kAgreed, 0}, ReshardAfterForward::kAlways);
  steps.forward({1});
  steps.forward({2});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads, kAllGrads});
  EXPECT_EQ(steps.enter_backward(0), "gather root, wait root");
  EXPECT_EQ(steps.enter_backward(2), "gather b, wait b");
  EXPECT_EQ(steps.gradients_final(2), "free b");  // it would wait where others gather
  EXPECT_EQ(steps.enter_earlier_backward(0), "gather a, free a");
  EXPECT_EQ(steps.enter_backward(1), "gather b, gather a, wait a");
  EXPECT_EQ(steps.gradients_final(1), "free a, reduce b, finish b, reduce a");
  EXPECT_EQ(steps.gradients_final(0), "free root, finish a, reduce root");
  EXPECT_EQ(steps.end_backward(), "free b");
}

// PyTorch's: a, the last that the first backward gathers, has b gathered before it, which ran just
// before in the first forward.
TEST(StepOrder, OnUseAUnitGatheredAheadStaysForTheNextBackward) {
  for (const bool last : {false, true}) {
    Steps steps({"a", "b"}, {Schedule::kOnUse, 1});
    for (int forward = 0; forward < 2; ++forward) {
      steps.begin_forward();
      for (const size_t unit : {0, 1}) {
        steps.enter(unit);
        steps.leave(unit);
      }
      steps.end_forward();
    }
    steps.order.begin_backward(true, {kAllGrads, kAllGrads});
    EXPECT_EQ(steps.enter_backward(1), "gather b, wait b, gather a");
    EXPECT_EQ(steps.gradients_final(1), "free b, reduce b");
    EXPECT_EQ(steps.enter_backward(0), "wait a, gather b");
    EXPECT_EQ(steps.gradients_final(0), "free a, finish b, reduce a");
    EXPECT_EQ(steps.end_backward(last), last ? "free b" : "");
    if (!last) {
      steps.order.begin_backward(true, {kAllGrads, kAllGrads});
      EXPECT_EQ(steps.enter_earlier_backward(1), "wait b, gather a");
    }
  }
}

constexpr StepOrder::Options kOneCommunicator = {Schedule::kAgreed, 1, true};

TEST(StepOrder, WithOneCommunicatorARankThatUsesAllDoesWhatItDoesWithTwo) {
  std::vector<std::string> orders;
  for (const bool one_communicator : {false, true}) {
    Steps steps({"", "a", "b"}, {Schedule::kAgreed, 1, one_communicator});
    steps.forward({1, 2});
    steps.order.begin_backward(true, {kAllGrads, kAllGrads, kAllGrads});
    orders.push_back(steps.enter_backward(0) + "; " + steps.enter_backward(2) + "; " +
                     steps.gradients_final(2) + "; " + steps.enter_backward(1) + "; " +
                     steps.gradients_final(1) + "; " + steps.gradients_final(0) + "; " +
                     steps.end_backward() + "; " + steps.finish_step());
  }
  EXPECT_EQ(orders[1], orders[0]);
}

// The collectives of a step in which a rank uses some of the units a to d, in that order, without
// the waits.
std::string collectives_of(unsigned used_bits, int prefetch) {
  Steps steps({"", "a", "b", "c", "d"}, {Schedule::kAgreed, prefetch, true});
  std::vector<size_t> used;
  std::vector<ExpectedGradients> expected(5, kNoGrads);
  expected[0] = kAllGrads;
  for (size_t unit = 1; unit < 5; ++unit) {
    if ((used_bits >> (unit - 1) & 1U) != 0) {
      used.push_back(unit);
      expected[unit] = kAllGrads;
    }
  }
  std::string begun;
  const auto add = [&](const StepOrder::Actions& actions) {
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kGather || action.kind == ActionKind::kReduce) {
        begun += (begun.empty() ? "" : ", ") + steps.text({action});
      }
    }
  };
  steps.forward(used);
  steps.order.begin_backward(true, expected);
  add(steps.order.enter_backward(0, steps.order.last_place(), {}));
  for (size_t i = used.size(); i-- > 0;) {
    add(steps.order.enter_backward(used[i], i, {}));
    add(steps.order.gradients_final(used[i]));
  }
  add(steps.order.gradients_final(0));
  add(steps.order.end_backward(std::vector<bool>(5), /*last=*/true));
  return begun;
}

TEST(StepOrder, WithOneCommunicatorAllRanksBeginInOneOrderWhateverTheyUse) {
  EXPECT_EQ(collectives_of(0xF, 1),
            "gather d, gather c, reduce d, gather b, reduce c, gather a, reduce b, reduce a, "
            "reduce root");
  for (const int prefetch : {0, 1, 2, 5}) {
    const std::string by_all = collectives_of(0xF, prefetch);
    for (unsigned used = 0; used < 0xF; ++used) {
      EXPECT_EQ(collectives_of(used, prefetch), by_all) << "used " << used;
    }
  }
}

TEST(StepOrder, WithOneCommunicatorListsReachNoFurtherAheadThanTheReductions) {
  Steps steps({"", "a", "b", "c"}, kOneCommunicator);
  steps.forward({1, 2, 3});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads, kAllGrads, kAllGrads});
  EXPECT_EQ(steps.enter_backward(0, {1}), "gather c, gather b");  // reduce c is next
  EXPECT_EQ(steps.enter_backward(3), "wait c");
  EXPECT_EQ(steps.gradients_final(3), "free c, reduce c");
  EXPECT_EQ(steps.enter_backward(2), "wait b, gather a");
}

// Which of them come last a rank cannot tell by what it has used itself.
TEST(StepOrder, WithOneCommunicatorNothingIsReducedBeforeTheFirstOfSeveralForwards) {
  Steps steps({"", "a", "b"}, kOneCommunicator, ReshardAfterForward::kAlways);
  steps.forward({1});
  steps.forward({2});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads, kAllGrads});
  EXPECT_EQ(steps.enter_backward(0), "gather root, wait root, gather b");
  EXPECT_EQ(steps.enter_backward(2), "wait b, gather a");
  EXPECT_EQ(steps.gradients_final(2), "free b");
  EXPECT_EQ(steps.enter_earlier_backward(0), "free a, gather b");
  EXPECT_EQ(steps.enter_backward(1), "gather a, wait a");
  EXPECT_EQ(steps.gradients_final(1), "free a, reduce b, finish b, reduce a");
  EXPECT_EQ(steps.gradients_final(0), "free root, finish a, reduce root");
  EXPECT_EQ(steps.end_backward(), "free b");
}

TEST(StepOrder, ADroppedReductionIsNotWaitedFor) {
  Steps steps({"", "a"});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads});
  steps.gradients_final(1);
  steps.order.forget_reductions();
  EXPECT_EQ(steps.text(steps.order.finish_reduction()), "");
}

TEST(StepOrder, ARecomputationGathersAllThatBackwardMeetsBeforeIt) {
  Steps steps({"", "a", "b"}, {Schedule::kAgreed, 0});
  steps.forward({1, 2});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads, kAllGrads});
  EXPECT_EQ(steps.text(steps.order.need_in_backward(1)), "gather b, gather a, wait a");
}

TEST(StepOrder, UnshardInBackwardOffLeavesTheUnitFreed) {
  Steps steps({"", "a"});
  steps.settings[1].unshard_in_backward = false;
  steps.forward({1});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads});
  EXPECT_EQ(steps.enter_backward(0), "");
  EXPECT_EQ(steps.enter_backward(1), "");
}

TEST(StepOrder, WhatFailedIsDoneAgainOnceItsStateIsCorrected) {
  Steps steps({""});
  EXPECT_EQ(steps.text(steps.order.unshard(0)), "gather root, wait root");
  steps.order.correct(0, GroupState::kSharded);
  EXPECT_EQ(steps.text(steps.order.unshard(0)), "gather root, wait root");
  steps.order.correct(0, GroupState::kGathering);
  EXPECT_EQ(steps.text(steps.order.unshard(0)), "wait root");
}

TEST(StepOrder, ResetForgetsAStepThatBrokeOff) {
  Steps steps({"", "a"});
  steps.begin_forward();
  steps.enter(0);
  steps.order.reset();
  EXPECT_FALSE(steps.order.inside_root_forward());
  steps.begin_forward();
  EXPECT_EQ(steps.enter(0), "gather root, wait root, gather a");
}

}  // namespace
}  // namespace fsdp2::fsdp
