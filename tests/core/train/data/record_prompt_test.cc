// The images and videos of prompts, whose answers are left out with theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/train/data/record_tokens.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/train/data/image_files.h"

namespace fsdp2::train {
namespace {

using ::testing::HasSubstr;

constexpr ImageGrid kOneToken = {1, 2, 2};
constexpr ImageGrid kThreeTokens = {1, 2, 6};

class RecordPrompt : public FileTest {
 protected:
  RecordPrompt() {
    write_images(path("one.safetensors"), {kOneToken});
    write_images(path("both.safetensors"), {kThreeTokens, kOneToken});
    write_videos(path("video.safetensors"), {{3, 2, 4}}, "second_per_grid_ts", {2});
    write_videos(path("apart.safetensors"), {{3, 2, 4}}, "timestamps", {0.25, 1, 12.96});
  }

  RecordTokens prompt(const std::string& line, bool frames_are_apart = false) const {
    RecordVision vision{tiny_vision(), path("")};
    vision.rules.frames_are_apart = frames_are_apart;
    return read_prompt_tokens(line, nullptr, &vision);
  }
  std::string error(const std::string& line) const {
    return error_of([&] { prompt(line); }).message();
  }
};

TEST_F(RecordPrompt, HasTheImagesBeforeItsAnswer) {
  const std::string files = R"({"images": ["both.safetensors", "one.safetensors"], )";
  const RecordTokens pair =
      prompt(files + R"("prompt": "a<image>b<image>c", "response": "d<image>e"})");
  ASSERT_EQ(pair.images.size(), 2U);
  EXPECT_EQ(pair.images[1].file, path("both.safetensors"));
  EXPECT_EQ(pair.ids.size(), 3U + 4U + 4U);  // letters, tokens of images, starts and ends
  const RecordTokens chat =
      prompt(files + R"("messages": [{"role": "user", "content": "a<image>"}, )"
                     R"({"role": "assistant", "content": "<image>"}, )"
                     R"({"role": "user", "content": "b"}, )"
                     R"({"role": "assistant", "content": [{"type": "image"}]}]})");
  EXPECT_EQ(chat.images.size(), 2U);
  const RecordTokens none =
      prompt(R"({"images": ["one.safetensors"], "prompt": "a", "response": "<image>"})");
  EXPECT_TRUE(none.images.empty());
  EXPECT_EQ(none.ids.size(), 1U);
}

TEST_F(RecordPrompt, HasTheVideosBeforeItsAnswer) {
  for (const bool apart : {false, true}) {
    const std::string file = apart ? "\"apart.safetensors\"" : "\"video.safetensors\"";
    const RecordTokens pair = prompt("{\"videos\": [" + file + ", " + file +
                                         R"(], "prompt": "<video>a", "response": "b<video>c"})",
                                     apart);
    ASSERT_EQ(pair.videos.size(), 1U);
    EXPECT_EQ(pair.ids.back(), uint32_t{'a'});
  }
}

TEST_F(RecordPrompt, TakesRecordsWhoseAnswersAreStillToBeWritten) {
  for (const char* const response : {"null", "[]", "7", "\"\""}) {
    const std::string line = std::string(R"({"prompt": "ab", "response": )") + response + "}";
    EXPECT_EQ(prompt(line).ids.size(), 2U) << line;
  }
}

TEST_F(RecordPrompt, WithTooFewOrTooManyImagesIsAnErrorThatCountsThoseOfItsAnswer) {
  const std::string files = R"({"images": ["both.safetensors"], )";
  EXPECT_THAT(error(files + R"("prompt": "a<image><image>b", "response": "<image>"})"),
              HasSubstr("has 3 places for images, and its files have 2"));
  EXPECT_THAT(error(files + R"("prompt": "a", "response": "<image>"})"),
              HasSubstr("has 1 places for images, and its files have 2"));
  EXPECT_THAT(error(R"({"videos": ["video.safetensors"], "prompt": "<video>a", )"
                    R"("response": "<video>"})"),
              HasSubstr("has 2 places for videos, and 1 videos"));
  EXPECT_EQ(error(files + R"("prompt": "", "response": "<image><image>"})"),
            "is empty: expected at least one token");
}

}  // namespace
}  // namespace fsdp2::train
