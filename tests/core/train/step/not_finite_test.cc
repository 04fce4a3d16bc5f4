// Steps whose loss or gradients are infinite or NaN: what all ranks decide together, and say.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/train/optim/adamw.h"
#include "core/train/optim/sgd.h"
#include "core/train/state/finite_values.h"
#include "core/train/step/doubtful_update.h"
#include "core/train/step/train_step.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kWidth = 4;
constexpr int64_t kSound = -1;

// Its output is its loss. JudgedInputs: x [2, 4]; a number that is added to the loss; the index of
// an element of "stack.scale" whose gradient becomes NaN though the loss is finite, or kSound.
class Judged : public nn::Module {
 public:
  Judged() : nn::Module("Judged") {
    stack = register_module("stack", std::make_shared<TinyStack>(TinyStackOptions{kWidth, 6, 2}));
  }
  std::shared_ptr<TinyStack> stack;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor added = inputs[1].toTensor();
    const auto poisoned = inputs[2].toTensor().item<int64_t>();
    at::Tensor loss = (*stack)(nn::Values{inputs[0]}).toTensor().square().sum() + added.sum();
    if (poisoned != kSound) {
      // sqrt(0) has an infinite slope, times 0.
      loss = loss + (stack->scale.narrow(0, poisoned, 1) * 0.0).sqrt().sum();
    }
    return loss;
  }
};

struct JudgedInputs {
  double added = 0.0;
  int64_t poisoned = kSound;
  double size = 1.0;
};
std::vector<std::vector<at::Tensor>> judged_batch(const std::vector<JudgedInputs>& micro_batches) {
  std::vector<std::vector<at::Tensor>> batch;
  for (const JudgedInputs& micro : micro_batches) {
    batch.push_back({at::full({2, kWidth}, micro.size), at::full({1}, micro.added),
                     at::full({1}, micro.poisoned, at::kLong)});
  }
  return batch;
}

struct JudgedJob {
  JudgedJob(const std::shared_ptr<World>& world, const StepOptions& options, int64_t fsdp_size = 0,
            const fsdp::MixedPrecision& precision = {}, at::ScalarType dtype = at::kFloat,
            double lr = 1e-2)
      : model(std::make_shared<Judged>()) {
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*model)) {
      const_cast<at::Tensor&>(parameter.tensor).set_data(parameter.tensor.detach().to(dtype));
    }
    fsdp::Policy policy;
    policy.mixed_precision = precision;
    root =
        fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, fsdp_size), policy, {"TinyBlock"});
    optimizer = make_adamw(root, {lr});
    step = std::make_unique<TrainStep>(model, optimizer, options);
  }

  // Copies of the parameters and of the optimizer's state.
  std::vector<at::Tensor> values() const {
    std::vector<at::Tensor> values;
    for (size_t i = 0; i < optimizer->params().size(); ++i) {
      values.push_back(optimizer->params()[i]->sharded().detach().clone());
      for (const OptimizerState& state : optimizer->state(i)) {
        values.push_back(state.tensor.clone());
      }
    }
    return values;
  }

  bool has_gradients() const {
    bool any = false;
    for (const fsdp::ShardedParam* param : root->parameters()) {
      any = any || param->sharded().grad().defined();
    }
    return any;
  }

  std::shared_ptr<Judged> model;
  std::shared_ptr<fsdp::Unit> root;
  std::shared_ptr<Optimizer> optimizer;
  std::unique_ptr<TrainStep> step;
};

bool same_values(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) {
      return false;
    }
  }
  return a.size() == b.size();
}

StepOptions options_with(NotFinite not_finite, int64_t accumulate = 1) {
  StepOptions options;
  options.not_finite = not_finite;
  options.accumulate = accumulate;
  return options;
}

struct MeshSize {
  int world;
  int64_t fsdp_size;
};
const MeshSize kMeshes[] = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {4, 2}};

