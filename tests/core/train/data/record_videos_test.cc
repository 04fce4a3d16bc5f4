// Records with videos.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/train/data/data_loader.h"
#include "core/train/data/mixture.h"
#include "core/train/data/record_file.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/train/data/image_files.h"

namespace fsdp2::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kStart = 256;
constexpr int64_t kImage = 257;
constexpr int64_t kEnd = 258;
constexpr int64_t kVideo = 259;
constexpr ImageGrid kShort = {2, 2, 2};  // two frames of one token
constexpr ImageGrid kWide = {3, 2, 4};   // three of two

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()};
}

std::vector<double> seconds(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<double>(), tensor.const_data_ptr<double>() + tensor.numel()};
}

// Tokens as text: those of what is seen as S, I, V and E.
std::string spelled(const at::Tensor& inputs) {
  std::string text;
  for (const int64_t token : numbers(inputs)) {
    text += token == kStart   ? 'S'
            : token == kImage ? 'I'
            : token == kVideo ? 'V'
            : token == kEnd   ? 'E'
                              : static_cast<char>(token);
  }
  return text.substr(0, text.find('\0'));
}

// What is to be learned, and a point for each place that is not.
std::string learned(const at::Tensor& labels) {
  std::string text;
  for (const int64_t label : numbers(labels)) {
    text += label == -100 ? '.' : label == 0 ? '0' : static_cast<char>(label);
  }
  return text;
}

VisionRules rules_of(bool frames_are_apart) {
  VisionRules rules = tiny_vision();
  rules.frames_are_apart = frames_are_apart;
  return rules;
}

// A model whose frames lie together, as those of Qwen2.5-VL, sees them.
class RecordVideos : public FileTest {
 protected:
  RecordVideos() {
    write_videos(path("short.safetensors"), {kShort}, "second_per_grid_ts", {0.5});
    write_videos(path("wide.safetensors"), {kWide}, "second_per_grid_ts", {2}, 600);
    write_videos(path("both.safetensors"), {kWide, kShort}, "second_per_grid_ts", {4, 8}, 6000);
    write_videos(path("apart.safetensors"), {kWide}, "timestamps", {0.25, 1, 12.96}, 600);
    write_images(path("image.safetensors"), {{1, 2, 2}}, 90000);
  }

  RecordFile open(const std::string& lines, int64_t sequence_length = 96, RecordRules rules = {},
                  bool apart = false) const {
    return {write("r.jsonl", lines), 320, sequence_length, rules, nullptr, rules_of(apart)};
  }
  std::string error(const std::string& lines, Code code = Code::kCorruptData,
                    bool apart = false) const {
    const Error error = error_of([&] { open(lines, 96, {}, apart); });
    EXPECT_EQ(error.code(), code) << lines;
    EXPECT_THAT(error.message(), HasSubstr(path("r.jsonl") + ": line 1: ")) << lines;
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
    return error.message();
  }
};

TEST_F(RecordVideos, TakeTheTokensOfTheirGridsWithoutLabels) {
  const RecordFile file =
      open(R"({"videos": ["wide.safetensors"], "prompt": "a<video>b", "response": "c"})", 13);
  EXPECT_EQ(file.video_count(), 1);
  EXPECT_EQ(file.image_count(), 0);
  EXPECT_EQ(file.video_inputs(), 3);
  const TokenBatch batch = file.windows({0}, 13);
  EXPECT_EQ(spelled(batch.inputs), "aSVVVVVVEbc");
  EXPECT_EQ(learned(batch.labels), ".........c0..");
  EXPECT_THAT(seconds(batch.seconds_per_grid), ElementsAre(2));
  EXPECT_EQ(batch.video_pixels.sizes(), (std::vector<int64_t>{24, kPatchNumel}));
  EXPECT_TRUE(at::equal(batch.video_pixels.flatten(), at::arange(600.0F, 600.0F + 144)));
  EXPECT_FALSE(batch.grids.defined());
}

