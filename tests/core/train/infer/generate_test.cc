// Generation against what the transformers library wrote (tests/parity/generation), and against
// itself: rows alone, in batches, and on several ranks.
#include "core/train/infer/generate.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/hugging_face/hugging_face_directory.h"
#include "tests/core/train/infer/small_llama.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

Json golden() {
  std::ifstream file("tests/parity/generation/generations.json");
  return Json::parse(file);
}

GenerateOptions greedy(int64_t max_new_tokens) {
  GenerateOptions options;
  options.max_new_tokens = max_new_tokens;
  options.sampler.temperature = 0.0;
  return options;
}

class GoldenGeneration : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenGeneration, OfSeveralPromptsEqualsTransformers) {
  const Json expected = golden()["models"][GetParam()];
  ckpt::HuggingFaceDirectory directory(std::string("tests/parity/golden/models/") + GetParam());
  const auto model = models::build(directory.config_json());
  nn::materialize(*model, directory);
  const auto prompts = expected["prompts"].get<TokenRows>();
  GenerateOptions options = greedy(10);
  check_generation(*model, prompts, options);
  EXPECT_EQ(generate(*model, prompts, options), expected["to_the_end"].get<TokenRows>());
  options.stop_tokens = expected["stop_tokens"].get<std::vector<int64_t>>();
  EXPECT_EQ(generate(*model, prompts, options), expected["stopped"].get<TokenRows>());
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenGeneration,
                         ::testing::Values("tiny-llama", "tiny-gpt2", "tiny-qwen3",
                                           "tiny-qwen3-moe"));

TEST(Sampler, DrawsFromWhatTransformersFiltersLeave) {
  constexpr int kDraws = 3000;
  const Json expected = golden();
  const at::Tensor logits = at::tensor(expected["logits"].get<std::vector<float>>());
  for (const Json& filter : expected["filters"]) {
    SamplerOptions options;
    options.temperature = filter["temperature"].get<double>();
    options.top_k = filter["top_k"].get<int64_t>();
    options.top_p = filter["top_p"].get<double>();
    check_sampler(options, logits.numel());
    const auto kept = filter["kept"].get<std::set<int64_t>>();
    std::vector<int64_t> counts(static_cast<size_t>(logits.numel()), 0);
    Sampler sampler(options, 0);
    for (int i = 0; i < kDraws; ++i) {
      ++counts[static_cast<size_t>(sampler.next(logits))];
    }
    at::Tensor probabilities = (logits / options.temperature).exp();
    for (int64_t token = 0; token < logits.numel(); ++token) {
      if (kept.count(token) == 0) {
        EXPECT_EQ(counts[static_cast<size_t>(token)], 0) << filter << ": " << token;
        probabilities[token] = 0;
      }
    }
    probabilities /= probabilities.sum();
    for (int64_t token = 0; token < logits.numel(); ++token) {
      const double expected_share = probabilities[token].item<double>();
      EXPECT_NEAR(static_cast<double>(counts[static_cast<size_t>(token)]) / kDraws, expected_share,
                  0.04)
          << filter << ": " << token;
    }
  }
}

TEST(Sampler, DrawsByTheSeedAndTheNumberOfTheRow) {
  const at::Tensor logits = at::zeros({1000});
  const auto draws_of = [&](uint64_t seed, int64_t row) {
    SamplerOptions options;
    options.seed = seed;
    Sampler sampler(options, row);
    return std::vector<int64_t>{sampler.next(logits), sampler.next(logits), sampler.next(logits)};
  };
  EXPECT_EQ(draws_of(3, 1), draws_of(3, 1));
  std::set<std::vector<int64_t>> all;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (int64_t row = 0; row < 10; ++row) {
      all.insert(draws_of(seed, row));
    }
  }
  EXPECT_EQ(all.size(), 100);
}

TEST(Sampler, TheSmallestTemperatureAndTopPLeaveTheMostLikelyToken) {
  const at::Tensor logits = at::tensor({1.0F, -20.0F, 90.0F, 89.0F});
  const auto draw = [&](double temperature, double top_p) {
    SamplerOptions options;
    options.temperature = temperature;
    options.top_p = top_p;
    check_sampler(options, logits.numel());
    return Sampler(options, 0).next(logits);
  };
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(draw(1e-45, 1.0), 2);
  EXPECT_EQ(draw(kLeast, 1.0), 2);
  EXPECT_EQ(draw(1.0, 1e-300), 2);
  EXPECT_EQ(draw(1.0, kLeast), 2);
  EXPECT_EQ(draw(kLeast, kLeast), 2);
}

