// Records with images.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

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
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kStart = 256;
constexpr int64_t kImage = 257;
constexpr int64_t kEnd = 258;
constexpr int64_t kVideo = 259;
constexpr ImageGrid kSquare = {1, 2, 2};  // one token
constexpr ImageGrid kWide = {1, 2, 6};    // three

constexpr RecordRules kCut = {/*cut_long=*/true, /*skip_bad=*/false};
constexpr RecordRules kSkip = {/*cut_long=*/false, /*skip_bad=*/true};

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()};
}

// The first number of each patch.
std::vector<float> patches(const at::Tensor& pixels) {
  std::vector<float> first;
  for (int64_t i = 0; i < pixels.size(0); ++i) {
    first.push_back(pixels[i][0].item<float>());
  }
  return first;
}

class RecordImages : public FileTest {
 protected:
  RecordImages() {
    write_images(path("square.safetensors"), {kSquare});
    write_images(path("wide.safetensors"), {kWide}, 600);
    write_images(path("both.safetensors"), {kWide, kSquare}, 6000, at::kBFloat16);
  }

  RecordFile open(const std::string& lines, int64_t sequence_length = 24, RecordRules rules = {},
                  const std::string& name = "r.jsonl") const {
    return {write(name, lines), 320, sequence_length, rules, nullptr, tiny_vision()};
  }
  std::string error(const std::string& lines, Code code = Code::kCorruptData,
                    int64_t sequence_length = 24, RecordRules rules = {}) const {
    const Error error = error_of([&] { open(lines, sequence_length, rules); });
    EXPECT_EQ(error.code(), code) << lines;
    EXPECT_THAT(error.message(), HasSubstr(path("r.jsonl") + ": line 1")) << lines;
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
    return error.message();
  }
};

TEST_F(RecordImages, TakeTheTokensOfTheirGridsWithoutLabels) {
  const RecordFile file =
      open(R"({"images": ["wide.safetensors"], "prompt": "a<image>b", "response": "c"})", 10);
  EXPECT_EQ(file.image_count(), 1);
  const TokenBatch batch = file.windows({0}, 10);
  EXPECT_THAT(numbers(batch.inputs),
              ElementsAre('a', kStart, kImage, kImage, kImage, kEnd, 'b', 'c', 0, 0));
  EXPECT_THAT(numbers(batch.labels),
              ElementsAre(-100, -100, -100, -100, -100, -100, 'c', 0, -100, -100));
  EXPECT_THAT(numbers(batch.grids), ElementsAre(1, 2, 6));
  EXPECT_EQ(batch.pixels.scalar_type(), at::kFloat);
  EXPECT_EQ(batch.pixels.sizes(), (std::vector<int64_t>{12, kPatchNumel}));
  EXPECT_TRUE(at::equal(batch.pixels.flatten(), at::arange(600.0F, 600.0F + 72)));
}

// Also where all of the text is answer.
TEST_F(RecordImages, AreNotToBeLearned) {
  const RecordFile file = open(R"({"images": ["square.safetensors"], "text": "a<image>b"})", 6);
  EXPECT_THAT(numbers(file.windows({0}, 6).labels), ElementsAre(-100, -100, -100, 'b', 0, -100));
}

TEST_F(RecordImages, ComeInTheOrderOfTheirPlacesInABatch) {
  const RecordFile file = open(
      "{\"images\": [\"wide.safetensors\", \"square.safetensors\"], \"text\": "
      "\"<image>a<image>b\"}\n"
      "{\"text\": \"no images\"}\n"
      "{\"images\": [\"square.safetensors\"], \"text\": \"<image>c\"}\n",
      12);
  ASSERT_EQ(file.window_count(12), 3);
  EXPECT_EQ(file.image_count(), 3);
  const TokenBatch batch = file.windows({2, 1, 0}, 12);
  EXPECT_THAT(numbers(batch.grids), ElementsAre(1, 2, 2, 1, 2, 6, 1, 2, 2));
  EXPECT_THAT(patches(batch.pixels), ElementsAre(0, 6, 12, 18, 600, 606, 612, 618, 624, 630, 636,
                                                 642, 648, 654, 660, 666, 0, 6, 12, 18));
  const TokenBatch text = file.windows({1}, 12);
  EXPECT_FALSE(text.grids.defined());
  EXPECT_FALSE(text.pixels.defined());
}