TEST_F(RecordVideos, HaveTheTimeOfEachFrameBeforeItWhereFramesAreApart) {
  const RecordFile file = open(
      R"({"videos": ["apart.safetensors"], "prompt": "a<video>b", "response": "c"})", 96, {}, true);
  EXPECT_EQ(file.video_inputs(), 2);
  const TokenBatch batch = file.windows({0}, 96);
  EXPECT_EQ(spelled(batch.inputs), "a<0.2 seconds>SVVE<1.0 seconds>SVVE<13.0 seconds>SVVEbc");
  EXPECT_FALSE(batch.seconds_per_grid.defined());
  EXPECT_THAT(numbers(batch.video_grids), ElementsAre(3, 2, 4));
}

// Where all is answer, too: the model learns the text, not what it is shown.
TEST_F(RecordVideos, AreNotToBeLearnedNorAreTheirTimes) {
  const std::string line = R"({"videos": ["VIDEO.safetensors"], "text": "ab<video>c"})";
  const auto labels = [&](const std::string& video, bool apart) {
    std::string own = line;
    own.replace(own.find("VIDEO"), 5, video);
    return learned(open(own, 64, {}, apart).windows({0}, 64).labels);
  };
  EXPECT_EQ(labels("short", false).substr(0, 7), "b....c0");
  const std::string apart = labels("apart", true);
  EXPECT_EQ(apart.find_first_not_of('.', 1), apart.find("c0"));
  EXPECT_EQ(apart.find("c0"),
            std::string("b<0.2 seconds>SVVE<1.0 seconds>SVVE<13.0 seconds>SVVE").size());
}

TEST_F(RecordVideos, MixWithImagesInOneRecord) {
  const RecordFile file =
      open(R"({"images": ["image.safetensors"], "videos": ["both.safetensors"],)"
           R"( "prompt": "<video>a<image>b<video>", "response": "c"})");
  const TokenBatch batch = file.windows({0}, 96);
  EXPECT_EQ(spelled(batch.inputs), "SVVVVVVEaSIEbSVVEc");
  EXPECT_THAT(numbers(batch.grids), ElementsAre(1, 2, 2));
  EXPECT_THAT(numbers(batch.video_grids), ElementsAre(3, 2, 4, 2, 2, 2));
  EXPECT_THAT(seconds(batch.seconds_per_grid), ElementsAre(4, 8));
  EXPECT_EQ(batch.pixels[0][0].item<float>(), 90000);
  EXPECT_TRUE(at::equal(batch.video_pixels.flatten(), at::arange(6000.0F, 6000.0F + 32 * 6)));
}

TEST_F(RecordVideos, OfMessagesMayBeParts) {
  const auto tokens = [&](const std::string& part, const std::string& more) {
    return spelled(open(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": )"
                        R"("a"}, )" +
                        part + R"(]}, {"role": "assistant", "content": "b"}])" + more + "}")
                       .windows({0}, 96)
                       .inputs);
  };
  const auto inlined = tokens(R"({"type": "video", "video": "short.safetensors"})", "");
  EXPECT_THAT(inlined, HasSubstr("aSVVE"));
  EXPECT_EQ(tokens(R"({"type": "video"})", R"(, "videos": ["short.safetensors"])"), inlined);
  EXPECT_EQ(
      tokens(R"({"type": "text", "text": "<video>"})", R"(, "videos": ["short.safetensors"])"),
      inlined);
}

// With all frames, or not at all.
TEST_F(RecordVideos, ThatDoNotFitAreCutOffWhole) {
  const RecordRules cut = {/*cut_long=*/true, /*skip_bad=*/false};
  const std::string line = R"({"images": ["image.safetensors"], "videos": ["apart.safetensors"],)"
                           R"( "text": "ab<image>c<video>d"})";
  const std::string whole = "abSIEc<0.2 seconds>SVVE<1.0 seconds>SVVE<13.0 seconds>SVVEd";
  const auto last_frame = static_cast<int64_t>(whole.rfind('V'));
  for (int64_t length = 8; length <= last_frame + 1; ++length) {
    const TokenBatch batch = open(line, length, cut, true).windows({0}, length);
    EXPECT_EQ(batch.video_grids.defined(), length > last_frame) << length;
    EXPECT_EQ(batch.inputs.eq(kVideo).sum().item<int64_t>(), length > last_frame ? 6 : 0) << length;
    EXPECT_TRUE(batch.grids.defined()) << length;
  }
}

