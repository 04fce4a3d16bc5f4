// What a step that updates in backward refuses, and what becomes of one that fails amid its
// updates.
#include "core/train/step/half_update.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/nn/recompute/checkpoint_segment.h"
#include "core/train/optim/muon.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/train/step/in_backward_job.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

using ::testing::HasSubstr;

TEST(InBackwardFailure, ExcludesWhatNeedsAllGradientsFirst) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto error_with = [&](const std::function<void(InBackwardCase&)>& change) {
      InBackwardCase test = in_backward_case("");
      change(test);
      InBackwardJob(world, test, false);
      return error_of([&] { InBackwardJob(world, test, true); });
    };
    const Error clip = error_with([](InBackwardCase& test) { test.options.max_grad_norm = 1.0; });
    EXPECT_EQ(clip.code(), Code::kInvalidArgument);
    EXPECT_THAT(clip.message(), HasSubstr("update_in_backward: expected max_grad_norm 0"));
    const Error scale =
        error_with([](InBackwardCase& test) { test.options.loss_scaling.emplace(); });
    EXPECT_EQ(scale.code(), Code::kInvalidArgument);
    EXPECT_THAT(scale.message(), HasSubstr("no loss scale"));
    const Error skip =
        error_with([](InBackwardCase& test) { test.options.not_finite = NotFinite::kSkip; });
    EXPECT_EQ(skip.code(), Code::kInvalidArgument);
    const Error muon = error_with([](InBackwardCase& test) {
      test.optimizer = [](const auto& root) { return make_muon(root, {}); };
    });
    EXPECT_EQ(muon.code(), Code::kUnsupported);
    EXPECT_THAT(muon.message(), HasSubstr("(Muon)"));
  });
}

TEST(InBackwardFailure, ALossThatIsNotFiniteUpdatesNothing) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      InBackwardCase test = in_backward_case("");
      test.options.accumulate = 2;
      const InBackwardJob job(world, test, true);
      job.run(0);
      const std::vector<at::Tensor> before = job.values();
      job.model->added = world->rank() == ranks - 1 ? std::nan("") : 0.0;
      const std::string message = message_of_error([&] { job.run(1); }, Code::kNotFinite);
      EXPECT_THAT(message,
                  HasSubstr("step 1: the loss of rank " + std::to_string(ranks - 1) + " is NaN"));
      EXPECT_THAT(message, HasSubstr("nothing was updated: look at the batch, or lower the "));
      EXPECT_THAT(message, HasSubstr("need the update at the end of the step"));
      EXPECT_TRUE(are_equal(job.values(), before));
      job.model->added = 0.0;
      const InBackwardJob undisturbed(world, test, false);
      undisturbed.run(0);
      EXPECT_EQ(undisturbed.run(1).loss, job.run(1).loss);
      EXPECT_TRUE(are_equal(job.values(), undisturbed.values()));
    });
  }
}

TEST(InBackwardFailure, AppliesWhatIsNotFiniteIfAsked) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    InBackwardCase test = in_backward_case("");
    test.options.not_finite = NotFinite::kApply;
    const InBackwardJob job(world, test, true);
    job.model->ends = Ends::kInNan;
    const StepResult result = job.run(0);
    EXPECT_TRUE(result.applied && !result.finite);
    EXPECT_NE(job.root->tree().cause_of_bad_values(), "");
    job.step->check(job.batch(1));
  });
}

class HalfUpdated : public FileTest {};

