// Vision-language models against transformers: logits, loss and the gradients of one step, whole
// and over ranks, of which some have no image.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "core/ckpt/hugging_face/hugging_face_directory.h"
#include "core/fsdp/fully_shard.h"
#include "core/models/language_model.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/train/infer/score.h"
#include "tests/parity/vision_language/vision_case.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using nlohmann::json;

struct Closeness {
  double logits = 3e-5;
  double loss = 5e-6;
  double gradient = 2e-6;  // and, of the norm
  double relative = 2e-5;
};
// Numbers have 8 significant bits, with products in another order.
constexpr Closeness kBfloat16 = {6e-2, 2e-2, 2e-3, 6e-2};

void expect_logits(const at::Tensor& logits, const json& expected, const Closeness& closeness) {
  for (size_t i = 0; i < expected.at("positions").size(); ++i) {
    const auto position = expected.at("positions").at(i).get<std::vector<int64_t>>();
    for (int64_t j = 0; j < 8; ++j) {
      EXPECT_NEAR(logits[position[0]][position[1]][j].item<double>(),
                  expected.at("first_8").at(i).at(static_cast<size_t>(j)).get<double>(),
                  closeness.logits)
          << "at " << position[0] << ", " << position[1];
    }
  }
}

void expect_gradient(const at::Tensor& gradient, const json& expected, const std::string& name,
                     const Closeness& closeness) {
  const at::Tensor wide = gradient.to(at::kDouble).flatten();
  const auto norm = expected.at("norm").get<double>();
  EXPECT_NEAR(wide.norm().item<double>(), norm, closeness.gradient + closeness.relative * norm)
      << name;
  const at::Tensor wave = at::arange(wide.numel(), at::kDouble).cos();
  // The product of two vectors is as close as their norms allow.
  const double scale = norm * wave.norm().item<double>();
  EXPECT_NEAR(wide.dot(wave).item<double>(), expected.at("wave").get<double>(),
              closeness.gradient + closeness.relative * scale)
      << name;
}

at::Tensor logits_of(nn::Module& model, nn::Values inputs) {
  const c10::NoGradGuard no_grad;
  inputs[1] = {};
  return model(std::move(inputs)).toTensor().to(at::kFloat);
}

int64_t n_labels(const nn::Values& inputs) {
  return inputs[1].toTensor().ne(-100).sum().item<int64_t>();
}

// ---- whole

class Whole : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  const std::string model_ = std::get<0>(GetParam());
  const std::string case_ = std::get<1>(GetParam());
  const bool is_bfloat16_ = case_ == "bfloat16";
  const Closeness closeness_ = is_bfloat16_ ? kBfloat16 : Closeness{};
  const at::ScalarType dtype_ = is_bfloat16_ ? at::kBFloat16 : at::kFloat;
};

TEST_P(Whole, LogitsLossAndGradientsEqualThoseOfTransformers) {
  // As one rank, on one thread.
  run_ranks(1, [&](const std::shared_ptr<World>&) {
    const VisionCase given(model_, case_);
    const auto model = load_vision_model(model_, dtype_);
    if (case_ == "frozen") {
      freeze_encoder(*model);
    }
    const nn::Values inputs = given.all(*model);
    expect_logits(logits_of(*model, inputs), given.expected, closeness_);
    const at::Tensor loss = (*model)(inputs).toTensor();
    EXPECT_NEAR(loss.item<double>(), given.expected.at("loss").get<double>(), closeness_.loss);
    loss.backward();
    const json& gradients = given.expected.at("gradients");
    size_t checked = 0;
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*model)) {
      const std::string& name = parameter.names.front();
      ASSERT_EQ(parameter.tensor.grad().defined(), gradients.contains(name)) << name;
      if (gradients.contains(name)) {
        expect_gradient(parameter.tensor.grad(), gradients.at(name), name, closeness_);
        ++checked;
      }
    }
    EXPECT_EQ(checked, gradients.size());
  });
}

std::string name_of(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return !std::isalnum(c); }, '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(Cases, Whole,
                         ::testing::Combine(::testing::ValuesIn(kVisionModels),
                                            ::testing::Values("images", "text", "frozen", "videos",
                                                              "padded", "bfloat16")),
                         [](const auto& tested) {
                           return name_of(std::get<0>(tested.param) + "_" +
                                          std::get<1>(tested.param));
                         });

// ---- over ranks

struct Job {
  int ranks;
  int shard;  // ranks of a shard group
  const char* name;
};