TEST_F(RecordVideos, ThatAreWrongAreNamed) {
  const auto of = [](const std::string& video, const std::string& text = "<video>a") {
    return "{\"videos\": [" + video + "], \"text\": \"" + text + "\"}";
  };
  const std::string good = "\"short.safetensors\"";
  EXPECT_THAT(error(of("\"none.safetensors\"")), HasSubstr("none.safetensors: cannot open"));
  EXPECT_THAT(error(of(good, "a")), HasSubstr("has 0 places for videos, and 1 videos"));
  EXPECT_THAT(error(of(good, "<video><video>a")),
              HasSubstr("has 2 places for videos, and 1 video"));
  EXPECT_THAT(error(of("\"both.safetensors\"")), HasSubstr("has 1 places for videos, and 2 video"));
  EXPECT_THAT(error(of("7")), HasSubstr("a video: expected the name of a file, got number"));
  EXPECT_THAT(error(of("{}")), HasSubstr("a video: expected a file, or {\"frames\": [FILE, ...]"));
  EXPECT_THAT(error(of(R"({"frames": ["a.png"]})")), HasSubstr("\"fps\": NUMBER}"));
  EXPECT_THAT(error(of(R"({"frames": [], "fps": 2})")), HasSubstr("got an empty one"));
  EXPECT_THAT(error(of(R"({"frames": [3], "fps": 2})")), HasSubstr("a frame: expected the name"));
  for (const char* fps : {"0", "-1", "1e300", "\"2\"", "null", "1e-9"}) {
    EXPECT_THAT(error(of(std::string(R"({"frames": ["a.png"], "fps": )") + fps + "}")),
                HasSubstr("\"fps\": expected frames a second"));
  }
  EXPECT_THAT(error(R"({"videos": "a", "text": "<video>a"})"), HasSubstr("got string"));
  EXPECT_THAT(error(R"({"messages": [{"role": "user", "content": [{"type": "video"}]}]})"),
              HasSubstr("has a part of type video, and no file for it in \"videos\""));
  EXPECT_THAT(error(R"({"videos": ["short.safetensors"], "messages": [{"role": "user", "content":)"
                    R"( [{"type": "video", "video": "short.safetensors"}]}]})"),
              HasSubstr("has videos both in \"videos\" and in \"messages\""));
}

