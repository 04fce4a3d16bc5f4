#include "core/train/data/record_images.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "core/train/data/images/image_file.h"
#include "core/train/data/record.h"

namespace fsdp2::train {

namespace {

constexpr uint32_t kBytes = 256;

std::string path_in(const std::string& directory, const std::string& file) {
  return file.front() == '/' ? file : directory + file;
}

// The images of all files; their tokens have no place yet. What is wrong with a file is wrong with
// the record.
std::vector<RecordImage> find_images(const std::vector<std::string>& files,
                                     const RecordVision& vision) {
  std::vector<RecordImage> images;
  for (const std::string& file : files) {
    const std::string path = path_in(vision.directory, file);
    try {
      size_t number = 0;
      for (const ImageGrid& grid : read_image_grids(path, vision.rules)) {
        const auto tokens = static_cast<size_t>(vision.rules.tokens_of(grid));
        images.push_back({path, number++, grid, 0, tokens});
      }
    } catch (const Error& error) {
      // A directory without a preprocessor_config.json, a disk that fails and a machine without
      // memory are not the record's.
      const bool is_of_record =
          error.code() == Code::kNotFound || error.code() == Code::kUnsupported;
      throw Error(is_of_record ? Code::kCorruptData : error.code(), error.message(),
                  error.native_code());
    }
  }
  return images;
}

bool follow_each_other(const RecordImage& a, const RecordImage& b) {
  return a.file == b.file && a.number + 1 == b.number;
}

void fill_grids(const std::vector<RecordImage>& images, int64_t* out) {
  for (const RecordImage& image : images) {
    *out++ = image.grid.frames;
    *out++ = image.grid.rows;
    *out++ = image.grid.columns;
  }
}

}  // namespace

void check_image_tokens(const text::Tokenizer* tokenizer, const VisionRules& rules) {
  if (tokenizer == nullptr || tokenizer->is_bytes()) {
    FSDP2_CHECK(std::min({rules.start_token, rules.image_token, rules.end_token}) >= kBytes,
                Code::kInvalidArgument,
                "the tokens of the records are bytes, and those of the model's images, {}, {} and "
                "{}, are bytes, too: expected a tokenizer, or a model whose "
                "vision_start_token_id, image_token_id and vision_end_token_id are from {} on",
                rules.start_token, rules.image_token, rules.end_token, kBytes);
    return;
  }
  for (const auto& [text, token, key] :
       {std::tuple(kStartText, rules.start_token, "vision_start_token_id"),
        std::tuple(kImageText, rules.image_token, "image_token_id"),
        std::tuple(kEndText, rules.end_token, "vision_end_token_id")}) {
    const std::optional<int64_t> found = tokenizer->find_token(text);
    FSDP2_CHECK(found && *found == int64_t{token}, Code::kInvalidArgument,
                "{}: its token {} is {}, and the \"{}\" of the model is {}: expected the model's "
                "own tokenizer",
                tokenizer->path(), text, found ? std::to_string(*found) : "missing", key, token);
  }
}

void check_image_vocabulary(const std::string& path, const VisionRules& rules, int64_t vocab_size) {
  const int64_t last = std::max({rules.start_token, rules.image_token, rules.end_token});
  FSDP2_CHECK(
      last < vocab_size, Code::kInvalidArgument,
      "{}: the model's tokens of images go up to {}, and the vocabulary has {}: expected the "
      "model's own vocabulary",
      path, last, vocab_size);
}

void place_images(const std::vector<std::string>& files, const RecordVision& vision,
                  RecordTokens* tokens) {
  const VisionRules& rules = vision.rules;
  std::vector<RecordImage> images = find_images(files, vision);
  const auto places =
      static_cast<size_t>(std::count(tokens->ids.begin(), tokens->ids.end(), rules.image_token));
  FSDP2_CHECK(places == images.size(), Code::kCorruptData,
              "has {} places for images, and its files have {}: expected \"<image>\" in its "
              "texts, or a part of type image, for each",
              places, images.size());
  if (images.empty()) {
    return;
  }
  RecordTokens placed;
  auto image = images.begin();
  for (size_t i = 0; i < tokens->ids.size(); ++i) {
    const uint32_t id = tokens->ids[i];
    if (id != rules.image_token) {
      placed.add(id, tokens->is_answer[i] && id != rules.start_token && id != rules.end_token);
      continue;
    }
    image->begin = placed.ids.size();
    placed.ids.insert(placed.ids.end(), image->tokens, id);
    placed.is_answer.insert(placed.is_answer.end(), image->tokens, false);
    ++image;
  }
  FSDP2_CHECK(placed.ids.back() != rules.image_token, Code::kCorruptData,
              "ends with an image: expected text behind it");
  placed.images = std::move(images);
  *tokens = std::move(placed);
}

void cut_record(size_t most, RecordTokens* tokens) {
  // The last token is no input, but a label.
  while (!tokens->images.empty() && tokens->images.back().end() >= most) {
    most = std::min(most, tokens->images.back().begin);
    tokens->images.pop_back();
  }
  tokens->ids.resize(most);
  tokens->is_answer.resize(most);
}

void read_pixels(const std::vector<RecordImage>& images, const VisionRules& rules,
                 TokenBatch* batch) {
  if (images.empty()) {
    return;
  }
  int64_t patches = 0;
  for (const RecordImage& image : images) {
    patches += image.grid.patches();
  }
  const at::TensorOptions on_host = at::device(at::kCPU);
  batch->pixels = at::empty({patches, rules.patch_numel}, on_host.dtype(at::kFloat));
  batch->grids = at::empty({static_cast<int64_t>(images.size()), 3}, on_host.dtype(at::kLong));
  fill_grids(images, batch->grids.mutable_data_ptr<int64_t>());
  auto* out = batch->pixels.mutable_data_ptr<float>();
  for (size_t begin = 0, end = 0; begin < images.size(); begin = end) {
    std::vector<ImageGrid> grids;
    do {
      grids.push_back(images[end++].grid);
    } while (end < images.size() && follow_each_other(images[end - 1], images[end]));
    read_image_pixels(images[begin].file, rules, images[begin].number, grids, out);
    for (const ImageGrid& grid : grids) {
      out += grid.patches() * rules.patch_numel;
    }
  }
}

}  // namespace fsdp2::train