TEST(NotFinite, ALossOfOneRankIsAnErrorOnAllThatNamesItAndChangesNothing) {
  for (const MeshSize& ranks : kMeshes) {
    run_ranks(ranks.world, [&](const std::shared_ptr<World>& world) {
      const JudgedJob job(world, options_with(NotFinite::kError, 2), ranks.fsdp_size);
      job.step->run(judged_batch({{}, {}}));
      const std::vector<at::Tensor> before = job.values();
      const bool is_bad = world->rank() == ranks.world - 1;
      const std::string message = message_of_error(
          [&] { job.step->run(judged_batch({{}, {is_bad ? kNan : 0.0}})); }, Code::kNotFinite);
      EXPECT_THAT(message, HasSubstr("step 1: the loss of rank " + std::to_string(ranks.world - 1) +
                                     " is NaN (its micro batch 1)"));
      EXPECT_THAT(message, Not(HasSubstr("gradient")));  // they are finite
      EXPECT_TRUE(same_values(job.values(), before));
      EXPECT_FALSE(job.has_gradients());
      const StepResult again = job.step->run(judged_batch({{}, {}}));
      EXPECT_EQ(again.step, 1);
      EXPECT_TRUE(again.finite && again.applied);
    });
  }
}

// Four elements over up to four ranks: the last one is held by the last rank that has any.
TEST(NotFinite, AGradientNamesItsParameterAndTheRankThatHoldsIt) {
  for (const MeshSize& ranks : kMeshes) {
    run_ranks(ranks.world, [&](const std::shared_ptr<World>& world) {
      const JudgedJob job(world, options_with(NotFinite::kError), ranks.fsdp_size);
      const int group = ranks.fsdp_size == 0 ? ranks.world : 2;
      const int rows = (static_cast<int>(kWidth) + group - 1) / group;
      const int holder = (static_cast<int>(kWidth) - 1) / rows;
      const JudgedInputs inputs{0.0, world->rank() == 0 ? kWidth - 1 : kSound};
      const std::string message =
          message_of_error([&] { job.step->run(judged_batch({inputs})); }, Code::kNotFinite);
      EXPECT_THAT(message, HasSubstr("the gradient of stack.scale is NaN on rank " +
                                     std::to_string(holder)));
      EXPECT_THAT(message, Not(HasSubstr("loss")));
    });
  }
}

TEST(NotFinite, IsNoticedInEveryDtype) {
  const auto precision = [](at::ScalarType param, at::ScalarType reduce) {
    fsdp::MixedPrecision mixed;
    mixed.param_dtype = param;
    mixed.reduce_dtype = reduce;
    return mixed;
  };
  const std::vector<std::pair<fsdp::MixedPrecision, at::ScalarType>> dtypes = {
      {{}, at::kDouble},
      {{}, at::kBFloat16},
      {{}, at::kHalf},
      {precision(at::kBFloat16, at::kFloat), at::kFloat},
      {precision(at::kHalf, at::kHalf), at::kFloat}};
  for (const auto& [mixed, dtype] : dtypes) {
    run_ranks(2, [&, mixed = mixed, dtype = dtype](const std::shared_ptr<World>& world) {
      for (const JudgedInputs& bad :
           {JudgedInputs{kNan}, JudgedInputs{INFINITY}, JudgedInputs{0.0, 3}}) {
        const JudgedJob job(world, options_with(NotFinite::kError), 0, mixed, dtype);
        auto batch = judged_batch({world->rank() == 1 ? bad : JudgedInputs{}});
        batch[0][0] = batch[0][0].to(dtype);
        EXPECT_EQ(error_of([&] { job.step->run(batch); }).code(), Code::kNotFinite);
      }
    });
  }
}

TEST(NotFinite, ASkippedStepChangesNothingButCounts) {
  for (const MeshSize& ranks : kMeshes) {
    run_ranks(ranks.world, [&](const std::shared_ptr<World>& world) {
      const JudgedJob job(world, options_with(NotFinite::kSkip), ranks.fsdp_size);
      job.step->run(judged_batch({{}}));
      const std::vector<at::Tensor> before = job.values();
      for (const JudgedInputs& bad : {JudgedInputs{INFINITY}, JudgedInputs{0.0, 0}}) {
        const StepResult result =
            job.step->run(judged_batch({world->rank() == 0 ? bad : JudgedInputs{}}));
        EXPECT_FALSE(result.finite || result.applied);
        EXPECT_EQ(result.skips_in_row, result.step);
        EXPECT_TRUE(same_values(job.values(), before));
        EXPECT_FALSE(job.has_gradients());
      }
      const StepResult good = job.step->run(judged_batch({{}}));
      EXPECT_EQ(good.step, 3);
      EXPECT_TRUE(good.applied && good.finite);
      EXPECT_EQ(good.skips_in_row, 0);
      EXPECT_FALSE(same_values(job.values(), before));
    });
  }
}