TEST_F(RecordVideos, WhoseTensorsAreWrongAreNamed) {
  const std::string line = R"({"videos": ["x.safetensors"], "text": "<video>a"})";
  const auto error_with = [&](const std::string& name, const std::vector<double>& times,
                              bool apart = false, const ImageGrid& grid = kWide) {
    write_videos(path("x.safetensors"), {grid}, name, times);
    return error(line, Code::kCorruptData, apart);
  };
  EXPECT_THAT(error_with("timestamps", {1, 2, 3}), HasSubstr("has no \"second_per_grid_ts\""));
  EXPECT_THAT(error_with("second_per_grid_ts", {1}, true), HasSubstr("has no \"timestamps\""));
  EXPECT_THAT(error_with("second_per_grid_ts", {1, 2}), HasSubstr("expected F32 or F64 [1]"));
  EXPECT_THAT(error_with("timestamps", {1, 2}, true), HasSubstr("expected F32 or F64 [3]"));
  for (const double wrong : {-1.0, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(error_with("second_per_grid_ts", {wrong}), HasSubstr("expected seconds from 0 to"));
  }
  EXPECT_THAT(error_with("second_per_grid_ts", {1}, false, {1, 3, 4}),
              HasSubstr("found 1 x 3 x 4 for video 0"));
  write_images(path("x.safetensors"), {kWide});
  EXPECT_THAT(error(line),
              HasSubstr("has no \"video_grid_thw\": expected what a processor makes of "
                        "videos, pixel_values_videos and video_grid_thw"));
}

TEST_F(RecordVideos, NeedAModelThatSeesThem) {
  const std::string records =
      write("r.jsonl", R"({"videos": ["short.safetensors"], "text": "<video>a"})");
  const Error blind = error_of([&] { RecordFile(records, 320, 24, {}); });
  EXPECT_EQ(blind.code(), Code::kCorruptData);
  EXPECT_THAT(blind.message(), HasSubstr("line 1: has \"videos\", and nothing says what model"));
  VisionRules rules = tiny_vision();
  rules.video_token = 'v';
  const Error byte = error_of([&] { RecordFile(records, 320, 24, {}, nullptr, rules); });
  EXPECT_EQ(byte.code(), Code::kInvalidArgument);
  EXPECT_THAT(byte.message(), HasSubstr("the model's token <|video_pad|>, 118, is a byte, too"));
  write("r.jsonl", R"({"text": "uvw"})");
  EXPECT_THAT(error_of([&] { RecordFile(records, 320, 24, {}, nullptr, rules); }).message(),
              HasSubstr("line 1: has the model's token of videos, 118, and no \"videos\""));
}

TEST_F(RecordVideos, HaveAPlaceholderOnlyInRecordsWithVideos) {
  const std::string text = R"("text": "<video><|video_pad|>"})";
  EXPECT_EQ(spelled(open("{" + text).windows({0}, 96).inputs), "<video><|video_pad|>");
  EXPECT_EQ(spelled(open("{\"videos\": [], " + text).windows({0}, 96).inputs),
            "<video><|video_pad|>");
}

TEST_F(RecordVideos, GoThroughMixturesLoadersAndReadAhead) {
  const auto file = [&](const char* name, const char* video, char letter) {
    std::string lines;
    for (int i = 0; i < 7; ++i) {
      lines += std::string("{\"videos\": [\"") + video + "\"], \"text\": \"<video>" +
               static_cast<char>(letter + i) + "\"}\n";
    }
    return std::make_shared<RecordFile>(write(name, lines), 320, 10, RecordRules(), nullptr,
                                        tiny_vision());
  };
  const auto mixture = std::make_shared<Mixture>(
      std::vector<MixturePart>{{file("a.jsonl", "short.safetensors", 'a'), 1},
                               {file("b.jsonl", "wide.safetensors", 'p'), 1}},
      10, DataOrder::kShuffle, 5);
  EXPECT_EQ(mixture->video_count(), 14);
  EXPECT_EQ(mixture->video_inputs(), 3);
  DataLoaderOptions options;
  options.batch_size = 3;
  options.sequence_length = 10;
  DataLoader plain(mixture, options);
  options.read_ahead = 2;
  DataLoader ahead(mixture, options);
  DataPosition half;
  std::vector<TokenBatch> rest;
  for (int step = 0; step < 6; ++step) {
    const TokenBatch batch = plain.next();
    const TokenBatch same = ahead.next();
    EXPECT_TRUE(at::equal(batch.video_pixels, same.video_pixels));
    EXPECT_TRUE(at::equal(batch.seconds_per_grid, same.seconds_per_grid));
    EXPECT_GE(batch.video_grids.size(0), options.batch_size);
    EXPECT_EQ(batch.video_grids.size(0), batch.inputs.eq(kStart).sum().item<int64_t>());
    EXPECT_EQ(batch.video_pixels.size(0), 4 * batch.inputs.eq(kVideo).sum().item<int64_t>());
    if (step == 2) {
      half = plain.position();
    } else if (step > 2) {
      rest.push_back(batch);
    }
  }
  DataLoader resumed(mixture, options);
  resumed.seek(half);
  for (const TokenBatch& batch : rest) {
    const TokenBatch again = resumed.next();
    EXPECT_TRUE(at::equal(batch.inputs, again.inputs));
    EXPECT_TRUE(at::equal(batch.video_pixels, again.video_pixels));
    EXPECT_TRUE(at::equal(batch.video_grids, again.video_grids));
  }
}

// ---- frames that are decoded

// What transformers makes of these files is in the same folder: see tests/core/images.
class DecodedVideos : public FileTest {
 protected:
  DecodedVideos() {
    for (int i = 0; i < 5; ++i) {
      const std::string name = "frame-" + std::to_string(i) + ".png";
      std::filesystem::copy(kGolden + name, path(name));
    }
    std::filesystem::copy(kGolden + "rgb.png", path("other.png"));
  }
  // Rules of a model whose patches are as the processor's.
  VisionRules rules(const std::string& family) const {
    const bool is_qwen3 = family == "qwen3";
    nlohmann::json config =
        nlohmann::json::parse(contents(std::string("tests/parity/vision_language/tiny-qwen") +
                                       (is_qwen3 ? "3" : "2.5") + "-vl/config.json"));
    config["vision_config"]["patch_size"] = is_qwen3 ? 6 : 4;
    write("config.json", config.dump());
    write("video_preprocessor_config.json",
          contents(kGolden + family + "/video_preprocessor_config.json"));
    VisionRules rules = *read_vision_rules(path("config.json"));
    const VisionRules tokens = tiny_vision();
    rules.start_token = tokens.start_token;
    rules.image_token = tokens.image_token;
    rules.end_token = tokens.end_token;
    rules.video_token = tokens.video_token;
    return rules;
  }
  static std::string line(const std::vector<std::string>& frames, const std::string& fps = "4") {
    return "{\"videos\": [{\"frames\": " + nlohmann::json(frames).dump() + ", \"fps\": " + fps +
           "}], \"text\": \"<video>a\"}";
  }
  static std::vector<std::string> frames(int count) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) {
      names.push_back("frame-" + std::to_string(i) + ".png");
    }
    return names;
  }
  RecordFile open(const std::string& family, const std::string& text) const {
    return {write("r.jsonl", text), 320, 400, {}, nullptr, rules(family)};
  }
  at::Tensor golden(const std::string& name) const {
    const ckpt::SafetensorsFile file(kGolden + "videos.safetensors");
    const ckpt::SafetensorsEntry& entry = *file.find(name);
    at::Tensor values = at::empty(entry.shape, entry.dtype);
    file.read(entry, 0, entry.bytes, values.mutable_data_ptr());
    return values;
  }

  const std::string kGolden = "tests/core/images/golden/";
};

