// Models against the logits and the loss that the transformers library gave (tests/parity/golden).
#include "core/models/language_model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"
#include "core/ckpt/safetensors/hugging_face_directory.h"
#include "core/models/registry.h"
#include "core/nn/seeded_init.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::models {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr double kLogitTolerance = 2e-5;
const std::string kGolden = "tests/parity/golden/";

Json read_json(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

// `count` windows of length + 1 tokens (neighbours share one), from a file of 16-bit tokens.
at::Tensor read_windows(const std::string& path, int64_t count, int64_t length) {
  std::ifstream file(path, std::ios::binary);
  std::vector<uint16_t> raw(static_cast<size_t>(count * length + 1));
  file.read(reinterpret_cast<char*>(raw.data()), static_cast<std::streamsize>(raw.size() * 2));
  at::Tensor windows = at::empty({count, length + 1}, at::kLong);
  for (int64_t window = 0; window < count; ++window) {
    for (int64_t i = 0; i <= length; ++i) {
      windows[window][i] = raw[static_cast<size_t>(window * length + i)];
    }
  }
  return windows;
}

std::shared_ptr<nn::Module> load(const std::string& name, at::ScalarType dtype = at::kFloat) {
  ckpt::HuggingFaceDirectory directory(kGolden + "models/" + name);
  auto model = build(directory.config_json(), dtype);
  nn::materialize(*model, directory);
  return model;
}

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  Golden() {
    expected_ = read_json(kGolden + GetParam() + ".json");
    const auto length = expected_["logits"]["seq_len"].get<int64_t>();
    const at::Tensor windows = read_windows(kGolden + "tokens/" + GetParam() + ".bin", 2, length);
    tokens_ = windows.narrow(1, 0, length).contiguous();
    labels_ = windows.narrow(1, 1, length).contiguous();
  }

  Json expected_;
  at::Tensor tokens_;
  at::Tensor labels_;
};

TEST_P(Golden, LogitsEqualThoseOfTransformers) {
  const Json& expected = expected_["logits"];
  const auto model = load(GetParam());
  const c10::NoGradGuard no_grad;
  const at::Tensor logits = (*model)(tokens_);
  const int64_t vocab_size = language_model(*model, "a test").vocab_size();
  ASSERT_EQ(logits.sizes(), at::IntArrayRef({2, tokens_.size(1), vocab_size}));
  for (size_t i = 0; i < expected["positions"].size(); ++i) {
    const auto position = expected["positions"][i].get<std::vector<int64_t>>();
    const at::Tensor row = logits[position[0]][position[1]];
    for (int64_t j = 0; j < 8; ++j) {
      EXPECT_NEAR(row[j].item<double>(),
                  expected["first_8"][i][static_cast<size_t>(j)].get<double>(), kLogitTolerance);
    }
    EXPECT_NEAR(row.to(at::kDouble).logsumexp(0).item<double>(),
                expected["logsumexp"][i].get<double>(), kLogitTolerance);
    EXPECT_EQ(row.argmax().item<int64_t>(), expected["argmax"][i].get<int64_t>());
  }
}

TEST_P(Golden, LossEqualsThatOfTransformers) {
  const auto model = load(GetParam());
  const c10::NoGradGuard no_grad;
  const at::Tensor loss = (*model)({tokens_, labels_}).toTensor();
  EXPECT_NEAR(loss.item<double>(), expected_["logits"]["loss"].get<double>(), 5e-6);
}

TEST_P(Golden, LossAndLogitsHaveTheSameGradients) {
  const auto model = load(GetParam());
  (*model)({tokens_, labels_}).toTensor().backward();
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : nn::named_unique_parameters(*model)) {
    gradients.push_back(take_gradient(parameter.tensor));
  }
  at::cross_entropy_loss((*model)(tokens_).flatten(0, 1), labels_.flatten()).backward();
  size_t i = 0;
  for (const auto& parameter : nn::named_unique_parameters(*model)) {
    // A key's bias hardly matters to the softmax: its gradient is near zero.
    EXPECT_LE(max_difference(gradients[i++], parameter.tensor.grad()),
              2e-6 + 1e-5 * parameter.tensor.grad().abs().max().item<double>())
        << parameter.names[0];
  }
}

