// The order of a step by itself, event for event: no ranks, no tensors, literal expectations.
#include "core/fsdp/step_order.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace fsdp2::fsdp {
namespace {

std::string verb_of(ActionKind kind) {
  static const char* const kVerbs[] = {"gather", "wait",   "free",      "slice",
                                       "reduce", "finish", "accumulate"};
  return kVerbs[static_cast<int>(kind)];
}

constexpr ExpectedGradients kAll = ExpectedGradients::kAll;
constexpr ExpectedGradients kSome = ExpectedGradients::kSome;
constexpr ExpectedGradients kNone = ExpectedGradients::kNone;

// A tree of units by their names, whose events tell what they bring about: "gather a, wait a".
class Tree {
 public:
  std::vector<GroupSettings> settings;
  StepOrder order;

  explicit Tree(const std::vector<std::string>& names, const StepOrder::Options& options = {},
                ReshardAfterForward reshard = ReshardAfterForward::kAuto)
      : settings(names.size()), order(units_of(names, settings, reshard), options), names_(names) {}

  std::string text(const StepOrder::Actions& actions) const {
    std::string text;
    for (const Action& action : actions) {
      const std::string& name = names_[action.unit];
      text +=
          (text.empty() ? "" : ", ") + verb_of(action.kind) + " " + (name.empty() ? "root" : name);
    }
    return text;
  }