TEST(NotFinite, MoreSkipsInARowThanAllowedAreAnError) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    StepOptions options = options_with(NotFinite::kSkip);
    options.max_skips_in_row = 2;
    const JudgedJob job(world, options);
    for (const bool is_bad : {true, true, false, true, true}) {
      EXPECT_NE(job.step->run(judged_batch({{is_bad ? kNan : 0.0}})).applied, is_bad);
    }
    const std::string message =
        message_of_error([&] { job.step->run(judged_batch({{kNan}})); }, Code::kNotFinite);
    EXPECT_THAT(message, HasSubstr("step 5: the loss of rank 0 is NaN"));
    EXPECT_THAT(message, HasSubstr("after 2 steps in a row"));
  });
}

TEST(NotFinite, IsAppliedWhereThatIsAskedFor) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const JudgedJob job(world, options_with(NotFinite::kApply));
    const StepResult result = job.step->run(judged_batch({{0.0, 0}}));
    EXPECT_TRUE(result.applied && !result.finite);
    EXPECT_TRUE(std::isnan(result.grad_norm));
    const at::Tensor scale = fsdp::full_parameter(*job.root, *job.optimizer->params()[1]);
    EXPECT_EQ(job.optimizer->params()[1]->name(), "stack.scale");
    EXPECT_TRUE(scale.isnan().any().item<bool>());
    EXPECT_THAT(message_of_error([&] { check_finite({job.root.get()}); }, Code::kNotFinite),
                HasSubstr("since step 0, which applied gradients that are infinite or NaN"));
  });
}

// As clip_grad_norm_ of PyTorch leaves it.
TEST(NotFinite, AClippedNormThatIsNanReachesEveryParameter) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    StepOptions options = options_with(NotFinite::kApply);
    options.max_grad_norm = 1.0;
    const JudgedJob job(world, options);
    EXPECT_TRUE(job.step->run(judged_batch({{0.0, 0}})).applied);
    for (const fsdp::ShardedParam* param : job.optimizer->params()) {
      const at::Tensor whole = fsdp::full_parameter(*job.root, *param);
      EXPECT_TRUE(whole.isnan().all().item<bool>()) << param->name();
    }
  });
}

// The loss and the gradients were finite, so that only the next step could tell.
TEST(NotFinite, ValuesThatAHugeLearningRateRuinedAreNotSaved) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const JudgedJob job(world, options_with(NotFinite::kError), 0, {}, at::kFloat, 1e39);
    EXPECT_TRUE(job.step->run(judged_batch({{}})).finite);
    EXPECT_THAT(message_of_error([&] { check_finite({job.root.get()}); }, Code::kNotFinite),
                HasSubstr("has been infinite or NaN since step 0, whose learning rate is 1e+39: it "
                          "is not saved"));
  });
}

// Adam divides 0 by 0 where a gradient is 0.
TEST(NotFinite, ValuesThatAnEpsOfZeroRuinedAreNotSaved) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const JudgedJob job(world, options_with(NotFinite::kError));
    const std::shared_ptr<Optimizer> optimizer = make_adamw(job.root, {1e-2, 0.9, 0.999, 0.0, 0.0});
    TrainStep step(job.model, optimizer, options_with(NotFinite::kError));
    EXPECT_TRUE(step.run(judged_batch({{0.0, kSound, 0.0}})).finite);
    EXPECT_THAT(message_of_error([&] { check_finite({job.root.get()}); }, Code::kNotFinite),
                HasSubstr("has been infinite or NaN since step 0, whose eps is 0"));
  });
}

TEST(NotFinite, ADecayThatGrowsValuesIsDoubted) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const JudgedJob job(world, options_with(NotFinite::kError));
    const auto doubt_of = [&](double decay) {
      return doubt_of_update(*make_adamw(job.root, {1.0, 0.9, 0.999, 1e-8, decay}), 1.0);
    };
    EXPECT_EQ(doubt_of(0.1), "");
    EXPECT_EQ(doubt_of(1e45), "weight decay is 1e+45");
  });
}

