// Checkpoints that lack what the run has, or have it otherwise: errors, unless a load may be
// partial.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/train/state/training_state.h"
#include "tests/core/train/state/tiny_run.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

TEST_F(TrainingState, NamesThatDoNotFitAreErrorsAndAPartialLoadReportsThem) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    ckpt::StateDict state = state_to_save(run.objects());
    const auto is = [](const char* name) {
      return [name](const ckpt::StateTensor& tensor) { return tensor.name == name; };
    };
    auto& tensors = state.tensors;
    tensors.erase(std::remove_if(tensors.begin(), tensors.end(), is("model.scale")), tensors.end());
    state.add_whole({"model", "stranger"}, at::ones({2}));
    run.saver().save(state, {path("run")});
    const Error error = error_of([&] { load_training_state(run.objects(), path("run"), false); });
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_NE(error.message().find("model.scale"), std::string::npos) << error.message();
    const LoadReport report = load_training_state(run.objects(), path("run"), true);
    EXPECT_EQ(report.missing, std::vector<std::string>{"model.scale"});
    EXPECT_EQ(report.unexpected, std::vector<std::string>{"model.stranger"});
  });
}

TEST_F(TrainingState, ThatSaysNoStepHasTheOneThatTheOptimizerCounted) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    run.train(3);
    const auto wanted = [](const std::string& name) {
      return name.rfind("model.", 0) == 0 || name.rfind("optim.", 0) == 0;
    };
    run.saver().save(only(state_to_save(run.objects()), wanted), {path("run")});
    TinyRun other(world, {2, 0}, tokens(), 1.0);
    EXPECT_EQ(load_training_state(other.objects(), path("run"), false).step, 3);
    EXPECT_EQ(other.loader().steps(), 3);
  });
}

TEST_F(TrainingState, WithAnOptimizerButNoStepIsAnErrorUnlessPartial) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens(), 0.0, Algorithm::kSgd);
    run.train(2);
    const auto wanted = [](const std::string& name) { return name != "step"; };
    run.saver().save(only(state_to_save(run.objects()), wanted), {path("run")});
    const Error error = error_of([&] { load_training_state(run.objects(), path("run"), false); });
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_NE(error.message().find("missing keys: step"), std::string::npos) << error.message();
    const LoadReport report = load_training_state(run.objects(), path("run"), true);
    EXPECT_EQ(report.step, -1);
    EXPECT_EQ(report.missing, std::vector<std::string>{"step"});
  });
}

TEST_F(TrainingState, OfDataInAnotherOrderIsAnErrorUnlessPartial) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens(), 0.0, Algorithm::kAdamW, /*data_seed=*/42);
    run.train(2);
    run.saver().save(state_to_save(run.objects()), {path("run")});
    TinyRun other(world, {2, 0}, tokens(), 0.0, Algorithm::kAdamW, /*data_seed=*/7);
    const Error error = error_of([&] { load_training_state(other.objects(), path("run"), false); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find("shuffled with seed 7"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("shuffled with seed 42"), std::string::npos) << error.message();
    const LoadReport report = load_training_state(other.objects(), path("run"), true);
    EXPECT_EQ(report.missing, std::vector<std::string>{"fsdp2.data"});
    EXPECT_EQ(other.loader().steps(), 2);
  });
}

}  // namespace
}  // namespace fsdp2::train
