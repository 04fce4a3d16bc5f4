// Which tokens a masked language model hides, and what it makes of them.
#include "core/nn/random/hidden_tokens.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/models/language_model.h"
#include "core/models/registry.h"
#include "core/nn/own_generator.h"
#include "core/nn/random/row_keys.h"
#include "core/nn/seeded_init.h"
#include "core/nn/token_loss.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::models {
namespace {

using nn::count_hidden;
using nn::HiddenTokens;
using nn::hide_tokens;
using nn::Hiding;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr int64_t kVocabulary = 40;
constexpr int64_t kMask = 39;
constexpr int64_t kNone = -100;
constexpr Hiding kHiding = {kMask, 0.15};

// Rows of tokens below the mask token, each with others.
at::Tensor some_tokens(int64_t rows, int64_t length) {
  return (at::arange(rows * length) * 7).remainder(kMask - 1).view({rows, length});
}

at::Tensor keys_of(int64_t rows) { return at::arange(rows, at::kInt).mul(7919).add(5); }

HiddenTokens hide(const at::Tensor& tokens, const at::Tensor& labels) {
  return hide_tokens(tokens, labels, kHiding, keys_of(tokens.size(0)));
}

// By row.
std::vector<int64_t> counts_of(const at::Tensor& labels) {
  const at::Tensor counts = labels.ne(kNone).sum(1);
  return {counts.const_data_ptr<int64_t>(), counts.const_data_ptr<int64_t>() + counts.numel()};
}

TEST(HiddenTokens, AreReplacedByTheMaskTokenAndBecomeTheLabels) {
  const at::Tensor tokens = some_tokens(3, 41);
  const HiddenTokens hidden = hide(tokens, tokens);
  const at::Tensor is_hidden = hidden.labels.ne(kNone);
  EXPECT_TRUE(hidden.tokens.eq(kMask).equal(is_hidden));
  EXPECT_TRUE(at::where(is_hidden, hidden.labels, hidden.tokens).equal(tokens));
  EXPECT_FALSE(is_hidden[0].equal(is_hidden[1]));
}

TEST(HiddenTokens, AreTheShareOfEachRowAndOneAtLeast) {
  EXPECT_EQ(counts_of(hide(some_tokens(3, 41), some_tokens(3, 41)).labels),
            (std::vector<int64_t>{6, 6, 6}));
  EXPECT_EQ(counts_of(hide(some_tokens(1, 3), some_tokens(1, 3)).labels), std::vector<int64_t>{1});
  EXPECT_EQ(counts_of(hide(some_tokens(1, 1), some_tokens(1, 1)).labels), std::vector<int64_t>{0});
}

TEST(HiddenTokens, AreOnlyThoseThatCausalModelsAreToTell) {
  const at::Tensor tokens = some_tokens(2, 20);
  at::Tensor labels = at::full({2, 20}, kNone);
  labels[0].slice(0, 4, 10).fill_(1);
  const HiddenTokens hidden = hide(tokens, labels);
  EXPECT_EQ(counts_of(hidden.labels), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(counts_of(hidden.labels.slice(1, 5, 11)), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(count_hidden(labels, kHiding), 1);
  EXPECT_EQ(count_hidden(tokens, kHiding), 6);
  EXPECT_EQ(count_hidden(tokens[0], kHiding), 0);
}

TEST(HiddenTokens, OfARowDependOnItsKeyAlone) {
  const at::Tensor tokens = some_tokens(4, 30);
  const HiddenTokens all = hide(tokens, tokens);
  const at::Tensor last = tokens.narrow(0, 3, 1);
  const HiddenTokens one = hide_tokens(last, last, kHiding, keys_of(4).narrow(0, 3, 1));
  EXPECT_TRUE(one.tokens[0].equal(all.tokens[3]));
  const HiddenTokens other = hide_tokens(last, last, kHiding, keys_of(1));
  EXPECT_FALSE(other.tokens.equal(one.tokens));
}

Json config_of(const Json& changes = Json::object()) {
  Json config = {{"model_type", "encoder"},  {"vocab_size", kVocabulary},
                 {"hidden_size", 16},        {"num_hidden_layers", 2},
                 {"num_attention_heads", 4}, {"max_position_embeddings", 32},
                 {"mask_token_id", kMask},   {"dropout", 0.0}};
  config.update(changes);
  return config;
}

std::shared_ptr<nn::Module> make_encoder(const Json& changes = Json::object()) {
  auto model = build(config_of(changes).dump());
  nn::SeededInit source(1, 0.3);
  nn::materialize(*model, source);
  return model;
}

template <typename Call>
void expect_refused(const Call& call, Code code, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "was accepted: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_THAT(error.message(), HasSubstr(part));
  }
}

TEST(Encoder, HasTheLossOfHiddenTokensAlone) {
  const auto model = make_encoder();
  model->eval();
  const c10::NoGradGuard no_grad;
  const at::Tensor tokens = some_tokens(2, 21);
  const at::Tensor labels = at::full({2, 21}, 1);
  const at::Tensor loss = (*model)({tokens, labels}).toTensor();
  EXPECT_TRUE((*model)({tokens, labels}).toTensor().equal(loss));  // nothing is drawn
  EXPECT_EQ(nn::token_loss(*model, "a test").counted_labels({tokens, labels}), 2 * 3);
  const HiddenTokens hidden = hide_tokens(tokens, labels, kHiding, nn::hash_rows(tokens));
  const at::Tensor logits = (*model)(hidden.tokens);
  EXPECT_NEAR(loss.item<double>(),
              at::cross_entropy_loss(logits.flatten(0, 1), hidden.labels.flatten()).item<double>(),
              1e-5);
  at::Tensor few = labels.clone();
  few.slice(1, 0, 20).fill_(kNone);  // the last label follows the row
  EXPECT_TRUE(at::isnan((*model)({tokens, few}).toTensor()).item<bool>());
}

TEST(Encoder, HidesOthersAtEachForwardInTraining) {
  const auto model = make_encoder();
  const at::Tensor tokens = some_tokens(2, 21);
  const auto loss = [&] { return (*model)({tokens, tokens}).toTensor(); };
  model->train();
  auto generator = nn::own_generator_of(*model).value();
  generator.set_current_seed(3);
  const at::Tensor first = loss();
  EXPECT_FALSE(loss().equal(first));
  generator.set_current_seed(3);
  EXPECT_TRUE(loss().equal(first));
}

TEST(Encoder, SeesBothWaysButNoPadding) {
  const auto model = make_encoder();
  const c10::NoGradGuard no_grad;
  const c10::IValue none;
  const at::Tensor tokens = some_tokens(2, 12);
  at::Tensor other = tokens.clone();
  other.select(1, 11).add_(1);
  const auto logits = [&](const at::Tensor& given, const c10::IValue& mask) {
    return (*model)({given, none, none, mask}).toTensor();
  };
  const auto first = [](const at::Tensor& all) { return all.select(1, 0); };
  EXPECT_GT(max_difference(first(logits(other, none)), first(logits(tokens, none))), 1e-3);
  at::Tensor is_token = at::ones({2, 12}, at::kLong);
  is_token.select(1, 11).zero_();
  EXPECT_EQ(max_difference(first(logits(other, is_token)), first(logits(tokens, is_token))), 0);
  EXPECT_LE(max_difference(logits(tokens, is_token).slice(1, 0, 11),
                           logits(tokens.slice(1, 0, 11).contiguous(), none)),
            1e-5);
  is_token[1].zero_();  // a row without a token
  EXPECT_TRUE(logits(tokens, is_token).isfinite().all().item<bool>());
}

TEST(Encoder, ScoresEachHiddenTokenInItsPlace) {
  const auto model = make_encoder();
  model->eval();
  const c10::NoGradGuard no_grad;
  const at::Tensor tokens = some_tokens(2, 21);
  const at::Tensor log_probs =
      language_model(*model, "a test").score({tokens, tokens}, {}).log_probs;
  const HiddenTokens hidden = hide_tokens(tokens, tokens, kHiding, nn::hash_rows(tokens));
  EXPECT_TRUE(log_probs.ne(0).equal(hidden.labels.ne(kNone)));
  EXPECT_FALSE(language_model(*model, "a test").is_causal());
  EXPECT_NEAR(-log_probs.sum().item<double>() / (2 * 3),
              (*model)({tokens, tokens}).toTensor().item<double>(), 1e-5);
}

TEST(Encoder, RefusesToGenerate) {
  const auto model = make_encoder();
  LanguageModel& language = language_model(*model, "a test");
  const at::Tensor tokens = some_tokens(1, 6);
  expect_refused([&] { language.logits_at({tokens}, at::tensor({5}, at::kLong)); },
                 Code::kUnsupported, "EncoderForMaskedLM: generation needs a causal model");
}

TEST(Encoder, RefusesMistakesOfItsConfig) {
  const auto refused = [](const Json& changes, Code code, const char* part) {
    expect_refused([&] { build(config_of(changes).dump()); }, code, part);
  };
  refused({{"mask_token_id", kVocabulary}}, Code::kInvalidArgument, "\"mask_token_id\"");
  refused({{"mask_token_id", nullptr}}, Code::kInvalidArgument, "\"mask_token_id\"");
  refused({{"mask_probability", 0.0}}, Code::kInvalidArgument, "no token would be hidden");
  refused({{"mask_probability", 1.0}}, Code::kInvalidArgument, "\"mask_probability\"");
  refused({{"num_attention_heads", 3}}, Code::kInvalidArgument, "should divide \"hidden_size\"");
  refused({{"norm_first", true}}, Code::kUnsupported, "\"norm_first\" true is not supported");
}

}  // namespace
}  // namespace fsdp2::models