// An odd number of frames ends with its last one twice.
TEST_F(DecodedVideos, AreWhatTransformersMakesOfThem) {
  for (const std::string family : {"qwen2_5", "qwen3"}) {
    for (const auto& [name, count] : {std::pair("even", 4), std::pair("odd", 5)}) {
      const TokenBatch batch = open(family, line(frames(count))).windows({0}, 400);
      const std::string key = family + "/" + name;
      const at::Tensor pixels = golden(key);
      ASSERT_EQ(batch.video_pixels.sizes(), pixels.sizes()) << key;
      EXPECT_LE((batch.video_pixels - pixels).abs().max().item<double>(), 1.01 / 255 / 0.26) << key;
      EXPECT_TRUE(at::equal(batch.video_grids, golden(key + "/grid"))) << key;
      EXPECT_EQ(batch.inputs.eq(kVideo).sum().item<int64_t>(), pixels.size(0) / 4) << key;
    }
  }
}

TEST_F(DecodedVideos, HaveTheirRateOrTimes) {
  const TokenBatch together = open("qwen2_5", line(frames(4), "0.25")).windows({0}, 400);
  EXPECT_THAT(seconds(together.seconds_per_grid), ElementsAre(8));
  const std::string apart = spelled(open("qwen3", line(frames(5), "4")).windows({0}, 400).inputs);
  EXPECT_THAT(apart, ::testing::StartsWith("<0.1 seconds>SV"));
  EXPECT_THAT(apart, HasSubstr("E<0.6 seconds>SV"));
  EXPECT_THAT(apart, HasSubstr("E<1.0 seconds>SV"));
}