// Another rank may have updated its shards by hand, which only it knows.
TEST(NotFinite, ValuesOfOneRankThatMayBeBadAreLookedAtThere) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const JudgedJob job(world, options_with(NotFinite::kError));
    if (world->rank() == 1) {
      job.root->tree().set_cause_of_bad_values("a test");
      job.optimizer->params()[1]->local_values().fill_(kNan);
    }
    EXPECT_THAT(message_of_error([&] { check_finite({job.root.get()}); }, Code::kNotFinite),
                HasSubstr(world->rank() == 1 ? "since a test" : "since an update on another rank"));
  });
}

TEST(NotFinite, ValuesThatALargeMoveLeftFiniteAreSaved) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const JudgedJob job(world, options_with(NotFinite::kError), 0, {}, at::kFloat, 1e7);
    job.step->run(judged_batch({{}}));
    check_finite({job.root.get()});
  });
}

// Their squares are beyond fp32.
TEST(NotFinite, IsNotSaidOfLargeGradients) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const JudgedJob job(world, options_with(NotFinite::kError));
    const StepResult result = job.step->run(judged_batch({{0.0, kSound, 1e12}}));
    EXPECT_TRUE(result.finite && result.applied);
    EXPECT_GT(result.grad_norm, 1e20);
    EXPECT_TRUE(std::isfinite(result.grad_norm));
  });
}

// Over max_norm it is beyond fp32, and in the last case beyond fp64.
TEST(NotFinite, AHugeNormIsClippedAsAnyOther) {
  for (const double max_norm : {0.1, 1e-20, 1e-300}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      const JudgedJob job(world, options_with(NotFinite::kError));
      StepOptions options = options_with(NotFinite::kError);
      options.max_grad_norm = max_norm;
      const std::shared_ptr<Optimizer> sgd = make_sgd(job.root, {1.0, 0.9});
      TrainStep step(job.model, sgd, options);
      const StepResult result = step.run(judged_batch({{0.0, kSound, 1e18}}));
      EXPECT_TRUE(result.applied);
      EXPECT_GT(result.grad_norm / max_norm, 1e38);
      double squares = 0.0;
      for (size_t i = 0; i < sgd->params().size(); ++i) {
        const at::Tensor whole = fsdp::full_parameter(*job.root, *sgd->params()[i]);
        EXPECT_TRUE(whole.isfinite().all().item<bool>());
        squares += sgd->state(i)[0].tensor.to(at::kDouble).square().sum().item<double>();
      }
      EXPECT_LE(std::sqrt(squares), 1.001 * max_norm + 1e-44);
      EXPECT_TRUE(max_norm < 0.1 || std::sqrt(squares) > 1e-3);  // this rank's part
    });
  }
}

TEST(NotFinite, GradientsUnderALossScaleAreItsAffairButALossIsNot) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    StepOptions options = options_with(NotFinite::kError);
    options.loss_scaling.emplace();
    options.loss_scaling->initial_scale = 8.0;
    const JudgedJob job(world, options);
    const StepResult overflown = job.step->run(judged_batch({{0.0, 0}}));
    EXPECT_FALSE(overflown.applied || overflown.finite);
    EXPECT_EQ(job.step->loss_scaler()->scale(), 4.0);
    EXPECT_EQ(error_of([&] { job.step->run(judged_batch({{kNan}})); }).code(), Code::kNotFinite);
    EXPECT_EQ(job.step->loss_scaler()->scale(), 4.0);
    EXPECT_TRUE(job.step->run(judged_batch({{}})).applied);
  });
}

TEST(NotFinite, CostsNoCollectiveWhileAllIsWellAndOneWhenItIsNot) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const JudgedJob job(world, options_with(NotFinite::kSkip));
    job.step->run(judged_batch({{}}));
    const auto all_reduces_of = [&](double added) {
      world->control().reset_counters();
      job.step->run(judged_batch({{added}}));
      return world->control().counters().all_reduces;
    };
    EXPECT_EQ(all_reduces_of(0.0), 1);
    EXPECT_EQ(all_reduces_of(kNan), 2);
  });
}

}  // namespace
}  // namespace fsdp2::train
