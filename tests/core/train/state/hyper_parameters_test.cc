// What a checkpoint says of an optimizer: its parameter groups, and their hyper-parameters.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/train/optim/adamw.h"
#include "core/train/state/training_state.h"
#include "tests/core/train/state/tiny_run.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

TEST_F(TrainingState, EachParameterGroupHasItsOptionsAndItsNames) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    add_group(*run.objects().optimizer, {"scale"}, AdamWOptions{2e-2});
    run.saver().save(state_to_save(run.objects()), {path("run")});
    TinyRun other(world, {2, 0}, tokens());
    add_group(*other.objects().optimizer, {"scale"}, AdamWOptions{2e-2});
    other.objects().optimizer->set_lr(1.0);
    load_training_state(other.objects(), path("run"), false);
    EXPECT_EQ(other.objects().optimizer->lr(), 1e-2);
  });
  const auto source = ckpt::open_checkpoint(path("run"));
  const auto value = [&](const std::string& name) {
    const ckpt::StateEntry* entry = source->find("optim.param_groups." + name);
    return entry == nullptr ? ckpt::PythonValue() : source->read_object(*entry);
  };
  EXPECT_EQ(*value("0.lr").as<double>(), 1e-2);
  EXPECT_EQ(*value("1.lr").as<double>(), 2e-2);
  const ckpt::PythonValue names = value("1.params");
  EXPECT_EQ(value("1.param_names"), names);
  ASSERT_NE(names.as<ckpt::PythonList>(), nullptr);
  ASSERT_EQ(names.as<ckpt::PythonList>()->items.size(), 1U);
  EXPECT_EQ(*names.as<ckpt::PythonList>()->items[0].as<std::string>(), "scale");
}

// Where a scheduler has been made, PyTorch's loaders want it of a checkpoint.
TEST_F(TrainingState, TheRateThatAScheduleGoesOutFromIsSavedWhateverTheRateIsNow) {
  for (const OptimizerKeys keys : {OptimizerKeys::kByGroup, OptimizerKeys::kByParameter}) {
    run_ranks(1, [&](const std::shared_ptr<World>& world) {
      TinyRun run(world, {1, 0}, tokens());
      add_group(run.optimizer(), {"scale"}, AdamWOptions{2e-2});
      run.optimizer().set_lr(0.0);
      run.saver().save(state_to_save(run.objects(), keys), {path("run")});
    });
    const bool by_group = keys == OptimizerKeys::kByGroup;
    const auto source = ckpt::open_checkpoint(path("run"));
    const auto value = [&](const std::string& name) {
      return source->read_object(*source->find("optim.param_groups." + name));
    };
    EXPECT_EQ(value(by_group ? "0.initial_lr" : "block0.in.weight.initial_lr"), 1e-2);
    EXPECT_EQ(value(by_group ? "1.initial_lr" : "scale.initial_lr"), 2e-2);
    EXPECT_EQ(value(by_group ? "1.lr" : "scale.lr"), 0.0);
  }
}

std::map<std::string, HyperParameter::Value> by_name(const Optimizer& optimizer, size_t group) {
  std::map<std::string, HyperParameter::Value> values;
  for (const HyperParameter& value : optimizer.hyper_parameters(group)) {
    values.emplace(value.name, value.value);
  }
  return values;
}

const std::vector<HyperParameter> kOtherValues = {
    {"lr", 0.125}, {"betas", std::pair(0.5, 0.75)}, {"eps", 1e-3}, {"weight_decay", 0.25}};

TEST_F(TrainingState, BringsBackTheHyperParametersOfEachGroup) {
  for (const OptimizerKeys keys : {OptimizerKeys::kByGroup, OptimizerKeys::kByParameter}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      TinyRun run(world, {2, 0}, tokens());
      add_group(run.optimizer(), {"scale"}, AdamWOptions{2e-2, 0.9, 0.999, 1e-8, 0.0});
      run.optimizer().set_hyper_parameters(0, kOtherValues);
      run.saver().save(state_to_save(run.objects(), keys), {path("run")});
      TinyRun other(world, {2, 0}, tokens());
      add_group(other.optimizer(), {"scale"}, AdamWOptions{1e-3});
      load_training_state(other.objects(), path("run"), false);
      for (const size_t group : {0, 1}) {
        EXPECT_EQ(by_name(other.optimizer(), group), by_name(run.optimizer(), group)) << group;
      }
      EXPECT_EQ(other.optimizer().lr(), 0.125);
    });
  }
}

TEST_F(TrainingState, TellsOfAGroupsRateThatAnotherReplaces) {
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    TinyRun saved(world, {2, 0}, tokens());
    add_group(saved.optimizer(), {"scale"}, AdamWOptions{2e-2});
    saved.saver().save(state_to_save(saved.objects()), {path("run")});
    TinyRun run(world, {2, 0}, tokens());
    add_group(run.optimizer(), {"scale"}, AdamWOptions{4e-2});
    std::string told;
    set_log_sink(LogLevel::kWarning, [&](const LogRecord& record) { told += record.message; });
    {
      const LogScope scope;
      load_training_state(run.objects(), path("run"), false);
    }
    set_log_sink(LogLevel::kWarning, {});
    EXPECT_NE(told.find("lr as a multiple of group 0's 2, not 4"), std::string::npos) << told;
    EXPECT_EQ(told.find("group 0 of the optimizer takes"), std::string::npos) << told;
  });
}

