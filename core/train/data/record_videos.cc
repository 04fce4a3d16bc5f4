#include "core/train/data/record_videos.h"

#include <ATen/Functions.h>

#include <cstddef>
#include <utility>

#include "core/base/error.h"
#include "core/train/data/record_images.h"

namespace fsdp2::train {

namespace {

VideoSource located(const VideoSource& source, const std::string& directory) {
  VideoSource found = source;
  if (!found.tensors.empty()) {
    found.tensors = path_in(directory, found.tensors);
  }
  for (std::string& frame : found.frames) {
    frame = path_in(directory, frame);
  }
  return found;
}

// With one decimal, as Python writes it.
std::string time_text(double seconds) {
  return fmt::format("<{:.1f} seconds>{}", seconds, kStartText);
}

std::string frames_text(const Video& video) {
  std::string text;
  for (const double seconds : video.times) {
    text += fmt::format("{}{}{}", time_text(seconds), kVideoText, kEndText);
  }
  return text;
}

// What a record's texts are.
std::vector<std::string*> texts_of(Record* record) {
  std::vector<std::string*> texts;
  for (RecordPart& part : record->parts) {
    texts.push_back(&part.text);
  }
  for (Message& message : record->chat) {
    texts.push_back(&message.content);
  }
  return texts;
}

// Calls at(text, place) for each place of a video; it returns where to go on.
template <typename At>
void each_place(Record* record, const At& at) {
  for (std::string* text : texts_of(record)) {
    for (size_t place = text->find(kVideoText); place != std::string::npos;
         place = text->find(kVideoText, place)) {
      place = at(text, place);
    }
  }
}

// Puts the frames in place of a video's token, and of a start and an end around it.
size_t write_frames(const std::string& frames, std::string* text, size_t place) {
  size_t end = place + kVideoText.size();
  const bool is_enclosed =
      place >= kStartText.size() &&
      text->compare(place - kStartText.size(), kStartText.size(), kStartText) == 0 &&
      text->compare(end, kEndText.size(), kEndText) == 0;
  if (is_enclosed) {
    place -= kStartText.size();
    end += kEndText.size();
  }
  text->replace(place, end - place, frames);
  return place + frames.size();
}

bool is_followed_by(const RecordVideo& a, const RecordVideo& b) {
  return a.source == b.source && a.number + 1 == b.number;
}

void fill_tables(const std::vector<RecordVideo>& videos, const VisionRules& rules,
                 TokenBatch* batch) {
  const auto count = static_cast<int64_t>(videos.size());
  const at::TensorOptions on_host = at::device(at::kCPU);
  batch->video_grids = at::empty({count, 3}, on_host.dtype(at::kLong));
  auto* grid = batch->video_grids.mutable_data_ptr<int64_t>();
  for (const RecordVideo& each : videos) {
    *grid++ = each.video.grid.frames;
    *grid++ = each.video.grid.rows;
    *grid++ = each.video.grid.columns;
  }
  if (rules.frames_are_apart) {
    return;
  }
  batch->seconds_per_grid = at::empty({count}, on_host.dtype(at::kDouble));
  auto* seconds = batch->seconds_per_grid.mutable_data_ptr<double>();
  for (const RecordVideo& each : videos) {
    *seconds++ = each.video.seconds_per_grid;
  }
}

}  // namespace

std::vector<RecordVideo> find_videos(const std::vector<VideoSource>& sources,
                                     const RecordVision& vision) {
  std::vector<RecordVideo> videos;
  for (const VideoSource& each : sources) {
    const auto source = std::make_shared<const VideoSource>(located(each, vision.directory));
    as_part_of_record([&] {
      size_t number = 0;
      for (Video& video : read_videos(*source, vision.rules)) {
        videos.push_back({source, number++, std::move(video)});
      }
    });
  }
  return videos;
}

std::vector<std::string> write_videos(std::vector<RecordVideo>* videos, const VisionRules& rules,
                                      Record* record) {
  size_t places = record->videos_left_out;
  each_place(record, [&](const std::string* /*text*/, size_t place) {
    ++places;
    return place + kVideoText.size();
  });
  FSDP2_CHECK(places == videos->size(), Code::kCorruptData,
              "has {} places for videos, and {} videos: expected \"<video>\" in its texts, or a "
              "part of type video, for each",
              places, videos->size());
  videos->erase(videos->end() - static_cast<std::ptrdiff_t>(record->videos_left_out),
                videos->end());
  std::vector<std::string> times;
  if (!rules.frames_are_apart) {
    return times;
  }
  auto video = videos->begin();
  each_place(record, [&](std::string* text, size_t place) {
    for (const double seconds : video->video.times) {
      times.push_back(time_text(seconds));
    }
    return write_frames(frames_text((video++)->video), text, place);
  });
  return times;
}

void read_video_pixels(const std::vector<RecordVideo>& videos, const VisionRules& rules,
                       TokenBatch* batch) {
  if (videos.empty()) {
    return;
  }
  int64_t patches = 0;
  for (const RecordVideo& each : videos) {
    patches += each.video.grid.patches();
  }
  fill_tables(videos, rules, batch);
  batch->video_pixels =
      at::empty({patches, rules.patch_numel}, at::device(at::kCPU).dtype(at::kFloat));
  auto* out = batch->video_pixels.mutable_data_ptr<float>();
  for (size_t begin = 0, end = 0; begin < videos.size(); begin = end) {
    std::vector<ImageGrid> grids;
    do {
      grids.push_back(videos[end++].video.grid);
    } while (end < videos.size() && is_followed_by(videos[end - 1], videos[end]));
    copy_video_pixels(*videos[begin].source, rules, videos[begin].number, grids, out);
    for (const ImageGrid& grid : grids) {
      out += grid.patches() * rules.patch_numel;
    }
  }
}

}  // namespace fsdp2::train
