// The order of a step by itself, event for event: no ranks, no tensors, literal expectations.
#include "core/fsdp/step_order.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace fsdp2::fsdp {
namespace {

std::string action_verb(ActionKind kind) {
  static const char* const kVerbs[] = {"gather", "wait",   "free",       "slice",
                                       "reduce", "finish", "accumulate", "leave"};
  return kVerbs[static_cast<int>(kind)];
}

constexpr ExpectedGradients kAllGrads = ExpectedGradients::kAll;
constexpr ExpectedGradients kSomeGrads = ExpectedGradients::kSome;
constexpr ExpectedGradients kNoGrads = ExpectedGradients::kNone;

// A tree of units by their names, whose events tell what they bring about: "gather a, wait a".
class Steps {
 public:
  std::vector<GroupSettings> settings;
  StepOrder order;

  explicit Steps(const std::vector<std::string>& names, const StepOrder::Options& options = {},
                 ReshardAfterForward reshard = ReshardAfterForward::kAuto)
      : settings(names.size()),
        order(units_of(names, settings, reshard), options),
        names_(names),
        places_(names.size()) {}

  std::string text(const StepOrder::Actions& actions) const {
    std::string text;
    for (const Action& action : actions) {
      const std::string& name = names_[action.unit];
      text += (text.empty() ? "" : ", ") + action_verb(action.kind) + " " +
              (name.empty() ? "root" : name);
    }
    return text;
  }

  void begin_forward() { order.begin_forward(); }
  std::string enter(size_t unit, const std::vector<size_t>& also_gather = {}) {
    return text(order.enter_forward(unit, also_gather));
  }
  std::string leave(size_t unit, bool for_backward = true) {
    const std::string left = text(order.leave_forward(unit, /*more_to_come=*/false, for_backward));
    places_[unit].push_back(order.last_place());
    return left;
  }
  std::string end_forward() { return text(order.end_forward()); }
  std::string enter_backward(size_t unit, const std::vector<size_t>& also_gather = {}) {
    return text(order.enter_backward(unit, places_[unit].back(), also_gather));
  }
  // Enters the backward of the unit's forward before the last.
  std::string enter_earlier_backward(size_t unit) {
    places_[unit].pop_back();
    return enter_backward(unit);
  }
  std::string gradients_final(size_t unit) { return text(order.gradients_final(unit)); }
  std::string end_backward(bool last = true) {
    return text(order.end_backward(std::vector<bool>(names_.size()), last));
  }
  std::string finish_step() { return text(order.finish_step()); }

  // A forward through the root, unit 0, that uses the others one after the other.
  void forward(const std::vector<size_t>& used) {
    begin_forward();
    enter(0);
    for (const size_t unit : used) {
      enter(unit);
      leave(unit);
    }
    leave(0);
    end_forward();
  }

 private:
  static std::vector<StepOrder::Unit> units_of(const std::vector<std::string>& names,
                                               const std::vector<GroupSettings>& settings,
                                               ReshardAfterForward reshard) {
    std::vector<StepOrder::Unit> units;
    for (size_t i = 0; i < names.size(); ++i) {
      units.push_back({names[i], true, reshard, &settings[i], GroupState::kSharded});
    }
    return units;
  }

  std::vector<std::string> names_;
  std::vector<std::vector<size_t>> places_;  // of each unit's forwards
};

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

TEST(StepOrder, NewShardsFreeWhatForwardsKeptButNotWhatWasUnshardedByHand) {
  Steps steps({"", "a", "b"}, {}, ReshardAfterForward::kNever);
  steps.forward({1, 2});
  EXPECT_EQ(steps.text(steps.order.reshard(1)), "free a");
  EXPECT_EQ(steps.text(steps.order.unshard(1)), "gather a, wait a");
  EXPECT_EQ(steps.text(steps.order.shards_changed()), "free root, free b");
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

TEST(StepOrder, ADroppedReductionIsNotWaitedFor) {
  Steps steps({"", "a"});
  steps.order.begin_backward(true, {kAllGrads, kAllGrads});
  steps.gradients_final(1);
  steps.order.forget_reduction();
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
