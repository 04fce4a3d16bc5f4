// What a model's config.json says of images and videos.
#include "core/train/data/images/vision_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/core/base/file_fixture.h"

namespace fsdp2::train {
namespace {

using ::testing::HasSubstr;

class VisionRulesOf : public FileTest {};

TEST_F(VisionRulesOf, ModelsAreReadFromTheirConfig) {
  for (const char* model : {"tiny-qwen2.5-vl", "tiny-qwen3-vl"}) {
    const std::string directory = std::string("tests/parity/vision_language/") + model;
    const auto rules = read_vision_rules(directory);
    ASSERT_TRUE(rules);
    EXPECT_EQ(rules->image_token, 8U);
    EXPECT_EQ(rules->video_token, 9U);
    EXPECT_EQ(rules->start_token, 6U);
    EXPECT_EQ(rules->end_token, 7U);
    EXPECT_EQ(rules->merge_size, 2);
    EXPECT_EQ(rules->patch_numel, 3 * 2 * 4 * 4);
    EXPECT_EQ(rules->tokens_of({2, 4, 6}), 12);
    EXPECT_EQ(read_vision_rules(directory + "/config.json")->patch_numel, rules->patch_numel);
  }
  EXPECT_FALSE(read_vision_rules("tests/parity/golden/models/tiny-llama"));
  EXPECT_EQ(error_of([&] { read_vision_rules(path("none")); }).code(), Code::kNotFound);
  const Error error = error_of([&] { read_vision_rules(write("config.json", "[")); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr(path("config.json") + ": "));
}

// As transformers 5 looks for them, beside files of 4.57.
TEST_F(VisionRulesOf, AProcessorArePartsOfOneFileBeforeFilesOfTheirOwn) {
  const auto rules = [&] { return *read_vision_rules(path("config.json")); };
  const auto processor = [](int64_t most_pixels) {
    return R"({"patch_size": 4, "min_pixels": 1, "max_pixels": )" + std::to_string(most_pixels) +
           "}";
  };
  write("config.json", contents("tests/parity/vision_language/tiny-qwen2.5-vl/config.json"));
  write("processor_config.json", R"({"processor_class": "Qwen2_5_VLProcessor"})");
  EXPECT_FALSE(rules().processor);
  EXPECT_THAT(rules().no_video_processor, HasSubstr("processor_config.json with a"));
  write("preprocessor_config.json", processor(1000));
  EXPECT_EQ(rules().processor->most_pixels, 1000);
  EXPECT_EQ(rules().video_processor->frames.most_pixels, 1000);
  write("processor_config.json", R"({"image_processor": )" + processor(2000) + "}");
  EXPECT_EQ(rules().processor->most_pixels, 2000);
  EXPECT_EQ(rules().video_processor->frames.most_pixels, 1000);
  write("processor_config.json", R"({"video_processor": )" + processor(3000) + "}");
  EXPECT_EQ(rules().processor->most_pixels, 1000);
  EXPECT_EQ(rules().video_processor->frames.most_pixels, 3000);
}

}  // namespace
}  // namespace fsdp2::train
