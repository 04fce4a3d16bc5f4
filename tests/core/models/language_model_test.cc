// Models against the logits and the loss that the transformers library gave (tests/parity/golden).
#include "core/models/language_model.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/error.h"
#include "core/ckpt/hugging_face/hugging_face_directory.h"
#include "core/models/registry.h"
#include "core/nn/seeded_init.h"
#include "tests/core/nn/closeness.h"
#include "tests/support/token_windows.h"

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

INSTANTIATE_TEST_SUITE_P(
    Models, Golden,
    ::testing::Values("tiny-llama", "tiny-llama-gqa-tied", "tiny-qwen2", "tiny-qwen2.5",
                      "tiny-qwen3", "tiny-qwen3-moe", "tiny-mixtral", "tiny-gemma", "tiny-gemma2",
                      "tiny-gemma3", "tiny-phi3", "tiny-gpt2", "tiny-gpt2-untied"),
    [](const auto& tested) {
      std::string name = tested.param;
      std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
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

class SequenceInputs : public CausalLMInputs {
 protected:
  SequenceInputs() {
    tokens_ = at::arange(16).mul(7).remainder(40).view({2, 8});
    labels_ = tokens_.roll(-1, 1);
  }

  at::Tensor logits(const at::Tensor& tokens, const c10::IValue& positions = {},
                    const c10::IValue& mask = {}) {
    const c10::NoGradGuard no_grad;
    return (*model_)({tokens, c10::IValue(), positions, mask}).toTensor();
  }
  // Those of columns [begin, end) of row 0 as a batch of their own.
  at::Tensor logits_alone(int64_t begin, int64_t end) {
    return logits(tokens_.slice(0, 0, 1).slice(1, begin, end).contiguous());
  }

  const at::Tensor boundaries_ = at::tensor({0, 3, 8, 16}, at::kLong);
  const at::Tensor restarting_ =
      at::tensor({0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7}, at::kLong).view({2, 8});
};

TEST_F(SequenceInputs, PositionsInOrderChangeNoBit) {
  const at::Tensor positions = at::arange(8).expand({2, 8});
  const at::Tensor loss = (*model_)({tokens_, labels_}).toTensor();
  EXPECT_TRUE((*model_)({tokens_, labels_, positions}).toTensor().equal(loss));
  EXPECT_TRUE((*model_)({tokens_, labels_, c10::IValue(), c10::IValue()}).toTensor().equal(loss));
}

TEST_F(SequenceInputs, PackedSequencesEqualEachOfThemAlone) {
  const at::Tensor packed = logits(tokens_, {}, boundaries_);
  EXPECT_LE(max_difference(packed.slice(0, 0, 1).slice(1, 0, 3), logits_alone(0, 3)), 1e-6);
  EXPECT_LE(max_difference(packed.slice(0, 0, 1).slice(1, 3, 8), logits_alone(3, 8)), 1e-6);
  // Positions that begin anew say the same, as in transformers.
  EXPECT_TRUE(logits(tokens_, restarting_).equal(packed));
  EXPECT_TRUE(logits(tokens_, restarting_, boundaries_).equal(packed));
}

TEST_F(SequenceInputs, PackedSequencesHaveTheGradientsOfEachAlone) {
  const auto gradients_of = [&](const std::vector<nn::Values>& batches) {
    for (const nn::Values& batch : batches) {
      const auto count = static_cast<double>(batch[0].toTensor().numel());
      (*model_)(batch).toTensor().mul(count / 8).backward();
    }
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : nn::named_unique_parameters(*model_)) {
      gradients.push_back(take_gradient(parameter.tensor));
    }
    return gradients;
  };
  const at::Tensor tokens = tokens_.slice(0, 0, 1);
  const at::Tensor labels = labels_.slice(0, 0, 1);
  const auto packed =
      gradients_of({{tokens, labels, c10::IValue(), at::tensor({0, 3, 8}, at::kLong)}});
  const auto alone = gradients_of({{tokens.slice(1, 0, 3), labels.slice(1, 0, 3)},
                                   {tokens.slice(1, 3, 8), labels.slice(1, 3, 8)}});
  for (size_t i = 0; i < packed.size(); ++i) {
    EXPECT_LE(max_difference(packed[i], alone[i]), 1e-6) << i;
  }
}

TEST_F(SequenceInputs, PaddingInFrontChangesNothingBehindIt) {
  const at::Tensor mask = at::ones({2, 8}, at::kLong);
  mask[0].slice(0, 0, 3).fill_(0);
  const at::Tensor positions = at::arange(8).expand({2, 8}).contiguous();
  positions[0].sub_(3).clamp_min_(0);
  const at::Tensor padded = logits(tokens_, positions, mask);
  EXPECT_LE(max_difference(padded.slice(0, 0, 1).slice(1, 3, 8), logits_alone(3, 8)), 1e-6);
  EXPECT_LE(max_difference(padded[1], logits(tokens_)[1]), 1e-6);
  EXPECT_TRUE(padded.isfinite().all().item<bool>());
}

TEST_F(SequenceInputs, PackedSequencesMayBeLongerInAllThanThePositions) {
  const at::Tensor row = tokens_.view({1, 16});
  EXPECT_NO_THROW(logits(row, {}, at::tensor({0, 8, 16}, at::kLong)));
  expect_refused({row, c10::IValue(), c10::IValue(), at::tensor({0, 9, 16}, at::kLong)},
                 {"9 tokens", "8 positions"});
}

TEST_F(SequenceInputs, ThatDoNotFitTheTokensAreRefused) {
  const c10::IValue none;
  expect_refused({tokens_, none, at::zeros({2, 7}, at::kLong)}, {"positions", "[2, 8]", "[2, 7]"});
  expect_refused({tokens_, none, at::zeros({3, 2, 8}, at::kLong)}, {"sections"});
  expect_refused({tokens_, none, none, at::ones({2, 7}, at::kLong)}, {"mask", "[2, 8]", "[2, 7]"});
  expect_refused({tokens_, none, none, at::tensor({0, 8}, at::kLong)}, {"0 to 16"});
  expect_refused({tokens_, none, none, none, none}, {"5 inputs"});
}

// Padding in front, and sequences packed into a row, of a model whose layers see four positions.
TEST(SlidingWindow, HoldsWithinPaddedAndPackedSequences) {
  const auto model = build(R"({
    "model_type": "mistral", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 16, "sliding_window": 4
  })");
  nn::SeededInit source(1, 0.3);
  nn::materialize(*model, source);
  const c10::NoGradGuard no_grad;
  const c10::IValue none;
  const at::Tensor tokens = at::arange(13).mul(7).remainder(40).view({1, 13});
  const at::Tensor alone = (*model)(tokens.slice(1, 3).contiguous());
  const at::Tensor packed =
      (*model)({tokens, none, none, at::tensor({0, 3, 13}, at::kLong)}).toTensor();
  EXPECT_LE(max_difference(packed.slice(1, 3), alone), 1e-5);
  const at::Tensor is_token = at::arange(13).ge(3).view({1, 13});
  const at::Tensor positions = at::arange(13).sub(3).clamp_min(0).view({1, 13});
  const at::Tensor padded = (*model)({tokens, none, positions, is_token}).toTensor();
  EXPECT_LE(max_difference(padded.slice(1, 3), alone), 1e-5);
}

