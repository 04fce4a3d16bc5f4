// What transformers' Qwen2VLImageProcessorFast makes of the same files, and its video processors of
// frames: see make_images.py.
#include "core/images/processor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/ckpt/safetensors/safetensors_file.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::images {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::string kGolden = "tests/core/images/golden/";

class ProcessorTest : public FileTest {
 protected:
  static at::Tensor read(const ckpt::SafetensorsFile& file, const std::string& name) {
    const ckpt::SafetensorsEntry& entry = *file.find(name);
    at::Tensor values = at::empty(entry.shape, entry.dtype);
    file.read(entry, 0, entry.bytes, values.mutable_data_ptr());
    return values;
  }
  Processor processor(const std::string& json) const {
    return read_processor(write("preprocessor_config.json", json));
  }
};

TEST_F(ProcessorTest, ResizesToTheSizesOfTransformers) {
  for (const Json& row : Json::parse(contents(kGolden + "sizes.json"))) {
    Processor rules;
    rules.merge_size = 2;
    rules.patch_size = row[0].get<int64_t>() / 2;
    rules.least_pixels = row[1];
    rules.most_pixels = row[2];
    const ImageSize size = resized({row[3], row[4]}, rules);
    EXPECT_EQ(size.height, row[5].get<int64_t>()) << row;
    EXPECT_EQ(size.width, row[6].get<int64_t>()) << row;
  }
}