// A backward that goes wrong after it has updated the last block: what becomes of the run.
TEST_F(HalfUpdated, IsNeitherTrainedOnNorSavedUntilAllIsLoaded) {
  for (const Ends ends : {Ends::kInNan, Ends::kInAnError}) {
    const int ranks = ends == Ends::kInNan ? 2 : 1;
    const std::string saved = path("saved" + std::to_string(ranks));
    run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      const InBackwardCase test = in_backward_case("");
      const InBackwardJob job(world, test, true);
      job.run(0);
      job.save(saved);
      const std::vector<at::Tensor> before = job.values();
      job.model->ends = ends;
      const Error error = error_of([&] { job.run(1); });
      if (ends == Ends::kInNan) {
        EXPECT_EQ(error.code(), Code::kNotFinite);
        EXPECT_THAT(error.message(), HasSubstr("step 1: the gradient of stack.embedding is NaN"));
        EXPECT_THAT(error.message(), HasSubstr("go on from a checkpoint"));
      } else {
        EXPECT_THAT(error.message(), HasSubstr("a backward that fails; parameters are half"));
      }
      EXPECT_FALSE(are_equal(job.values(), before));
      job.model->ends = Ends::kWell;
      const std::string why = "half updated, since step 1 failed amid its updates";
      EXPECT_THAT(message_of_error([&] { job.step->check(job.batch(1)); }, Code::kWrongState),
                  HasSubstr(why));
      EXPECT_THAT(message_of_error([&] { job.save(path("none")); }, Code::kWrongState),
                  HasSubstr(why));
      job.load(saved, /*partial=*/true);
      EXPECT_EQ(error_of([&] { job.save(path("none")); }).code(), Code::kWrongState);
      job.load(saved);
      EXPECT_TRUE(are_equal(job.values(), before));
      job.save(path("after" + std::to_string(ranks)));
      const InBackwardJob undisturbed(world, test, false);
      undisturbed.run(0);
      EXPECT_EQ(job.run(1).loss, undisturbed.run(1).loss);
      EXPECT_TRUE(are_equal(job.values(), undisturbed.values()));
    });
    EXPECT_FALSE(std::filesystem::exists(path("none")));
  }
}

TEST_F(HalfUpdated, IsSaidOfWhatWasUpdatedAlone) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    InBackwardCase test = in_backward_case("");
    test.blocks = [](int, int64_t) { return std::vector<int64_t>{1}; };
    const InBackwardJob job(world, test, true);
    job.model->ends = Ends::kInAnError;
    std::vector<std::vector<at::Tensor>> batch = job.batch(0);
    batch[0][0] = at::ones({3, 5});  // no forward takes it
    EXPECT_ANY_THROW(job.step->run(batch));
    job.step->check(job.batch(0));
    EXPECT_THAT(error_of([&] { job.run(0); }).message(), HasSubstr("half updated"));
    EXPECT_EQ(error_of([&] { job.run(0); }).code(), Code::kWrongState);
  });
}

TEST_F(HalfUpdated, ARunGoesOnInEitherMode) {
  for (const bool first : {false, true}) {
    for (const int ranks : {1, 2}) {
      const std::string saved = path("run" + std::to_string(ranks) + (first ? "b" : "e"));
      run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
        const InBackwardCase test = in_backward_case("");
        const InBackwardJob whole(world, test, false);
        for (int64_t number = 0; number < 4; ++number) {
          whole.run(number);
        }
        const InBackwardJob before(world, test, first);
        before.run(0);
        before.run(1);
        before.save(saved);
        const InBackwardJob after(world, test, !first);
        after.load(saved);
        after.run(2);
        after.run(3);
        EXPECT_TRUE(are_equal(after.values(), whole.values()));
      });
    }
  }
}

void fill(nn::Module& module) {
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(17);
  for (at::Tensor& parameter : module.parameters()) {
    parameter.normal_(0.0, 0.4, generator);
  }
}

