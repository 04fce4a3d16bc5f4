// `fsdp2 plan` of a model that sees images: what a step takes with some in each window.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::HasSubstr;
using Texts = std::vector<std::string>;

const Texts kModels = {"tiny-qwen2.5-vl", "tiny-qwen3-vl"};

Outcome plan_of(const std::string& model, const Texts& arguments) {
  const std::string directory = repository_file("tests/parity/vision_language/" + model);
  return run(joined({fsdp2_program(), "plan", "--model", directory}, arguments));
}

int64_t activations(const std::string& model, const Texts& arguments) {
  const Outcome outcome = plan_of(model, joined({"--seq-len", "64", "--json"}, arguments));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return nlohmann::json::parse(outcome.out).at("activation_bytes").get<int64_t>();
}

TEST(PlanWithImages, GrowsByWhatTheEncoderKeepsOfThem) {
  for (const std::string& model : kModels) {
    const int64_t text = activations(model, {});
    const int64_t one = activations(model, {"--images", "1", "--image-size", "32x32"});
    const int64_t two = activations(model, {"--images", "2", "--image-size", "32x32"});
    const int64_t large = activations(model, {"--images", "1", "--image-size", "64x48"});
    EXPECT_LT(text, one) << model;
    EXPECT_LT(one, two) << model;
    EXPECT_LT(two, large) << model;
    // Sides are rounded to those of a token, 8 pixels here.
    EXPECT_EQ(activations(model, {"--images", "1", "--image-size", "30x33"}), one) << model;
  }
}

TEST(PlanWithImages, SaysHowManyAreInAWindow) {
  const Outcome outcome = plan_of(kModels[0], {"--seq-len", "64", "--micro-batch", "2", "--images",
                                               "2", "--image-size", "32x32"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 windows of 64 tokens, each with 2 images of 32x32 pixels"));
}

TEST(PlanWithImages, NamesWhatIsWrong) {
  const auto refusal = [](const std::string& model, const Texts& arguments) {
    const Outcome outcome = plan_of(model, arguments);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    return outcome.err;
  };
  const std::string& model = kModels[0];
  const Texts step = {"--seq-len", "64", "--images"};
  EXPECT_THAT(refusal(model, {"--images", "1", "--image-size", "8x8"}),
              HasSubstr("--images needs --seq-len"));
  EXPECT_THAT(refusal(model, joined(step, {"1"})),
              HasSubstr("--images and --image-size go together"));
  for (const char* size : {"32", "32x", "x32", "32x0", "-8x8", "8x8x8", "8 x 8", "1e2x8"}) {
    EXPECT_THAT(refusal(model, joined(step, {"1", "--image-size=" + std::string(size)})),
                HasSubstr("--image-size: expected HEIGHTxWIDTH in pixels, as 448x672, found"));
  }
  EXPECT_THAT(refusal(model, joined(step, {"4", "--image-size", "32x32"})),
              HasSubstr("4 of 16 tokens each, with one between them, are more than the --seq-len"));
  EXPECT_THAT(refusal("../golden/models/tiny-llama", joined(step, {"1", "--image-size", "8x8"})),
              HasSubstr("sees no images: there is no vision_config in its config.json"));
}

}  // namespace
}  // namespace fsdp2::test