TEST_F(RecordImages, OfOneFileAreSeveral) {
  const std::string lines =
      R"({"images": ["both.safetensors"], "prompt": "<image><image>", "response": "a"})";
  const TokenBatch batch = open(lines).windows({0}, 24);
  EXPECT_THAT(numbers(batch.grids), ElementsAre(1, 2, 6, 1, 2, 2));
  const at::Tensor expected = at::arange(6000, 6096).to(at::kBFloat16).to(at::kFloat);
  EXPECT_TRUE(at::equal(batch.pixels.flatten(), expected));
}

TEST_F(RecordImages, OfMessagesMayBeParts) {
  const std::string chat =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, PART]},
                       {"role": "assistant", "content": "b"}] MORE})";
  const auto tokens = [&](const std::string& part, const std::string& more) {
    std::string line = chat;
    line.replace(line.find("PART"), 4, part);
    line.replace(line.find("MORE"), 4, more);
    std::replace(line.begin(), line.end(), '\n', ' ');
    return numbers(open(line, 96).windows({0}, 96).inputs);
  };
  const auto inlined = tokens(R"({"type": "image", "image": "square.safetensors"})", "");
  EXPECT_THAT(inlined, ::testing::Contains(kImage).Times(1));
  EXPECT_EQ(tokens(R"({"type": "image"})", R"(, "images": ["square.safetensors"])"), inlined);
  EXPECT_EQ(
      tokens(R"({"type": "text", "text": "<image>"})", R"(, "images": ["square.safetensors"])"),
      inlined);
}

// Without images it is text like any other, as it has always been.
TEST_F(RecordImages, HaveAPlaceholderOnlyInRecordsWithImages) {
  for (const char* images : {"", "\"images\": [], ", "\"images\": null, "}) {
    const RecordFile file = open(std::string("{") + images + "\"text\": \"<image>\"}", 8);
    EXPECT_THAT(numbers(file.windows({0}, 8).inputs),
                ElementsAre('<', 'i', 'm', 'a', 'g', 'e', '>', 0));
  }
}

TEST_F(RecordImages, ArePackedWhole) {
  std::string lines;
  for (int i = 0; i < 9; ++i) {
    lines += R"({"images": ["wide.safetensors"], "prompt": "<image>", "response": "abc"})"
             "\n";
  }
  const RecordFile file = open(lines, 20);  // two of 8 places, and no part of a third
  ASSERT_EQ(file.window_count(20), 5);
  for (int64_t window = 0; window < 5; ++window) {
    const TokenBatch batch = file.windows({window}, 20);
    const int64_t images = window < 4 ? 2 : 1;
    EXPECT_EQ(batch.inputs.eq(kImage).sum().item<int64_t>(), 3 * images);
    EXPECT_EQ(batch.grids.size(0), images);
  }
}

TEST_F(RecordImages, ThatDoNotFitAreRefusedOrCutOffWhole) {
  const std::string line =
      R"({"images": ["square.safetensors", "wide.safetensors"], "text": "ab<image>c<image>d"})";
  EXPECT_THAT(error(line, Code::kInvalidArgument, 8),
              HasSubstr("line 1 has 13 tokens, a window of sequence length 8 takes 9"));
  // a b S I E c S | I I I E d 0: the second image is whole from 11 tokens on, the last of which is
  // no input.
  for (const int64_t length : {7, 8, 9}) {
    const TokenBatch batch = open(line, length, kCut).windows({0}, length);
    EXPECT_EQ(batch.inputs.eq(kImage).sum().item<int64_t>(), 1) << length;
    EXPECT_THAT(numbers(batch.grids), ElementsAre(1, 2, 2)) << length;
    EXPECT_EQ(batch.pixels.size(0), 4);
  }
  const TokenBatch whole = open(line, 10, kCut).windows({0}, 10);
  EXPECT_EQ(whole.inputs.eq(kImage).sum().item<int64_t>(), 4);
  EXPECT_EQ(whole.grids.size(0), 2);
  for (const int64_t length : {2, 3}) {  // the first image would not be whole, either
    const TokenBatch batch = open(line, length, kCut).windows({0}, length);
    EXPECT_EQ(batch.inputs.eq(kImage).sum().item<int64_t>(), 0) << length;
    EXPECT_FALSE(batch.grids.defined());
  }
}

