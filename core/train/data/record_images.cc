#include "core/train/data/record_images.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/train/data/images/image_file.h"

namespace fsdp2::train {

namespace {

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

void check_places(const RecordTokens& tokens, const std::vector<RecordImage>& images,
                  size_t left_out, const std::vector<RecordVideo>& videos,
                  const VisionRules& rules) {
  const auto count = [&](uint32_t token) {
    return std::count(tokens.ids.begin(), tokens.ids.end(), token);
  };
  const size_t places = static_cast<size_t>(count(rules.image_token)) + left_out;
  FSDP2_CHECK(places == images.size(), Code::kCorruptData,
              "has {} places for images, and its files have {}: expected \"<image>\" in its "
              "texts, or a part of type image, for each",
              places, images.size());
  int64_t blocks = 0;
  for (const RecordVideo& video : videos) {
    blocks += rules.blocks_of(video.video.grid);
  }
  const int64_t found = count(rules.video_token);
  FSDP2_CHECK(found == blocks, Code::kCorruptData,
              "has the token of videos, {}, {} times, and its videos need it {} times: expected a "
              "chat template that leaves it as it is",
              rules.video_token, found, blocks);
}

void add_places(uint32_t token, size_t count, RecordTokens* placed) {
  placed->ids.insert(placed->ids.end(), count, token);
  placed->is_answer.insert(placed->is_answer.end(), count, false);
}

}  // namespace

std::string path_in(const std::string& directory, const std::string& file) {
  return file.front() == '/' ? file : directory + file;
}

std::vector<RecordImage> find_images(const std::vector<std::string>& files,
                                     const RecordVision& vision) {
  std::vector<RecordImage> images;
  for (const std::string& file : files) {
    const std::string path = path_in(vision.directory, file);
    as_part_of_record([&] {
      size_t number = 0;
      for (const ImageGrid& grid : read_image_grids(path, vision.rules)) {
        const auto tokens = static_cast<size_t>(vision.rules.tokens_of(grid));
        images.push_back({path, number++, grid, 0, tokens});
      }
    });
  }
  return images;
}

void check_vision_vocabulary(const std::string& path, const VisionRules& rules,
                             int64_t vocab_size) {
  const int64_t last =
      std::max({rules.start_token, rules.image_token, rules.end_token, rules.video_token});
  FSDP2_CHECK(last < vocab_size, Code::kInvalidArgument,
              "{}: the model's tokens of images and videos go up to {}, and the vocabulary has {}: "
              "expected the model's own vocabulary",
              path, last, vocab_size);
}

void place_seen(std::vector<RecordImage> images, size_t left_out, std::vector<RecordVideo> videos,
                const VisionRules& rules, RecordTokens* tokens) {
  check_places(*tokens, images, left_out, videos, rules);
  images.erase(images.end() - static_cast<std::ptrdiff_t>(left_out), images.end());
  RecordTokens placed;
  auto image = images.begin();
  auto video = videos.begin();
  int64_t block = 0;  // of the video
  for (size_t i = 0; i < tokens->ids.size(); ++i) {
    const uint32_t id = tokens->ids[i];
    if (id == rules.image_token) {
      image->begin = placed.ids.size();
      add_places(id, image->tokens, &placed);
      ++image;
    } else if (id == rules.video_token) {
      const ImageGrid& grid = video->video.grid;
      video->begin = block == 0 ? placed.ids.size() : video->begin;
      add_places(id, static_cast<size_t>(rules.tokens_of_block(grid)), &placed);
      video->end = placed.ids.size();
      block = (block + 1) % rules.blocks_of(grid);
      video += block == 0 ? 1 : 0;
    } else {
      placed.add(id, tokens->is_answer[i] && id != rules.start_token && id != rules.end_token);
    }
  }
  const bool has_end = placed.ids.empty() || (placed.ids.back() != rules.image_token &&
                                              placed.ids.back() != rules.video_token);
  FSDP2_CHECK(has_end, Code::kCorruptData,
              "ends with an image or a video: expected text behind it");
  placed.images = std::move(images);
  placed.videos = std::move(videos);
  *tokens = std::move(placed);
}

void cut_record(size_t most, RecordTokens* tokens) {
  std::vector<RecordImage>& images = tokens->images;
  std::vector<RecordVideo>& videos = tokens->videos;
  // The last token is no input, but a label.
  const auto cuts_image = [&] { return !images.empty() && images.back().end() >= most; };
  const auto cuts_video = [&] { return !videos.empty() && videos.back().end >= most; };
  while (cuts_image() || cuts_video()) {
    if (cuts_image()) {
      most = std::min(most, images.back().begin);
      images.pop_back();
    } else {
      most = std::min(most, videos.back().begin);
      videos.pop_back();
    }
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