class Sharded : public ::testing::TestWithParam<std::tuple<std::string, Job>> {
 protected:
  const std::string model_ = std::get<0>(GetParam());
  const Job job_ = std::get<1>(GetParam());

  // The batch is cut over the ranks, of which some get no image.
  void expect_parity(const std::string& name, const fsdp::Policy& policy,
                     const Closeness& closeness, bool recomputes = false) {
    SCOPED_TRACE(name);
    run_ranks(job_.ranks, [&](const std::shared_ptr<World>& world) {
      const VisionCase given(model_, name);
      const int64_t rows = given.n_rows() / world->size();
      if (rows == 0) {
        return;
      }
      const auto model = build_vision_model(model_);
      if (name == "frozen") {
        freeze_encoder(*model);
      }
      if (recomputes) {
        nn::checkpoint_by_kind(*model, model->no_split_kinds());
      }
      const auto root = fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, job_.shard), policy,
                                                  model->no_split_kinds());
      ckpt::HuggingFaceDirectory source(vision_directory(model_));
      fsdp::load_parameters(*root, source);
      const nn::Values own = given.rows(*model, world->rank() * rows, rows);
      const at::Tensor loss = (*model)(own).toTensor();
      // The mean over ranks of this is the mean over all labels.
      const double share = static_cast<double>(n_labels(own) * world->size()) /
                           static_cast<double>(n_labels(given.inputs));
      (loss * share).backward();
      expect_gradients(*root, given.expected.at("gradients"), closeness);
    });
  }

  static void expect_gradients(fsdp::Unit& root, const json& gradients,
                               const Closeness& closeness) {
    size_t checked = 0;
    for (const fsdp::ShardedParam* param : root.parameters()) {
      const at::Tensor gradient = fsdp::full_gradient(root, *param);
      ASSERT_EQ(gradient.defined(), gradients.contains(param->name())) << param->name();
      if (gradient.defined()) {
        expect_gradient(gradient, gradients.at(param->name()), param->name(), closeness);
        ++checked;
      }
    }
    EXPECT_EQ(checked, gradients.size());
  }
};

TEST_P(Sharded, GradientsEqualThoseOfTransformersThoughSomeRanksHaveNoImage) {
  for (const char* name : {"images", "text", "frozen", "videos", "padded"}) {
    expect_parity(name, {}, {});
  }
}

TEST_P(Sharded, RecomputedLayersGiveTheSameGradients) {
  expect_parity("images", {}, {}, /*recomputes=*/true);
}

TEST_P(Sharded, GradientsInBfloat16StayClose) {
  fsdp::Policy policy;
  policy.mixed_precision.param_dtype = at::kBFloat16;
  policy.mixed_precision.reduce_dtype = at::kFloat;
  expect_parity("bfloat16", policy, kBfloat16);
}

INSTANTIATE_TEST_SUITE_P(Jobs, Sharded,
                         ::testing::Combine(::testing::ValuesIn(kVisionModels),
                                            ::testing::Values(Job{1, 1, "x1"}, Job{2, 2, "x2"},
                                                              Job{4, 4, "x4"}, Job{4, 2, "x2x2"})),
                         [](const auto& tested) {
                           return name_of(std::get<0>(tested.param) + "_" +
                                          std::get<1>(tested.param).name);
                         });

// ---- scoring

class Scoring : public ::testing::TestWithParam<std::string> {};

TEST_P(Scoring, RowsOfABatchTakeTheirImagesAlong) {
  run_ranks(1, [&](const std::shared_ptr<World>&) {
    for (const char* name : {"images", "videos"}) {
      const VisionCase given(GetParam(), name);
      const auto model = load_vision_model(GetParam());
      std::vector<at::Tensor> inputs;
      for (const c10::IValue& input : given.inputs) {
        inputs.push_back(input.isTensor() ? input.toTensor() : at::Tensor());
      }
      train::InferOptions by_row;
      by_row.batch_size = 1;
      const nn::TokenScores expected = train::score(*model, inputs, {});
      const nn::TokenScores scores = train::score(*model, inputs, by_row);
      EXPECT_LT((scores.log_probs - expected.log_probs).abs().max().item<double>(), 2e-5) << name;
      EXPECT_NEAR(-scores.log_probs.mean().item<double>(), given.expected.at("loss").get<double>(),
                  1e-5)
          << name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Models, Scoring, ::testing::ValuesIn(kVisionModels),
                         [](const auto& tested) { return name_of(tested.param); });

}  // namespace
}  // namespace fsdp2