// Gradient norms of the first step of the recorded run: windows 0 to 7 as one batch.
TEST_P(Golden, FirstStepGradientsEqualThoseOfTransformers) {
  const auto model = load(GetParam());
  const int64_t length = tokens_.size(1);
  const at::Tensor windows = read_windows(kGolden + "tokens/" + GetParam() + ".bin", 8, length);
  (*model)({windows.narrow(1, 0, length).contiguous(), windows.narrow(1, 1, length).contiguous()})
      .toTensor()
      .backward();
  const Json& norms = expected_["first_step_grad_norms"];
  std::set<std::string> seen;
  for (const auto& parameter : nn::named_unique_parameters(*model)) {
    const std::string& name = parameter.names[0];
    ASSERT_TRUE(norms.contains(name)) << name;
    const auto expected = norms[name].get<double>();
    EXPECT_NEAR(parameter.tensor.grad().to(at::kDouble).norm().item<double>(), expected,
                2e-6 + 2e-5 * expected)
        << name;
    seen.insert(parameter.names.begin(), parameter.names.end());
  }
  for (const auto& [name, norm] : norms.items()) {
    EXPECT_TRUE(seen.count(name)) << name;
  }
}

TEST_P(Golden, InBfloat16StaysClose) {
  const auto model = load(GetParam(), at::kBFloat16);
  const at::Tensor loss = (*model)({tokens_, labels_}).toTensor();
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), expected_["logits"]["loss"].get<double>(), 1e-2);
  loss.backward();
  EXPECT_EQ(model->parameters()[0].grad().scalar_type(), at::kBFloat16);
  const c10::NoGradGuard no_grad;
  EXPECT_EQ((*model)(tokens_).scalar_type(), at::kBFloat16);
}

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         ::testing::Values("tiny-llama", "tiny-llama-gqa-tied", "tiny-qwen2",
                                           "tiny-qwen2.5", "tiny-qwen3", "tiny-qwen3-moe"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

class CausalLMInputs : public ::testing::Test {
 protected:
  CausalLMInputs() {
    nn::SeededInit source(1);
    nn::materialize(*model_, source);
  }

  void expect_refused(const nn::Values& inputs, const std::vector<std::string>& parts) {
    try {
      (*model_)(inputs);
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.message();
      for (const std::string& part : parts) {
        EXPECT_THAT(error.message(), HasSubstr(part));
      }
    }
  }

  std::shared_ptr<nn::Module> model_ = build(R"({
    "model_type": "llama", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 8
  })");
  at::Tensor tokens_ = at::zeros({2, 8}, at::kLong);
  at::Tensor labels_ = at::zeros({2, 8}, at::kLong);
};

TEST_F(CausalLMInputs, ATokenOutsideTheVocabularyIsNamedWithItsPosition) {
  tokens_[1][3] = 40;
  expect_refused({tokens_}, {"token 40", "[1, 3]", "vocabulary of 40"});
  tokens_[1][3] = -1;
  expect_refused({tokens_, labels_}, {"token -1", "[1, 3]"});
}

TEST_F(CausalLMInputs, ALabelOutsideTheVocabularyIsNamedWithItsPosition) {
  labels_[0][7] = 41;
  expect_refused({tokens_, labels_}, {"label 41", "[0, 7]", "vocabulary of 40"});
  labels_[0][7] = -99;
  expect_refused({tokens_, labels_}, {"label -99", "[0, 7]"});
}

TEST_F(CausalLMInputs, TheIgnoredLabelIsFine) {
  labels_[0].fill_(-100);
  EXPECT_NO_THROW((*model_)({tokens_, labels_}));
}

TEST_F(CausalLMInputs, NoneForLabelsGivesLogits) {
  EXPECT_EQ((*model_)({tokens_, c10::IValue()}).toTensor().dim(), 3);
}

TEST_F(CausalLMInputs, ASequenceBeyondThePositionsIsRefused) {
  expect_refused({at::zeros({1, 9}, at::kLong)}, {"9 tokens", "8 positions"});
}

TEST_F(CausalLMInputs, WrongShapesAndTypesAreRefused) {
  expect_refused({at::zeros({8}, at::kLong)}, {"[batch, sequence]"});
  expect_refused({at::zeros({2, 0}, at::kLong)}, {"non-empty"});
  expect_refused({at::zeros({2, 8}, at::kInt)}, {"int64", "Int"});
  expect_refused({tokens_, at::zeros({2, 7}, at::kLong)}, {"[2, 8]", "[2, 7]"});
  expect_refused({}, {"expected tokens"});
}

}  // namespace
}  // namespace fsdp2::models
