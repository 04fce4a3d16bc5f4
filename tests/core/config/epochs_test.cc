// The length of a run in epochs, in files of every dialect, and what goes before it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/config/resolve.h"
#include "tests/core/config/plans.h"

namespace fsdp2::config {
namespace {

using ::testing::HasSubstr;

std::string roll_file(const std::string& training, const std::string& of_file = "") {
  return of_file + "actor_train:\n  training_args: {" + training + "}\n  strategy_args: {}\n";
}

std::string mm_file(const std::string& training) {
  return "parallel: {}\ntraining: {" + training + "}\n";
}

TEST(RollFile, CountsItsEpochsWithoutAMaxSteps) {
  for (const std::string training :
       {"num_train_epochs: 3", "num_train_epochs: 3.0", "num_train_epochs: 3, max_steps: -1"}) {
    EXPECT_EQ(plan_from(roll_file(training)).options.epochs, 3) << training;
  }
  EXPECT_EQ(plan_from(roll_file("max_steps: -1")).options.epochs, 0);
  EXPECT_EQ(plan_from(roll_file("num_train_epochs: 3", "max_steps: 0\n")).options.epochs, 3);
}

TEST(RollFile, MaxStepsGoBeforeEpochs) {
  const Plan own = plan_from(roll_file("num_train_epochs: 3, max_steps: 7"));
  const Plan of_file = plan_from(roll_file("num_train_epochs: 3", "max_steps: 7\n"));
  for (const Plan* plan : {&own, &of_file}) {
    EXPECT_EQ(plan->options.epochs, 0);
    EXPECT_EQ(plan->options.steps, 7);
    EXPECT_THAT(plan->notes.back(),
                HasSubstr("training_args.num_train_epochs is not used beside max_steps ("));
  }
  EXPECT_THAT(own.notes.back(), HasSubstr("run.yaml:2 actor_train.training_args.max_steps"));
}

TEST(MmFile, EpochsGoBeforeItsIterations) {
  EXPECT_EQ(plan_from(mm_file("train_epochs: 2")).options.epochs, 2);
  EXPECT_EQ(plan_from(mm_file("train_epochs: ~")).options.epochs, 0);
  const Plan both = plan_from(mm_file("train_epochs: 2, train_iters: 7"));
  EXPECT_EQ(both.options.epochs, 2);
  EXPECT_EQ(both.notes.back(), "training.train_iters is not used beside training.train_epochs");
}

TEST(Epochs, AreWholeAndAtLeastOne) {
  for (const std::string wrong : {"0", "-1", "1.5", "1e300", ".5"}) {
    EXPECT_THAT(mistake_in(mm_file("train_epochs: " + wrong)),
                HasSubstr("2: training.train_epochs: " + wrong +
                          ": expected a whole number of "
                          "epochs from 1 to "));
    EXPECT_THAT(mistake_in(roll_file("num_train_epochs: " + wrong)),
                HasSubstr("2: actor_train.training_args.num_train_epochs: " + wrong));
  }
}

TEST(Epochs, GiveWayToStepsOfLibfsdp2sSection) {
  const std::string file = mm_file("train_epochs: 2");
  const Plan plan = plan_from(file + "libfsdp2: {steps: 9}\n");
  EXPECT_EQ(plan.options.epochs, 0);
  EXPECT_EQ(plan.options.steps, 9);
  EXPECT_THAT(plan.origin_of("epochs"), HasSubstr("run.yaml:3 libfsdp2.steps)"));
  EXPECT_EQ(plan_from(file + "libfsdp2: {steps: ~}\n").options.epochs, 2);
  EXPECT_EQ(plan_from(file + "libfsdp2: {steps: 9, epochs: 1}\n").options.epochs, 1);
}

TEST(Epochs, HaveAWarmUpOfAPartOfTheirSteps) {
  Plan plan = plan_from(mm_file("train_epochs: 2, lr_warmup_ratio: 0.1"));
  resolve_for_world(&plan, 1);
  EXPECT_EQ(plan.options.warmup, 0);  // the data are not known yet
  resolve_epochs(&plan, 21);
  EXPECT_EQ(plan.options.steps, 42);
  EXPECT_EQ(plan.options.warmup, 5);
  EXPECT_EQ(plan.options.warmup_ratio, 0);
}

}  // namespace
}  // namespace fsdp2::config
