// Runs that go on with parameters frozen that were trained before, or trained that were frozen.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/train/optim/adamw.h"
#include "core/train/state/training_state.h"
#include "tests/core/train/state/tiny_run.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string> kBiases = {"block0.in.bias", "block1.in.bias", "block2.in.bias"};

bool is_bias(const std::string& name) {
  return std::find(kBiases.begin(), kBiases.end(), name) != kBiases.end();
}

class Freezing : public TrainingState {
 protected:
  Freezing() {
    set_log_sink(LogLevel::kWarning,
                 [this](const LogRecord& record) { warnings_.push_back(record.message); });
  }
  ~Freezing() override { set_log_sink(LogLevel::kWarning, {}); }

  // Runs whose biases are trained, or frozen.
  TinyRun trained(const std::shared_ptr<World>& world, double seed = 0.0,
                  Algorithm algorithm = Algorithm::kAdamW) const {
    return {world, {2, 0}, tokens(), seed, algorithm, 0, std::nullopt, /*frozen_bias=*/false};
  }
  TinyRun frozen(const std::shared_ptr<World>& world, double seed = 0.0,
                 Algorithm algorithm = Algorithm::kAdamW) const {
    return {world, {2, 0}, tokens(), seed, algorithm};
  }

  std::vector<std::string> warnings_;
};

std::vector<std::string> state_names_of_biases(TinyRun& run) {
  std::vector<std::string> names;
  for (size_t i = 0; i < run.optimizer().params().size(); ++i) {
    const std::string& param = run.optimizer().params()[i]->name();
    for (const OptimizerState& slot : run.optimizer().state(i)) {
      if (is_bias(param)) {
        names.push_back(fmt::format("optim.state.{}.{}", param, slot.name));
      }
    }
  }
  return names;
}

void expect_biases_begin_anew(TinyRun& run, TinyRun& saved) {
  const auto& params = run.optimizer().params();
  size_t of_saved = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    const bool begins_anew = is_bias(params[i]->name());
    const std::vector<OptimizerState> state = run.optimizer().state(i);
    const std::vector<OptimizerState> before =
        begins_anew ? state : saved.optimizer().state(of_saved++);
    for (size_t slot = 0; slot < state.size(); ++slot) {
      const at::Tensor expected =
          begins_anew ? at::zeros_like(state[slot].tensor) : before[slot].tensor;
      EXPECT_TRUE(at::equal(state[slot].tensor, expected))
          << params[i]->name() << " " << state[slot].name;
    }
  }
}

TEST_F(Freezing, StateOfParametersThatWereFrozenBeginsAnewWithOneWarning) {
  for (const Algorithm algorithm : {Algorithm::kAdamW, Algorithm::kSgd, Algorithm::kMuon}) {
    warnings_.clear();
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      const LogScope scope;
      TinyRun before = frozen(world, 0.0, algorithm);
      before.train(2);
      before.saver().save(state_to_save(before.objects()), {path("run")});
      TinyRun run = trained(world, 1.0, algorithm);
      run.train(1);
      const LoadReport report = load_training_state(run.objects(), path("run"), false);
      EXPECT_EQ(report.missing, state_names_of_biases(run));
      expect_biases_begin_anew(run, before);
      run.train(1);
      run.saver().save(state_to_save(run.objects()), {path("run")});
      EXPECT_THAT(load_training_state(run.objects(), path("run"), false).missing, IsEmpty());
    });
    EXPECT_THAT(warnings_, ElementsAre(EndsWith(
                               "run: optimizer state begins anew for 3 parameters frozen when it "
                               "was saved: block0.in.bias, block1.in.bias, block2.in.bias")));
  }
}