TEST_F(TrainingState, OfTwoGroupsThatDifferDoesNotGoIntoOneUnlessPartial) {
  for (const OptimizerKeys keys : {OptimizerKeys::kByGroup, OptimizerKeys::kByParameter}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      TinyRun two(world, {2, 0}, tokens());
      add_group(two.optimizer(), {"scale"}, AdamWOptions{1e-2, 0.9, 0.999, 1e-8, 0.25});
      two.saver().save(state_to_save(two.objects(), keys), {path("two")});
      TinyRun one(world, {2, 0}, tokens());
      const auto before = by_name(one.optimizer(), 0);
      const Error error = error_of([&] { load_training_state(one.objects(), path("two"), false); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      // Which of the two is "here" goes by the order of names or of groups.
      EXPECT_NE(error.message().find("weight_decay is 0.01 here and 0.25 in optim.param_groups."),
                std::string::npos)
          << error.message();
      EXPECT_NE(error.message().find("in its group 0"), std::string::npos) << error.message();
      EXPECT_EQ(by_name(one.optimizer(), 0), before);
      const LoadReport report = load_training_state(one.objects(), path("two"), true);
      EXPECT_EQ(report.unexpected.size(), 1U);
      EXPECT_EQ(by_name(one.optimizer(), 0), before);
    });
  }
}

TEST_F(TrainingState, OfTwoGroupsThatAreAlikeGoesIntoOne) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun two(world, {2, 0}, tokens());
    add_group(two.optimizer(), {"scale"}, AdamWOptions{1e-2});
    for (const size_t group : {0, 1}) {
      two.optimizer().set_hyper_parameters(group, {{"weight_decay", 0.25}});
    }
    two.saver().save(state_to_save(two.objects()), {path("two")});
    TinyRun one(world, {2, 0}, tokens());
    load_training_state(one.objects(), path("two"), false);
    EXPECT_EQ(by_name(one.optimizer(), 0), by_name(two.optimizer(), 1));
  });
}

TEST_F(TrainingState, MomentumOfTheCheckpointComesWithItsBuffers) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens(), 0.0, Algorithm::kSgd);
    run.train(3);
    run.saver().save(state_to_save(run.objects()), {path("run")});
    const std::vector<double> expected = run.train(5);
    TinyRun other(world, {2, 0}, tokens(), 1.0, Algorithm::kSgd);
    other.optimizer().set_hyper_parameters(0, {{"momentum", 0.0}});
    load_training_state(other.objects(), path("run"), false);
    EXPECT_EQ(other.train(5), expected);
  });
}

TEST_F(TrainingState, OfAnAlgorithmThatIsNotProvidedIsAnErrorThatChangesNothing) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    const auto before = by_name(run.optimizer(), 0);
    TinyRun other(world, {2, 0}, tokens());
    other.optimizer().set_hyper_parameters(0, kOtherValues);
    ckpt::StateDict state = state_to_save(other.objects());
    for (ckpt::StateObject& object : state.objects) {
      object.value = object.name == "optim.param_groups.0.amsgrad" ? true : object.value;
    }
    run.saver().save(state, {path("run")});
    const Error error = error_of([&] { load_training_state(run.objects(), path("run"), false); });
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_NE(error.message().find("optim.param_groups.0: amsgrad"), std::string::npos)
        << error.message();
    EXPECT_EQ(by_name(run.optimizer(), 0), before);
    const LoadReport report = load_training_state(run.objects(), path("run"), true);
    EXPECT_EQ(report.unexpected, std::vector<std::string>{"optim.param_groups.0"});
    EXPECT_EQ(by_name(run.optimizer(), 0), before);
  });
}

TEST_F(TrainingState, LoadThatFailsLeavesTheHyperParameters) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    TinyRun other(world, {2, 0}, tokens());
    other.optimizer().set_hyper_parameters(0, kOtherValues);
    ckpt::StateDict state = state_to_save(other.objects());
    state.add_whole({"model", "stranger"}, at::ones({2}));
    run.saver().save(state, {path("run")});
    const auto before = by_name(run.optimizer(), 0);
    EXPECT_THROW(load_training_state(run.objects(), path("run"), false), Error);
    EXPECT_EQ(by_name(run.optimizer(), 0), before);
  });
}

// A checkpoint with a value more, of a kind that is not read.
class WithUnreadValue final : public ckpt::StateSource {
 public:
  WithUnreadValue(const std::string& path, const std::string& name)
      : StateSource(path), source_(ckpt::open_checkpoint(path)) {
    std::vector<ckpt::StateEntry> entries = source_->entries();
    entries.push_back({name, {name}, std::nullopt, {}, 0});
    set_entries(std::move(entries));
  }
  void read(const ckpt::StateEntry& entry, at::IntArrayRef begin,
            const at::Tensor& out) const override {
    source_->read(entry, begin, out);
  }
  ckpt::PythonValue read_object(const ckpt::StateEntry& entry) const override {
    FSDP2_CHECK(source_->find(entry.name) != nullptr, Code::kUnsupported, "not read");
    return source_->read_object(entry);
  }
  void verify() const override {}

 private:
  std::unique_ptr<ckpt::StateSource> source_;
};

TEST_F(TrainingState, OfAGroupWithAValueMoreThatIsNotReadIsRead) {
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {1, 0}, tokens());
    run.saver().save(state_to_save(run.objects()), {path("run")});
    TinyRun other(world, {1, 0}, tokens());
    const WithUnreadValue source(path("run"), "optim.param_groups.0.layer_class");
    EXPECT_EQ(load_training_state(other.objects(), source, false).step, 0);
  });
}

}  // namespace
}  // namespace fsdp2::train