  std::string begin_forward() { return text(order.begin_forward()); }
  std::string enter(size_t unit, const std::vector<size_t>& also_gather = {}) {
    return text(order.enter_forward(unit, also_gather));
  }
  std::string leave(size_t unit, bool for_backward = true) {
    return text(order.leave_forward(unit, /*more_to_come=*/false, for_backward));
  }
  std::string end_forward(bool for_backward = true) {
    return text(order.end_forward(for_backward));
  }
  std::string enter_backward(size_t unit, const std::vector<size_t>& also_gather = {}) {
    return text(order.enter_backward(unit, /*place=*/0, also_gather));
  }
  std::string gradients_final(size_t unit) { return text(order.gradients_final(unit)); }
  std::string end_backward() { return text(order.end_backward(std::vector<bool>(names_.size()))); }
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
};

TEST(StepOrder, ForwardGathersOneAheadAndKeepsTheRoot) {
  Tree tree({"", "a", "b"});
  EXPECT_EQ(tree.begin_forward(), "");
  EXPECT_EQ(tree.enter(0), "gather root, wait root, gather a");
  EXPECT_EQ(tree.enter(1), "wait a, gather b");
  EXPECT_EQ(tree.leave(1), "free a");
  EXPECT_EQ(tree.enter(2), "wait b");
  EXPECT_EQ(tree.leave(2), "free b");
  EXPECT_EQ(tree.leave(0), "");
  EXPECT_EQ(tree.end_forward(), "");
}

TEST(StepOrder, BackwardGathersInReverseAndReducesOneAtATime) {
  Tree tree({"", "a", "b"});
  tree.forward({1, 2});
  tree.order.begin_backward(true, {kAll, kAll, kAll});
  EXPECT_EQ(tree.enter_backward(0), "gather b");
  EXPECT_EQ(tree.enter_backward(2), "wait b, gather a");
  EXPECT_EQ(tree.gradients_final(2), "free b, reduce b");
  EXPECT_EQ(tree.enter_backward(1), "wait a");
  EXPECT_EQ(tree.gradients_final(1), "free a, finish b, reduce a");
  EXPECT_EQ(tree.gradients_final(0), "free root, finish a, reduce root");
  EXPECT_EQ(tree.end_backward(), "");
  EXPECT_EQ(tree.finish_step(), "finish root");
}

TEST(StepOrder, WithoutPrefetchAUnitIsGatheredAsItIsEntered) {
  Tree tree({"", "a", "b"}, {Schedule::kAgreed, 0});
  tree.begin_forward();
  EXPECT_EQ(tree.enter(0), "gather root, wait root");
  EXPECT_EQ(tree.enter(1), "gather a, wait a");
  EXPECT_EQ(tree.leave(1), "free a");
  EXPECT_EQ(tree.enter(2), "gather b, wait b");
}

TEST(StepOrder, AListReachesFurtherAheadInTheAgreedOrder) {
  Tree tree({"", "a", "b", "c"});
  tree.begin_forward();
  EXPECT_EQ(tree.enter(0, {3}), "gather root, wait root, gather a, gather b, gather c");
  tree.order.reset();
  tree.forward({1, 2, 3});
  tree.order.begin_backward(true, {kAll, kAll, kAll, kAll});
  EXPECT_EQ(tree.enter_backward(0, {2}), "gather c, gather b");
}

TEST(StepOrder, BackwardMeetsParentsFirstAndSiblingsInReverse) {
  const Tree tree({"", "a", "a.x", "a.y", "b"});
  EXPECT_EQ(tree.order.backward_order(), (std::vector<size_t>{0, 4, 1, 3, 2}));
}

TEST(StepOrder, ReductionsWaitForThoseBehindThem) {
  Tree tree({"", "a", "b"});
  tree.forward({1, 2});
  tree.order.begin_backward(true, {kAll, kAll, kAll});
  tree.enter_backward(0);
  tree.enter_backward(2);
  tree.enter_backward(1);
  EXPECT_EQ(tree.gradients_final(0), "free root");
  EXPECT_EQ(tree.gradients_final(1), "free a");
  EXPECT_EQ(tree.gradients_final(2), "free b, reduce b, finish b, reduce a, finish a, reduce root");
}

// Other ranks may use it, so it takes its place in every collective.
TEST(StepOrder, AUnitThatIsNotUsedIsGatheredAndReducedLikeTheOthers) {
  Tree tree({"", "a", "b"});
  tree.begin_forward();
  tree.enter(0);
  EXPECT_EQ(tree.enter(2), "gather b, wait b");
  tree.leave(2);
  tree.leave(0);
  EXPECT_EQ(tree.end_forward(), "free a");
  tree.order.begin_backward(true, {kAll, kNone, kAll});
  EXPECT_EQ(tree.enter_backward(0), "gather b");
  EXPECT_EQ(tree.enter_backward(2), "wait b, gather a");
  EXPECT_EQ(tree.gradients_final(2), "free b, reduce b, finish b, reduce a");
  EXPECT_EQ(tree.gradients_final(0), "free root, finish a, reduce root");
  EXPECT_EQ(tree.end_backward(), "free a");
}

// The ranks that do use the unit may join the reduction only after its gather.
TEST(StepOrder, AllIsGatheredBeforeAReductionIsWaitedForIfAUnitIsNotUsed) {
  Tree tree({"", "a", "b"}, {Schedule::kAgreed, 0});
  tree.forward({2});
  tree.order.begin_backward(true, {kAll, kNone, kAll});
  tree.enter_backward(0);
  EXPECT_EQ(tree.enter_backward(2), "gather b, wait b");
  EXPECT_EQ(tree.gradients_final(2), "free b, reduce b, gather a, finish b, reduce a");
}

TEST(StepOrder, AUnitWithFrozenParametersIsFreedWhenTheOneBeforeItBegins) {
  Tree tree({"", "a", "b"}, {Schedule::kAgreed, 0});
  tree.forward({1, 2});
  tree.order.begin_backward(true, {kAll, kAll, kSome});
  tree.enter_backward(0);
  tree.enter_backward(2);
  EXPECT_EQ(tree.gradients_final(2), "reduce b");
  EXPECT_EQ(tree.enter_backward(1), "free b, gather a, wait a");
}

TEST(StepOrder, SlicesAreCutAfterForwardAndGatheredInBackward) {
  Tree tree({"", "a"}, {Schedule::kAgreed, 0}, ReshardAfterForward::kSmaller);
  tree.begin_forward();
  tree.enter(0);
  tree.enter(1);
  EXPECT_EQ(tree.leave(1), "slice a");
  EXPECT_EQ(tree.leave(0), "slice root");
  EXPECT_EQ(tree.end_forward(), "");
  tree.order.begin_backward(true, {kAll, kAll});
  EXPECT_EQ(tree.enter_backward(0), "gather root, wait root");
  EXPECT_EQ(tree.enter_backward(1), "gather a, wait a");
}

TEST(StepOrder, ASettingGoesBeforeThePolicyAtTheNextEvent) {
  Tree tree({"", "a"});
  tree.begin_forward();
  tree.enter(0);
  tree.enter(1);
  tree.settings[0].reshard_after_forward = true;
  tree.settings[1].reshard_after_forward = false;
  EXPECT_EQ(tree.leave(1), "");
  EXPECT_EQ(tree.leave(0), "free root");
}

TEST(StepOrder, AForwardWithoutBackwardKeepsNothing) {
  Tree tree({"", "a"}, {}, ReshardAfterForward::kNever);
  tree.begin_forward();
  tree.enter(0);
  tree.enter(1);
  EXPECT_EQ(tree.leave(1, /*for_backward=*/false), "free a");
  EXPECT_EQ(tree.leave(0, /*for_backward=*/false), "free root");
}

TEST(StepOrder, AUnitWithModulesToComeIsKeptUntilTheForwardEnds) {
  Tree tree({"", "a"});
  tree.begin_forward();
  tree.enter(0);
  tree.enter(1);
  EXPECT_EQ(tree.text(tree.order.leave_forward(1, /*more_to_come=*/true, true)), "");
  tree.leave(0);
  EXPECT_EQ(tree.end_forward(), "free a");
}

TEST(StepOrder, ForwardFreesWhatTheLastOneKeptButNotWhatWasUnshardedByHand) {
  Tree tree({"", "a", "b"}, {}, ReshardAfterForward::kNever);
  tree.forward({1, 2});
  EXPECT_EQ(tree.text(tree.order.reshard(1)), "free a");
  EXPECT_EQ(tree.text(tree.order.unshard(1)), "gather a, wait a");
  EXPECT_EQ(tree.begin_forward(), "free root, free b");
}

TEST(StepOrder, OnUseGathersWhatIsUsedAndTheUnitBeforeItInBackward) {
  Tree tree({"", "a", "b", "c"}, {Schedule::kOnUse, 1}, ReshardAfterForward::kAlways);
  tree.begin_forward();
  EXPECT_EQ(tree.enter(0), "gather root, wait root");
  EXPECT_EQ(tree.enter(1), "gather a, wait a");
  EXPECT_EQ(tree.leave(1), "free a");
  EXPECT_EQ(tree.enter(3), "gather c, wait c");
  EXPECT_EQ(tree.leave(3), "free c");
  const size_t place = tree.order.last_place();
  EXPECT_EQ(tree.leave(0), "free root");
  EXPECT_EQ(tree.end_forward(), "");
  tree.order.begin_backward(true, {kAll, kAll, kNone, kAll});
  EXPECT_EQ(tree.text(tree.order.enter_backward(3, place, {})), "gather c, wait c, gather a");
  EXPECT_EQ(tree.gradients_final(3), "free c, reduce c");
  EXPECT_EQ(tree.gradients_final(1), "free a, finish c, reduce a");
}

TEST(StepOrder, OnUseReducesAtTheEndWhatAnEarlierBackwardHasLeft) {
  Tree tree({"", "a", "b"}, {Schedule::kOnUse, 1});
  tree.order.begin_backward(true, {kAll, kNone, kNone});
  tree.gradients_final(0);
  EXPECT_EQ(tree.text(tree.order.end_backward({false, true, false})), "finish root, reduce a");
}

TEST(StepOrder, WithoutGradientSyncGradientsAreKeptAndNothingIsWaitedFor) {
  Tree tree({"", "a"});
  tree.settings[1].requires_gradient_sync = false;
  tree.forward({1});
  tree.order.begin_backward(true, {kAll, kAll});
  tree.enter_backward(0);
  tree.enter_backward(1);
  EXPECT_EQ(tree.gradients_final(1), "free a, accumulate a");
  EXPECT_EQ(tree.gradients_final(0), "free root, reduce root");
}

TEST(StepOrder, AReductionStaysUnderWayWhileMoreBackwardsFollow) {
  Tree tree({"", "a"});
  tree.forward({1});
  for (const char* const first : {"free a, reduce a", "free a, finish root, reduce a"}) {
    tree.order.begin_backward(true, {kAll, kAll});
    tree.enter_backward(0);
    tree.enter_backward(1);
    EXPECT_EQ(tree.gradients_final(1), first);
    tree.gradients_final(0);
    tree.end_backward();
  }
  EXPECT_EQ(tree.text(tree.order.finish_reduction()), "finish root");
  EXPECT_EQ(tree.text(tree.order.finish_reduction()), "");
}

TEST(StepOrder, ADroppedReductionIsNotWaitedFor) {
  Tree tree({"", "a"});
  tree.order.begin_backward(true, {kAll, kAll});
  tree.gradients_final(1);
  tree.order.forget_reduction();
  EXPECT_EQ(tree.text(tree.order.finish_reduction()), "");
}

TEST(StepOrder, ARecomputationGathersAllThatBackwardMeetsBeforeIt) {
  Tree tree({"", "a", "b"}, {Schedule::kAgreed, 0});
  tree.forward({1, 2});
  tree.order.begin_backward(true, {kAll, kAll, kAll});
  EXPECT_EQ(tree.text(tree.order.recompute(1)), "gather b, gather a, wait a");
}

TEST(StepOrder, UnshardInBackwardOffLeavesTheUnitFreed) {
  Tree tree({"", "a"});
  tree.settings[1].unshard_in_backward = false;
  tree.forward({1});
  tree.order.begin_backward(true, {kAll, kAll});
  EXPECT_EQ(tree.enter_backward(0), "");
  EXPECT_EQ(tree.enter_backward(1), "");
}

TEST(StepOrder, WhatFailedIsDoneAgainOnceItsStateIsCorrected) {
  Tree tree({""});
  EXPECT_EQ(tree.text(tree.order.unshard(0)), "gather root, wait root");
  tree.order.correct(0, GroupState::kSharded);
  EXPECT_EQ(tree.text(tree.order.unshard(0)), "gather root, wait root");
  tree.order.correct(0, GroupState::kGathering);
  EXPECT_EQ(tree.text(tree.order.unshard(0)), "wait root");
}

TEST(StepOrder, ResetForgetsAStepThatBrokeOff) {
  Tree tree({"", "a"});
  tree.begin_forward();
  tree.enter(0);
  tree.order.reset();
  EXPECT_FALSE(tree.order.inside_root_forward());
  EXPECT_EQ(tree.begin_forward(), "");
  EXPECT_EQ(tree.enter(0), "gather root, wait root, gather a");
}

}  // namespace
}  // namespace fsdp2::fsdp