TEST_F(Freezing, StateOfParametersThatAreFrozenNowIsLeftBehindWithOneWarning) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const LogScope scope;
    TinyRun before = trained(world);
    before.train(2);
    before.saver().save(state_to_save(before.objects()), {path("run")});
    TinyRun run = frozen(world, 1.0);
    const LoadReport report = load_training_state(run.objects(), path("run"), false);
    EXPECT_THAT(report.missing, IsEmpty());
    EXPECT_THAT(report.unexpected, IsEmpty());
    run.saver().save(state_to_save(run.objects()), {path("again")});
    EXPECT_THAT(load_training_state(run.objects(), path("again"), false).missing, IsEmpty());
  });
  EXPECT_THAT(warnings_,
              ElementsAre(EndsWith("run: optimizer state is left behind for 3 parameters frozen "
                                   "now: block0.in.bias, block1.in.bias, block2.in.bias")));
}

TEST_F(Freezing, StateThatIsLostIsAnErrorWhateverWasFrozen) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun before = frozen(world);
    before.train(2);
    const auto save_without = [&](const std::string& start) {
      before.saver().save(only(state_to_save(before.objects()),
                               [&](const std::string& name) { return name.rfind(start, 0) != 0; }),
                          {path("run")});
    };
    TinyRun run = trained(world, 1.0);
    for (const char* const lost : {"optim.state.scale.", "optim.state.scale.exp_avg"}) {
      save_without(lost);
      const Error error = error_of([&] { load_training_state(run.objects(), path("run"), false); });
      EXPECT_EQ(error.code(), Code::kNotFound);
      EXPECT_THAT(error.message(), HasSubstr("missing keys: optim.state.scale."));
    }
    save_without("fsdp2.frozen");
    const Error error = error_of([&] { load_training_state(run.objects(), path("run"), false); });
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_THAT(error.message(), HasSubstr("missing keys: optim.state.block0.in.bias."));
  });
}

// A checkpoint lists parameters that were frozen in its first group, whatever group trains them.
TEST_F(Freezing, ParametersThatWereFrozenGoIntoAnyGroup) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const AdamWOptions no_decay{1e-3, 0.9, 0.999, 1e-8, 0.0};
    TinyRun before = frozen(world);
    add_group(before.optimizer(), {"scale"}, no_decay);
    before.saver().save(state_to_save(before.objects()), {path("run")});
    TinyRun run = trained(world, 1.0);
    std::vector<std::string> names = kBiases;
    names.push_back("scale");
    add_group(run.optimizer(), names, no_decay);
    load_training_state(run.objects(), path("run"), false);
  });
}

TEST_F(Freezing, GroupsOfWhatWasFrozenAloneKeepTheirOptions) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun before = frozen(world);
    before.saver().save(state_to_save(before.objects()), {path("run")});
    TinyRun run = trained(world, 1.0);
    add_group(run.optimizer(), kBiases, AdamWOptions{1e-3, 0.9, 0.999, 1e-8, 0.125});
    load_training_state(run.objects(), path("run"), false);
    for (const HyperParameter& option : run.optimizer().hyper_parameters(1)) {
      EXPECT_TRUE(option.name != "weight_decay" || option.value == HyperParameter::Value(0.125));
    }
  });
}

TEST_F(Freezing, NamesThatAreNoneAreCorruptData) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run = frozen(world);
    for (const ckpt::PythonValue& value :
         {ckpt::PythonValue(1.0), ckpt::PythonValue(ckpt::PythonList{{std::string("a"), 2.0}})}) {
      ckpt::StateDict state = state_to_save(run.objects());
      for (ckpt::StateObject& object : state.objects) {
        object.value = object.name == "fsdp2.frozen" ? value : object.value;
      }
      run.saver().save(state, {path("run")});
      const Error error = error_of([&] { load_training_state(run.objects(), path("run"), false); });
      EXPECT_EQ(error.code(), Code::kCorruptData);
      EXPECT_THAT(error.message(), EndsWith("fsdp2.frozen: expected a list of parameters' names"));
    }
  });
}

}  // namespace
}  // namespace fsdp2::train