// Counts calls of an operator by this thread.
class CallsOf {
 public:
  explicit CallsOf(const char* name) {
    name_ = name;
    count_ = 0;
    callback_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function) {
          count_ += function.name() == name_ ? 1 : 0;
          return std::unique_ptr<at::ObserverContext>();
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~CallsOf() { at::removeCallback(callback_); }
  CallsOf(const CallsOf&) = delete;
  CallsOf& operator=(const CallsOf&) = delete;

  int count() const { return count_; }

 private:
  static thread_local std::string name_;
  static thread_local int count_;
  at::CallbackHandle callback_;
};
thread_local std::string CallsOf::name_;
thread_local int CallsOf::count_;

TEST(SlidingWindow, IsOneMaskForAllLayers) {
  const auto model = build(R"({
    "model_type": "mistral", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 16, "sliding_window": 4
  })");
  nn::SeededInit source(1, 0.3);
  nn::materialize(*model, source);
  const CallsOf masks("aten::triu");
  (*model)(at::zeros({1, 13}, at::kLong));
  EXPECT_EQ(masks.count(), 1);
  (*model)(at::zeros({1, 4}, at::kLong));  // all within a window
  EXPECT_EQ(masks.count(), 1);
}

// As in transformers, a window is 4096 positions where the key is left out, and null is none.
TEST(SlidingWindow, HasTheSizeOfTransformersUnlessTheConfigSaysOtherwise) {
  const auto last_sees_first = [](const std::string& keys) {
    const auto model = build(R"({
      "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
      "num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 5000,
      )" + keys + "}");
    nn::SeededInit source(1, 0.3);
    nn::materialize(*model, source);
    const c10::NoGradGuard no_grad;
    const at::Tensor tokens = at::zeros({1, 4097}, at::kLong);
    const at::Tensor other = tokens.clone();
    other[0][0] = 1;
    const at::Tensor last = (*model)(tokens).select(1, -1);
    return !last.equal((*model)(other).select(1, -1));
  };
  EXPECT_FALSE(last_sees_first(R"("model_type": "mistral")"));
  EXPECT_TRUE(last_sees_first(R"("model_type": "mistral", "sliding_window": null)"));
  const std::string qwen2 = R"("model_type": "qwen2", "max_window_layers": 0)";
  EXPECT_TRUE(last_sees_first(qwen2));
  EXPECT_FALSE(last_sees_first(qwen2 + R"(, "use_sliding_window": true)"));
  EXPECT_TRUE(last_sees_first(qwen2 + R"(, "use_sliding_window": true, "sliding_window": null)"));
}

