// The tokens that end a text where neither a flag nor a file says.
#include "cli/infer/stop_tokens.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/config/plan.h"
#include "tests/cli/process.h"

namespace fsdp2::cli {
namespace {

using Json = nlohmann::json;

std::vector<int64_t> stop_tokens(const Json& config) {
  config::TrainOptions run;
  run.model = test::empty_directory();
  test::write_file(run.model + "/config.json", config.dump());
  return stop_tokens_of_model(run);
}

TEST(StopTokens, AreThoseOfTheModelsClassInTransformers) {
  std::ifstream file(test::repository_file("tests/parity/generation/generations.json"));
  const Json ends = Json::parse(file).at("ends");
  EXPECT_EQ(ends.size(), 13U);
  for (const auto& [model_type, end] : ends.items()) {
    const auto expected =
        end.is_null() ? std::vector<int64_t>() : std::vector<int64_t>{end.get<int64_t>()};
    EXPECT_EQ(stop_tokens({{"model_type", model_type}}), expected) << model_type;
    EXPECT_EQ(stop_tokens({{"model_type", model_type}, {"eos_token_id", 7}}),
              std::vector<int64_t>{7});
    EXPECT_EQ(stop_tokens({{"model_type", model_type}, {"eos_token_id", nullptr}}),
              std::vector<int64_t>());
  }
  EXPECT_EQ(stop_tokens({{"model_type", 3}}), std::vector<int64_t>());
}

}  // namespace
}  // namespace fsdp2::cli