// To a level of 255 of the resized image; how its sums are rounded is the CPU's vector code.
TEST_F(ProcessorTest, MakesThePatchesThatTransformersMakes) {
  const ckpt::SafetensorsFile expected(kGolden + "patches.safetensors");
  for (const char* name : {"qwen2_5", "qwen3"}) {
    const Processor rules = read_processor(kGolden + name + "/preprocessor_config.json");
    for (const char* file : {"rgb.png", "photo.jpg", "sixteen-bits.png", "turned-6.jpg"}) {
      const std::string key = std::string(name) + "/" + file;
      const std::string bytes = contents(kGolden + file);
      const at::Tensor pixels =
          decode({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
      const at::Tensor patches = make_patches(pixels, rules);
      const at::Tensor wanted = read(expected, key);
      ASSERT_EQ(patches.sizes(), wanted.sizes()) << key;
      EXPECT_EQ(patches.scalar_type(), at::kFloat);
      const double level =
          1.0 / 255 / *std::min_element(rules.deviation.begin(), rules.deviation.end());
      const at::Tensor error = (patches - wanted).abs();
      EXPECT_LE(error.max().item<double>(), 1.01 * level) << key;
      EXPECT_LE(error.mean().item<double>(), 0.02 * level) << key;
      const at::Tensor grid = read(expected, key + "/grid").view({3});
      const ImageSize size = resized({pixels.size(0), pixels.size(1)}, rules);
      EXPECT_EQ(grid[0].item<int64_t>(), 1);
      EXPECT_EQ(grid[1].item<int64_t>(), size.height / rules.patch_size);
      EXPECT_EQ(grid[2].item<int64_t>(), size.width / rules.patch_size);
    }
  }
}

TEST_F(ProcessorTest, ResizesFramesToTheSizesOfTransformers) {
  for (const Json& row : Json::parse(contents(kGolden + "video-sizes.json"))) {
    VideoProcessor rules;
    rules.family = VideoFamily::kQwen3;
    rules.frames.merge_size = 2;
    rules.frames.patch_size = row[0].get<int64_t>() / 2;
    rules.frames.least_pixels = row[1];
    rules.frames.most_pixels = row[2];
    const ImageSize size = resized_frames({row[4], row[5]}, row[3], rules);
    EXPECT_EQ(size.height, row[6].get<int64_t>()) << row;
    EXPECT_EQ(size.width, row[7].get<int64_t>()) << row;
  }
}

// Not even where images of their size would.
TEST_F(ProcessorTest, RefusesFramesThatTransformersRefuses) {
  const VideoProcessor rules = read_video_processor(write("p.json", "{}"), VideoFamily::kQwen3);
  EXPECT_EQ(error_of([&] { resized_frames({64, 64}, 1, rules); }).code(), Code::kCorruptData);
  EXPECT_EQ(error_of([&] { resized_frames({31, 64}, 2, rules); }).code(), Code::kCorruptData);
  EXPECT_EQ(error_of([&] { resized_frames({32, 32 * 201}, 2, rules); }).code(), Code::kCorruptData);
  resized_frames({32, 32}, 2, rules);
}

TEST_F(ProcessorTest, HasTheDefaultsOfTransformersForVideos) {
  const std::string file = write("p.json", "{}");
  const VideoProcessor qwen2 = read_video_processor(file, VideoFamily::kQwen2);
  EXPECT_EQ(qwen2.frames.patch_size, 14);
  EXPECT_EQ(qwen2.frames.least_pixels, 128 * 28 * 28);
  EXPECT_EQ(qwen2.frames.most_pixels, 28 * 28 * 768);
  const VideoProcessor qwen3 = read_video_processor(file, VideoFamily::kQwen3);
  EXPECT_EQ(qwen3.frames.patch_size, 16);
  EXPECT_EQ(qwen3.frames.least_pixels, 128 * 32 * 32);
  EXPECT_EQ(qwen3.frames.most_pixels, 32 * 32 * 768);
  EXPECT_EQ(qwen3.frames.mean[1], 0.5);
  EXPECT_EQ(qwen3.grid_frames(5), 3);
}

TEST_F(ProcessorTest, ReadsTheirPartsOfOneFileOfTransformers5) {
  const std::string file = write(
      "processor_config.json",
      R"({"image_processor": {"patch_size": 5}, "video_processor": {"patch_size": 7}, "patch_size": 9})");
  EXPECT_TRUE(has_part(file, kImageProcessor));
  EXPECT_EQ(read_processor(file).patch_size, 5);
  EXPECT_EQ(read_video_processor(file, VideoFamily::kQwen3).frames.patch_size, 7);
  const std::string older = write("older.json", R"({"processor_class": "Qwen2_5_VLProcessor"})");
  EXPECT_FALSE(has_part(older, kImageProcessor));
  const Error error = error_of(
      [&] { read_processor(write("processor_config.json", R"({"image_processor": [1]})")); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_THAT(error.message(), HasSubstr("\"image_processor\": expected a JSON object"));
}

// As transformers: not those of Qwen3-VL's videos.
TEST_F(ProcessorTest, TakesLimitsBesideTheSize) {
  const std::string file =
      write("p.json", R"({"size": {"shortest_edge": 5, "longest_edge": 6000}, "min_pixels": 70})");
  EXPECT_EQ(read_processor(file).least_pixels, 70);
  EXPECT_EQ(read_video_processor(file, VideoFamily::kQwen2).frames.least_pixels, 70);
  EXPECT_EQ(read_video_processor(file, VideoFamily::kQwen3).frames.least_pixels, 5);
  const Processor both =
      processor(R"({"size": {"longest_edge": 99}, "min_pixels": 70, "max_pixels": 80})");
  EXPECT_EQ(both.least_pixels, 70);
  EXPECT_EQ(both.most_pixels, 80);
}

TEST_F(ProcessorTest, HasTheDefaultsOfTransformers) {
  const Processor rules = processor("{}");
  EXPECT_EQ(rules.patch_size, 14);
  EXPECT_EQ(rules.least_pixels, 56 * 56);
  EXPECT_EQ(rules.most_pixels, 28 * 28 * 1280);
  EXPECT_EQ(processor(R"({"size": {"shortest_edge": 100, "longest_edge": 200}})").most_pixels, 200);
}

TEST_F(ProcessorTest, SaysWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"[]", "expected a JSON object"},
      {"{", "expected a JSON object"},
      {"{\"patch_size\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}",
       "is nested more than 64 deep"},
      {R"({"patch_size": 0})", "\"patch_size\": expected an integer from 1 to 1024, found 0"},
      {R"({"patch_size": 1e3})", "\"patch_size\": expected an integer"},
      {R"({"patch_size": 18446744073709551615})", "\"patch_size\": expected an integer"},
      {R"({"min_pixels": 10, "max_pixels": 9})", "found 10 and 9"},
      {R"({"image_mean": [1, 2]})", "\"image_mean\": expected three numbers"},
      {R"({"image_mean": [1, 2, 1e300]})", "\"image_mean\": expected three numbers"},
      {R"({"image_std": [1, 0, 1]})", "\"image_std\": expected positive numbers"},
      {R"({"do_resize": false})", "\"do_resize\": expected true, found false"},
      {R"({"resample": 2})", "\"resample\": expected 3, bicubic, found 2"},
      {R"({"image_std": [1, 1e-200, 1]})", "\"image_std\": expected positive numbers"},
      {R"({"rescale_factor": 0})", "\"rescale_factor\": expected a positive number, found 0"},
      {R"({"rescale_factor": "1/255"})", "expected a positive number, found \"1/255\""},
      {R"({"rescale_factor": 1e-200})", "\"rescale_factor\": expected a positive number"},
      {R"({"size": 224})", "\"size\": expected an object with shortest_edge and longest_edge"},
      {R"({"size": {"min_pixels": 64, "max_pixels": 99}})",
       "\"size\": expected shortest_edge and longest_edge in it"},
      {R"({"size": {"shortest_edge": 64}, "min_pixels": 64})",
       "expected shortest_edge and longest"},
      {R"({"min_pixels": 1000000000, "max_pixels": 1000000000})",
       "\"min_pixels\": expected an integer from 1 to 134217728"},
  };
  for (const auto& [json, message] : mistakes) {
    const Error error = error_of([&, &text = json] { processor(text); });
    EXPECT_THAT(error.message(), HasSubstr(path("preprocessor_config.json") + ": "));
    EXPECT_THAT(error.message(), HasSubstr(message)) << json.substr(0, 60);
  }
  EXPECT_EQ(error_of([&] { read_processor(path("none")); }).code(), Code::kNotFound);
  EXPECT_EQ(error_of([] { resized({1, 201}, {}); }).code(), Code::kCorruptData);
  EXPECT_EQ(resized({1, 200}, {}).height, 28);
}

}  // namespace
}  // namespace fsdp2::images