TEST(LearnedPositions, AreRowsOfTheTable) {
  const auto model = build(R"({
    "model_type": "gpt2", "vocab_size": 40, "n_embd": 16, "n_layer": 1, "n_head": 4,
    "n_positions": 8, "embd_pdrop": 0, "attn_pdrop": 0, "resid_pdrop": 0
  })");
  nn::SeededInit source(1, 0.3);
  nn::materialize(*model, source);
  const c10::NoGradGuard no_grad;
  const c10::IValue none;
  const at::Tensor tokens = at::arange(6).view({1, 6});
  const at::Tensor positions = at::arange(6).view({1, 6});
  const at::Tensor expected = (*model)(tokens);
  EXPECT_TRUE((*model)({tokens, none, positions}).toTensor().equal(expected));
  EXPECT_GT(max_difference((*model)({tokens, none, positions + 2}).toTensor(), expected), 1e-3);
  // Sequences packed into a row have positions of their own.
  const at::Tensor packed =
      (*model)({tokens, none, none, at::tensor({0, 4, 6}, at::kLong)}).toTensor();
  EXPECT_LE(max_difference(packed.slice(1, 4), (*model)(tokens.slice(1, 4).contiguous())), 1e-6);
  for (const auto& [wrong, message] :
       {std::pair(positions + 3, "position 8 at position [0, 5] is outside"),
        std::pair(positions.to(at::kFloat), "expected integers [batch, sequence], got Float"),
        std::pair(positions.expand({3, 1, 6}), "got Long of 3 dims")}) {
    try {
      (*model)({tokens, none, wrong});
      ADD_FAILURE() << message << ": was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_THAT(error.message(), HasSubstr(message));
    }
  }
}

TEST(RopeSections, TakeThreePositionsOfEachToken) {
  const auto model = build(R"({
    "model_type": "llama", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 24,
    "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 8,
    "rope_scaling": {"type": "default", "mrope_section": [2, 1, 1]}
  })");
  nn::SeededInit source(1, 0.3);
  nn::materialize(*model, source);
  const c10::NoGradGuard no_grad;
  const at::Tensor tokens = at::arange(8).view({1, 8});
  const at::Tensor text = at::arange(8).expand({3, 1, 8});
  const c10::IValue none;
  const at::Tensor expected = (*model)(tokens);
  EXPECT_TRUE((*model)({tokens, none, text}).toTensor().equal(expected));
  const at::Tensor image = text.clone();
  image[2].fill_(0);
  EXPECT_GT(max_difference((*model)({tokens, none, image}).toTensor(), expected), 1e-4);
}

}  // namespace
}  // namespace fsdp2::models