// As Qwen3VLProcessor writes them, for any number of frames and rate.
TEST_F(DecodedVideos, HaveTheTimesOfTransformers) {
  const VisionRules model = rules("qwen3");
  for (const nlohmann::json& row : nlohmann::json::parse(contents(kGolden + "times.json"))) {
    VideoSource source;
    source.frames.assign(row[0].get<size_t>(), path("frame-0.png"));
    source.frames_per_second = row[1];
    const std::vector<Video> videos = read_videos(source, model);
    ASSERT_EQ(videos.at(0).times.size(), row[2].size()) << row;
    for (size_t i = 0; i < row[2].size(); ++i) {
      EXPECT_EQ(fmt::format("<{:.1f} seconds>", videos[0].times[i]), row[2][i].get<std::string>());
    }
  }
}

TEST_F(DecodedVideos, WhoseFramesAreWrongAreNamed) {
  const auto error = [&](const std::string& file, const std::string& family = "qwen2_5") {
    const Error error =
        error_of([&] { open(family, line({"frame-0.png", file})).windows({0}, 400); });
    EXPECT_EQ(error.code(), Code::kCorruptData) << error.message();
    EXPECT_THAT(error.message(), HasSubstr(path("r.jsonl") + ": line 1: " + path(file) + ": "));
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
    return error.message();
  };
  EXPECT_THAT(error("none.png"), HasSubstr("cannot open"));
  EXPECT_THAT(error("other.png"),
              HasSubstr("has 61 x 37 pixels, and the first frame of its video, " +
                        path("frame-0.png") + ", has 47 x 33: expected frames of one size"));
  write("junk.png", "no such thing");
  EXPECT_THAT(error("junk.png"), HasSubstr("expected a JPEG, a PNG"));
  write("empty.png", "");
  error("empty.png");
  write_images(path("x.safetensors"), {{1, 2, 2}});
  EXPECT_THAT(error("x.safetensors"), HasSubstr("expected a JPEG or a PNG as a frame of a video"));
  const Error single = error_of([&] { open("qwen3", line({"frame-0.png"})); });
  EXPECT_THAT(single.message(), HasSubstr("the video has 1 frames of 47 x 33 pixels: expected at"));
  const Error image =
      error_of([&] { open("qwen2_5", R"({"videos": ["frame-0.png"], "text": "<video>a"})"); });
  EXPECT_THAT(image.message(), HasSubstr("is an image: expected safetensors of a video, or"));
}

// Whose header was sound when the records were opened.
TEST_F(DecodedVideos, ThatCannotBeDecodedAreNamedWhenTheyAreRead) {
  write("cut.png", contents(kGolden + "frame-1.png").substr(0, 1000));
  const RecordFile file = open("qwen2_5", line({"frame-0.png", "cut.png"}));
  const Error error = error_of([&] { file.windows({0}, 400); });
  EXPECT_EQ(error.code(), Code::kCorruptData);
  EXPECT_THAT(error.message(), HasSubstr(path("cut.png") + ": "));
}

TEST_F(DecodedVideos, NeedTheProcessorOfTheModel) {
  write("r.jsonl", line(frames(2)));
  const auto error_with = [&](const VisionRules& own) {
    const Error error = error_of([&] { RecordFile(path("r.jsonl"), 320, 400, {}, nullptr, own); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  };
  rules("qwen2_5");
  const auto read_again = [&] {
    VisionRules own = *read_vision_rules(path("config.json"));
    own.start_token = 256, own.image_token = 257, own.end_token = 258, own.video_token = 259;
    return own;
  };
  write("video_preprocessor_config.json", R"({"patch_size": 14})");
  EXPECT_THAT(error_with(read_again()), HasSubstr("makes patches of 2 frames of 14 x 14 pixels"));
  std::filesystem::remove(path("video_preprocessor_config.json"));
  EXPECT_THAT(error_with(read_again()), HasSubstr("there is no video_preprocessor_config.json or"));
  // What serves images serves videos, too.
  write("preprocessor_config.json", contents(kGolden + "qwen2_5/preprocessor_config.json"));
  EXPECT_EQ(RecordFile(path("r.jsonl"), 320, 400, {}, nullptr, read_again()).video_count(), 1);
}

}  // namespace
}  // namespace fsdp2::train