TEST_F(RecordImages, ThatAreWrongAreNamed) {
  const auto of = [](const std::string& file, const std::string& text = "<image>a") {
    return "{\"images\": [\"" + file + "\"], \"text\": \"" + text + "\"}";
  };
  EXPECT_THAT(error(of("none.safetensors")), HasSubstr("none.safetensors: cannot open"));
  write("junk.safetensors", "no such thing");
  EXPECT_THAT(error(of("junk.safetensors")), HasSubstr("junk.safetensors"));
  EXPECT_THAT(error(of("."), Code::kIo), HasSubstr("expected a regular file, found a directory"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(error(of("pipe"), Code::kIo), HasSubstr("expected a regular file"));
  EXPECT_THAT(error(of("square.safetensors", "a")),
              HasSubstr("has 0 places for images, and its files have 1"));
  EXPECT_THAT(error(of("square.safetensors", "<image><image>a")),
              HasSubstr("has 2 places for images, and its files have 1"));
  EXPECT_THAT(error(of("both.safetensors")),
              HasSubstr("has 1 places for images, and its files have 2"));
  EXPECT_THAT(error(R"({"images": "square.safetensors", "text": "<image>a"})"),
              HasSubstr("\"images\": expected a list of files, got string"));
  EXPECT_THAT(error(R"({"images": [1], "text": "<image>a"})"), HasSubstr("the name of a file"));
  EXPECT_THAT(error(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
              HasSubstr("no file for it"));
  EXPECT_THAT(error(R"({"messages": [{"role": "user", "content": [{"type": "audio"}]}]})"),
              HasSubstr("\"content\": expected parts"));
}

TEST_F(RecordImages, WhoseTensorsAreWrongAreNamed) {
  const std::string line = R"({"images": ["x.safetensors"], "text": "<image>a"})";
  const at::Tensor grid = at::tensor({int64_t{1}, int64_t{2}, int64_t{6}});
  const at::Tensor pixels = at::zeros({12, kPatchNumel});
  const auto error_with = [&](const at::Tensor& grids, const at::Tensor& values) {
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    if (grids.defined()) {
      tensors.emplace_back("image_grid_thw", grids);
    }
    if (values.defined()) {
      tensors.emplace_back("pixel_values", values);
    }
    write_tensors(path("x.safetensors"), tensors);
    return error(line);
  };
  EXPECT_THAT(error_with(at::Tensor(), pixels), HasSubstr("has no \"image_grid_thw\""));
  EXPECT_THAT(error_with(grid, at::Tensor()), HasSubstr("has no \"pixel_values\""));
  EXPECT_THAT(error_with(grid, at::zeros({11, kPatchNumel})),
              HasSubstr("pixel_values has 11 patches, too few for the grids of 1 images"));
  EXPECT_THAT(error_with(grid, at::zeros({13, kPatchNumel})),
              HasSubstr("has 13 patches, more than the grids of 1 images"));
  EXPECT_THAT(error_with(grid, at::zeros({12, 7})),
              HasSubstr("expected F32, F16 or BF16 [patches, 6]"));
  EXPECT_THAT(error_with(grid, pixels.to(at::kLong)), HasSubstr("found Long [12, 6]"));
  EXPECT_THAT(error_with(grid.to(at::kFloat), pixels),
              HasSubstr("image_grid_thw: expected I64 [images, 3], found Float [3]"));
  EXPECT_THAT(error_with(grid.slice(0, 1), pixels), HasSubstr("[images, 3], found Long [2]"));
  for (const auto& wrong : std::vector<std::vector<int64_t>>{{1, 3, 4},
                                                             {1, 2, 5},
                                                             {0, 2, 6},
                                                             {1, -2, -6},
                                                             {INT64_MAX, 2, 6},
                                                             {1 << 20, 1 << 20, 2}}) {
    EXPECT_THAT(error_with(at::tensor(wrong), pixels), HasSubstr("x.safetensors: "));
  }
}

TEST_F(RecordImages, ThatCannotBeReadMayBeSkipped) {
  const RecordFile file = open(
      "{\"images\": [\"none.safetensors\"], \"text\": \"<image>a\"}\n"
      "{\"images\": [\"square.safetensors\"], \"text\": \"<image>b\"}\n",
      8, kSkip);
  EXPECT_EQ(file.record_count(), 1);
  EXPECT_THAT(file.left_out(), HasSubstr("skipped 1 of the lines; the first: line 1: "));
}

// Records of a model that sees no images, and tokens of images in text.
TEST_F(RecordImages, NeedAModelThatSeesThem) {
  const std::string line = R"({"images": ["square.safetensors"], "text": "<image>a"})";
  const std::string records = write("r.jsonl", line);
  const Error blind = error_of([&] { RecordFile(records, 320, 24, {}); });
  EXPECT_EQ(blind.code(), Code::kCorruptData);
  EXPECT_THAT(blind.message(), HasSubstr("line 1: has \"images\", and nothing says what model"));
  VisionRules rules = tiny_vision();
  rules.image_token = 'b';
  const auto open_with_b = [&] { RecordFile(records, 320, 24, {}, nullptr, rules); };
  EXPECT_EQ(error_of(open_with_b).code(), Code::kInvalidArgument);
  write("r.jsonl", R"({"text": "abc"})");
  EXPECT_THAT(error_of(open_with_b).message(),
              HasSubstr("line 1: has the model's token of images, 98, and no \"images\""));
}

TEST_F(RecordImages, NeedAVocabularyWithTheirTokens) {
  const std::string records =
      write("r.jsonl", R"({"images": ["square.safetensors"], "text": "<image>a"})");
  const auto open_with = [&](int64_t vocab_size) {
    return RecordFile(records, vocab_size, 24, {}, nullptr, tiny_vision()).image_count();
  };
  EXPECT_EQ(open_with(kVideo + 1), 1);
  const Error error = error_of([&] { open_with(kVideo); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_THAT(
      error.message(),
      HasSubstr("r.jsonl: the model's tokens of images and videos go up to 259, and the vocabulary "
                "has 259"));
}

TEST_F(RecordImages, ThatChangedSinceTheyWereOpenedAreAnError) {
  const std::string lines =
      "{\"images\": [\"x.safetensors\"], \"text\": \"<image>a\"}\n"
      "{\"images\": [\"x.safetensors\"], \"text\": \"<image>b\"}\n";
  for (const RecordRules& rules : {RecordRules(), kSkip}) {
    write_images(path("x.safetensors"), {kSquare});
    const RecordFile file = open(lines, 5, rules);
    ASSERT_EQ(file.window_count(5), 2);
    write_images(path("x.safetensors"), {kWide});  // does not fit any more
    EXPECT_EQ(error_of([&] { file.windows({0}, 5); }).code(), Code::kInvalidArgument);
    std::filesystem::remove(path("x.safetensors"));
    EXPECT_EQ(error_of([&] { file.windows({0}, 5); }).code(),
              rules.skip_bad ? Code::kIo : Code::kCorruptData);
  }
}

TEST_F(RecordImages, GoThroughMixturesLoadersAndReadAhead) {
  const auto file = [&](const char* name, const char* image, char letter) {
    std::string lines;
    for (int i = 0; i < 7; ++i) {
      lines += std::string("{\"images\": [\"") + image + "\"], \"text\": \"<image>" +
               static_cast<char>(letter + i) + "\"}\n";
    }
    return std::make_shared<RecordFile>(open(lines, 6, {}, name));
  };
  const auto mixture = std::make_shared<Mixture>(
      std::vector<MixturePart>{{file("a.jsonl", "square.safetensors", 'a'), 1},
                               {file("b.jsonl", "wide.safetensors", 'p'), 1}},
      6, DataOrder::kShuffle, 5);
  EXPECT_EQ(mixture->image_count(), 14);
  DataLoaderOptions options;
  options.batch_size = 3;
  options.sequence_length = 6;
  DataLoader plain(mixture, options);
  options.read_ahead = 2;
  DataLoader ahead(mixture, options);
  DataPosition half;
  std::vector<TokenBatch> rest;
  for (int step = 0; step < 6; ++step) {
    const TokenBatch batch = plain.next();
    const TokenBatch same = ahead.next();
    EXPECT_TRUE(at::equal(batch.pixels, same.pixels));
    EXPECT_TRUE(at::equal(batch.grids, same.grids));
    EXPECT_EQ(batch.grids.size(0), 3);
    const int64_t tokens = batch.inputs.eq(kImage).sum().item<int64_t>();
    EXPECT_EQ(batch.pixels.size(0), 4 * tokens);
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
    EXPECT_TRUE(at::equal(batch.pixels, again.pixels));
  }
}

// ---- files that are decoded

// What transformers makes of these files is in the same folder: see tests/core/images.
class DecodedImages : public FileTest {
 protected:
  // With processors for patches of 4 x 4 pixels.
  std::string model(const std::string& processor) const {
    write("config.json", contents("tests/parity/vision_language/tiny-qwen2.5-vl/config.json"));
    write("preprocessor_config.json", processor);
    return path("config.json");
  }
  VisionRules rules() const {
    VisionRules rules =
        *read_vision_rules(model(contents(kGolden + "qwen2_5/preprocessor_config.json")));
    const VisionRules tokens = tiny_vision();
    rules.start_token = tokens.start_token;
    rules.image_token = tokens.image_token;
    rules.end_token = tokens.end_token;
    rules.video_token = tokens.video_token;
    return rules;
  }
  RecordFile open(const std::string& file) const {
    const std::string line = "{\"images\": [\"" + file + "\"], \"text\": \"<image>a\"}";
    return {write("r.jsonl", line), 320, 200, {}, nullptr, rules()};
  }
  void copy(const std::string& name) const { std::filesystem::copy(kGolden + name, path(name)); }

  const std::string kGolden = "tests/core/images/golden/";
};

TEST_F(DecodedImages, AreWhatTransformersMakesOfThem) {
  const ckpt::SafetensorsFile expected(kGolden + "patches.safetensors");
  for (const std::string name : {"rgb.png", "photo.jpg", "turned-6.jpg"}) {
    copy(name);
    const TokenBatch batch = open(name).windows({0}, 200);
    const ckpt::SafetensorsEntry& entry = *expected.find("qwen2_5/" + name);
    at::Tensor pixels = at::empty(entry.shape, entry.dtype);
    expected.read(entry, 0, entry.bytes, pixels.mutable_data_ptr());
    ASSERT_EQ(batch.pixels.sizes(), pixels.sizes());
    EXPECT_LE((batch.pixels - pixels).abs().max().item<double>(), 1.01 / 255 / 0.26) << name;
    at::Tensor grid = at::empty({1, 3}, at::kLong);
    const ckpt::SafetensorsEntry& numbers = *expected.find("qwen2_5/" + name + "/grid");
    expected.read(numbers, 0, numbers.bytes, grid.mutable_data_ptr());
    EXPECT_TRUE(at::equal(batch.grids, grid)) << name;
    EXPECT_EQ(batch.inputs.eq(kImage).sum().item<int64_t>(), batch.pixels.size(0) / 4);
  }
}

TEST_F(DecodedImages, ThatCannotBeDecodedAreNamed) {
  const auto error = [&](const std::string& file, Code code) {
    const Error error = error_of([&] { open(file).windows({0}, 200); });
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_THAT(error.message(), HasSubstr(path(file) + ": "));
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
    return error.message();
  };
  write("cut.png", contents(kGolden + "rgb.png").substr(0, 1000));
  error("cut.png", Code::kCorruptData);
  write("cut.jpg", contents(kGolden + "photo.jpg").substr(0, 60));
  EXPECT_THAT(error("cut.jpg", Code::kCorruptData), HasSubstr("r.jsonl: line 1: "));
  copy("cmyk.jpg");
  EXPECT_THAT(error("cmyk.jpg", Code::kCorruptData), HasSubstr("expected grey or RGB"));
  write("a.webp", "RIFF....WEBPVP8 ");
  EXPECT_THAT(error("a.webp", Code::kCorruptData),
              HasSubstr("expected a JPEG, a PNG or a safetensors file"));
}

TEST_F(DecodedImages, NeedTheProcessorOfTheModel) {
  copy("rgb.png");
  const std::string line = R"({"images": ["rgb.png"], "text": "<image>a"})";
  const std::string records = write("r.jsonl", line);
  VisionRules without = rules();
  without.processor.reset();
  const Error missing = error_of([&] { RecordFile(records, 320, 200, {}, nullptr, without); });
  EXPECT_EQ(missing.code(), Code::kInvalidArgument);
  EXPECT_THAT(missing.message(), HasSubstr("there is no preprocessor_config.json beside"));
  const Error other = error_of([&] { read_vision_rules(model(R"({"patch_size": 14})")); });
  EXPECT_EQ(other.code(), Code::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("makes patches of 2 frames of 14 x 14 pixels"));
}

}  // namespace
}  // namespace fsdp2::train