// Runs a block once more, with its parameters outside of autograd, before what the loss comes from.
class ReadsTwice : public nn::Module {
 public:
  explicit ReadsTwice(bool recomputes) : nn::Module("ReadsTwice") {
    block = register_module("block", std::make_shared<TinyBlock>(8, 16));
    recomputes_ = recomputes;
    fill(*this);
  }
  std::shared_ptr<TinyBlock> block;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor x = inputs[0].toTensor();
    at::Tensor detached;
    if (recomputes_) {
      const auto body = [this](nn::Values values) -> c10::IValue {
        at::Tensor y;
        {
          const at::NoGradGuard no_grad;
          y = (*block)(values).toTensor();
        }
        return (values[0].toTensor() * y).sin();
      };
      detached = nn::run_as_segment("again", body, {x * block_scale()}).toTensor();
    } else {
      detached = at::matmul(x * block_scale(), block->in->weight.detach().t()).sum(1, true) + x;
    }
    return (*block)(nn::Values{detached}).toTensor().square().sum();
  }

 private:
  at::Tensor block_scale() const { return at::ones({8}).set_requires_grad(true); }
  bool recomputes_;
};

TEST(InBackwardFailure, ABackwardThatReadsAUnitAfterItsUpdateIsAnError) {
  for (const bool recomputes : {false, true}) {
    run_ranks(1, [&](const std::shared_ptr<World>& world) {
      auto model = std::make_shared<ReadsTwice>(recomputes);
      const auto root =
          fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock"});
      StepOptions options;
      TrainStep(model, make_adamw(root, {}), options).run({{at::ones({3, 8})}});
      options.update_in_backward = true;
      TrainStep step(model, make_adamw(root, {}), options);
      const Error error = error_of([&] { step.run({{at::ones({3, 8})}}); });
      EXPECT_THAT(error.message(), HasSubstr(recomputes ? "after these have been updated"
                                                        : "modified by an inplace operation"));
      EXPECT_THAT(error.message(), HasSubstr("half updated"));
    });
  }
}

// A unit that passes an input on: the gradient of that output comes when its own are long final.
class PassesOn : public nn::Module {
 public:
  PassesOn() : nn::Module("PassesOn") {
    block_ = register_module("block", std::make_shared<TinyBlock>(8, 16));
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return c10::ivalue::Tuple::create({(*block_)(nn::Values{inputs[0]}), inputs[1]});
  }

 private:
  std::shared_ptr<TinyBlock> block_;
};

class PassesOnThrice : public nn::Module {
 public:
  PassesOnThrice() : nn::Module("PassesOnThrice") {
    first_ = register_module("first", std::make_shared<TinyBlock>(8, 16));
    for (int i = 0; i < 3; ++i) {
      units_.push_back(register_module("unit" + std::to_string(i), std::make_shared<PassesOn>()));
    }
    fill(*this);
  }

 protected:
  c10::IValue forward(nn::Values inputs) override {
    at::Tensor residual = (*first_)(std::move(inputs)).toTensor();
    at::Tensor x = residual * 2.0;
    for (const auto& unit : units_) {
      const c10::IValue both = (*unit)(nn::Values{x, residual});
      x = both.toTupleRef().elements()[0].toTensor();
      residual = both.toTupleRef().elements()[1].toTensor();
    }
    return (x * residual).square().sum();
  }

 private:
  std::shared_ptr<TinyBlock> first_;
  std::vector<std::shared_ptr<PassesOn>> units_;
};

TEST(InBackwardFailure, IsNotAnOutputThatIsAnInputPassedOn) {
  for (const fsdp::Schedule schedule : {fsdp::Schedule::kAgreed, fsdp::Schedule::kOnUse}) {
    for (const int ranks : {1, 2}) {
      run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
        std::vector<std::vector<double>> losses(2);
        for (const bool in_backward : {false, true}) {
          auto model = std::make_shared<PassesOnThrice>();
          fsdp::Policy policy;
          policy.schedule = schedule;
          const auto root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), policy,
                                                      {"TinyBlock", "PassesOn"});
          StepOptions options;
          options.update_in_backward = in_backward;
          TrainStep step(model, make_adamw(root, {1e-2}), options);
          for (int i = 0; i < 3; ++i) {
            losses.at(in_backward ? 1 : 0).push_back(step.run({{at::ones({3, 8})}}).loss);
          }
        }
        EXPECT_EQ(losses[1], losses[0]);
      });
    }
  }
}

}  // namespace
}  // namespace fsdp2::train