TEST(Sampler, NamesWhatIsWrong) {
  const auto refusal = [](const SamplerOptions& options) {
    return message_of_error([&] { check_sampler(options, 10); }, Code::kInvalidArgument);
  };
  SamplerOptions options;
  options.top_k = 11;
  EXPECT_THAT(refusal(options), HasSubstr("top_k: expected 0 to 10 (the vocabulary), got 11"));
  options = {};
  options.top_p = 1.5;
  EXPECT_THAT(refusal(options), HasSubstr("top_p: expected 0 to 1, got 1.5"));
  options = {};
  options.temperature = -1.0;
  EXPECT_THAT(refusal(options), HasSubstr("temperature: expected a finite number >= 0, got -1"));
}

// Rows of different lengths, one of which is more than the model's 16 positions.
TokenRows prompts() {
  TokenRows rows;
  for (const int64_t length : {3, 1, 20, 7, 2}) {
    std::vector<int64_t> row;
    for (int64_t i = 0; i < length; ++i) {
      row.push_back((7 * i + 5 * length) % kVocabulary);
    }
    rows.push_back(row);
  }
  return rows;
}

GenerateOptions sampled() {
  GenerateOptions options;
  options.max_new_tokens = 9;
  options.stop_tokens = {1, 4, 8, 11, 19, 23, 30, 37};
  options.sampler.top_p = 0.9;
  options.sampler.seed = 5;
  return options;
}

TEST(Generate, OfARowDoesNotDependOnTheRowsBesideIt) {
  const auto model = whole_llama();
  const TokenRows rows = prompts();
  const TokenRows together = generate(*model, rows, sampled());
  std::set<size_t> lengths;
  for (size_t i = 0; i < rows.size(); ++i) {
    GenerateOptions options = sampled();
    options.first_row = static_cast<int64_t>(i);
    EXPECT_THAT(generate(*model, {rows[i]}, options), ElementsAre(together[i])) << i;
    lengths.insert(together[i].size());
  }
  EXPECT_GT(lengths.size(), 1) << "rows that end early are to be among them";
}

TEST(Generate, DoesNotDependOnTheRanksThatHaveTheRows) {
  const auto whole = whole_llama();
  const TokenRows rows = prompts();
  const TokenRows together = generate(*whole, rows, sampled());
  for (const auto reshard : {std::optional<bool>(), std::optional<bool>(false)}) {
    run_ranks(3, [&](const std::shared_ptr<World>& world) {  // 4 rows, 1 row, none
      const auto model = sharded_llama(world);
      const size_t begin[4] = {0, 4, 5, 5};
      const auto rank = static_cast<size_t>(world->rank());
      const auto mine = [&](const TokenRows& all) {
        return TokenRows(all.begin() + static_cast<int64_t>(begin[rank]),
                         all.begin() + static_cast<int64_t>(begin[rank + 1]));
      };
      GenerateOptions options = sampled();
      options.first_row = static_cast<int64_t>(begin[rank]);
      options.reshard_after_forward = reshard;
      EXPECT_EQ(generate(*model, mine(rows), options), mine(together));
      if (reshard) {
        const auto root = fsdp::find_unit(*model);
        EXPECT_EQ(root->scheduler().stats().all_gathers,
                  static_cast<int64_t>(root->units().size()));
        EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
      }
    });
  }
}

TEST(Generate, NamesWhatIsWrong) {
  const auto model = whole_llama();
  const auto refusal = [&](const TokenRows& rows, const GenerateOptions& options,
                           Code code = Code::kInvalidArgument) {
    return message_of_error([&] { check_generation(*model, rows, options); }, code);
  };
  EXPECT_THAT(refusal({{1}, {}}, {}), HasSubstr("needs a prompt of at least one token"));
  EXPECT_THAT(refusal({{1}, {2, 40}}, {}), HasSubstr("token 40 at position [1, 1]"));
  GenerateOptions options;
  options.stop_tokens = {40};
  EXPECT_THAT(refusal({{1}}, options), HasSubstr("stop_tokens: token 40 is outside"));
  EXPECT_THAT(
      message_of_error([&] { check_generation(TinyStack({}), {{1}}, {}); }, Code::kUnsupported),
      HasSubstr("generation: expected a causal language model"));
}

}  // namespace
}  // namespace fsdp2::train
