#include "core/train/data/record_file.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/train/data/record_images.h"
#include "core/train/data/record_videos.h"
#include "core/train/data/vocabulary.h"

namespace fsdp2::train {

namespace {

constexpr int64_t kPadding = 0;  // token of places that nothing is learned from

// Places that a record takes in a window.
int64_t places(const RecordTokens& tokens) { return static_cast<int64_t>(tokens.ids.size()) - 1; }

std::optional<RecordVision> vision_of(const std::optional<VisionRules>& rules,
                                      const std::string& records) {
  const size_t slash = records.rfind('/');
  return rules ? std::optional(RecordVision{
                     *rules, slash == std::string::npos ? "" : records.substr(0, slash + 1)})
               : std::nullopt;
}

}  // namespace

void RecordFile::Tally::add(const std::string& what) {
  if (count++ == 0) {
    first = what;
  }
}

RecordFile::RecordFile(std::string path, int64_t vocab_size, int64_t sequence_length,
                       RecordRules rules, std::shared_ptr<const text::Tokenizer> tokenizer,
                       const std::optional<VisionRules>& vision)
    : file_(std::move(path)),
      sequence_length_(sequence_length),
      rules_(rules),
      tokenizer_(std::move(tokenizer)),
      vision_(vision_of(vision, file_.path())) {
  FSDP2_CHECK(sequence_length >= 1, Code::kInvalidArgument,
              "{}: sequence length {} is not positive", this->path(), sequence_length);
  check_vocabulary(this->path(), tokenizer_.get(), vocab_size);
  if (vision) {
    check_vision_vocabulary(this->path(), *vision, vocab_size);
  }
  pack();
}

void RecordFile::pack() {
  Place place;
  int64_t taken = 0;  // places of the last window
  for (Place begin = place; const auto record = next(&place, &left_out_); begin = place) {
    if (windows_.empty() || taken + places(*record) > sequence_length_) {
      windows_.push_back({begin, 0});
      taken = 0;
    }
    taken += places(*record);
    ++windows_.back().records;
    ++record_count_;
    image_count_ += static_cast<int64_t>(record->images.size());
    video_count_ += static_cast<int64_t>(record->videos.size());
    end_ = place.offset;
  }
  FSDP2_CHECK(
      record_count_ > 0, Code::kInvalidArgument, "{}: has no records{}", path(),
      left_out_.lines.count == 0 ? std::string() : " but bad ones: " + left_out_.lines.first);
}

std::optional<std::string_view> RecordFile::next_line(Place* place) const {
  const auto rest = file_.bytes().slice(static_cast<size_t>(place->offset));
  if (rest.empty()) {
    return std::nullopt;
  }
  const auto* const end = std::find(rest.begin(), rest.end(), '\n');
  const auto length = static_cast<size_t>(end - rest.begin());
  place->offset += static_cast<int64_t>(std::min(length + 1, rest.size()));
  ++place->line;
  return std::string_view(reinterpret_cast<const char*>(rest.data()), length);
}

RecordTokens RecordFile::fitting(RecordTokens tokens, int64_t line, Tally* cut) const {
  const auto most = static_cast<size_t>(sequence_length_) + 1;
  std::string too_long;
  if (tokens.ids.size() > most) {
    too_long = fmt::format("line {} has {} tokens, a window of sequence length {} takes {}", line,
                           tokens.ids.size(), sequence_length_, most);
    FSDP2_CHECK(rules_.cut_long, Code::kInvalidArgument,
                "{}: {}: expected a longer window, or cut_long_records", path(), too_long);
    cut_record(most, &tokens);
  }
  const auto& answers = tokens.is_answer;
  FSDP2_CHECK(
      !answers.empty() && std::find(answers.begin() + 1, answers.end(), true) != answers.end(),
      Code::kCorruptData, "has no answer to learn");
  if (!too_long.empty()) {
    cut->add(too_long);
  }
  return tokens;
}

std::optional<RecordTokens> RecordFile::next(Place* place, LeftOut* left_out) const {
  while (true) {
    const int64_t number = place->line;
    const std::optional<std::string_view> line = next_line(place);
    if (!line) {
      return std::nullopt;
    }
    if (line->find_first_not_of(" \t\r") == std::string_view::npos) {
      continue;
    }
    try {
      return fitting(read_record_tokens(*line, tokenizer_.get(), vision_ ? &*vision_ : nullptr),
                     number, &left_out->ends);
    } catch (const Error& error) {
      const bool is_bad_record = error.code() == Code::kCorruptData;
      if (!is_bad_record && error.code() != Code::kIo) {
        throw;
      }
      const std::string what = fmt::format("line {}: {}", number, error.message());
      FSDP2_CHECK(is_bad_record && rules_.skip_bad, error.code(), "{}: {}", path(), what);
      left_out->lines.add(what);
    }
  }
}

int64_t RecordFile::window_count(int64_t sequence_length) const {
  FSDP2_CHECK(sequence_length == sequence_length_, Code::kInvalidArgument,
              "{}: is packed into windows of {}, not of {}", path(), sequence_length_,
              sequence_length);
  return static_cast<int64_t>(windows_.size());
}

int64_t RecordFile::end_of(size_t window) const {
  return window + 1 < windows_.size() ? windows_[window + 1].begin.offset : end_;
}

void RecordFile::write(size_t window, int64_t* inputs, int64_t* labels, int64_t* positions,
                       Seen* seen) const {
  LeftOut told_before;
  Place place = windows_[window].begin;
  int64_t taken = 0;
  for (int64_t i = 0; i < windows_[window].records; ++i) {
    const std::optional<RecordTokens> record = next(&place, &told_before);
    FSDP2_CHECK(
        record && taken + places(*record) <= sequence_length_ && place.offset <= end_of(window),
        Code::kIo, "{}: it or a file of its images or videos has changed since it was opened",
        path());
    for (int64_t token = 0; token < places(*record); ++token, ++taken) {
      const auto after = static_cast<size_t>(token) + 1;
      inputs[taken] = record->ids[after - 1];
      labels[taken] = record->is_answer[after] ? record->ids[after] : kIgnoredLabel;
      positions[taken] = token;
    }
    seen->images.insert(seen->images.end(), record->images.begin(), record->images.end());
    seen->videos.insert(seen->videos.end(), record->videos.begin(), record->videos.end());
  }
  std::fill(inputs + taken, inputs + sequence_length_, kPadding);
  std::fill(labels + taken, labels + sequence_length_, kIgnoredLabel);
  std::iota(positions + taken, positions + sequence_length_, 0);
}

TokenBatch RecordFile::windows(const std::vector<int64_t>& windows, int64_t sequence_length) const {
  const int64_t available = window_count(sequence_length);
  file_.check_size();
  const std::vector<int64_t> shape{static_cast<int64_t>(windows.size()), sequence_length};
  const at::TensorOptions on_host = at::device(at::kCPU).dtype(at::kLong);
  TokenBatch batch{at::empty(shape, on_host), at::empty(shape, on_host), at::empty(shape, on_host)};
  Seen seen;
  int64_t place = 0;
  for (const int64_t window : windows) {
    FSDP2_CHECK(window >= 0 && window < available, Code::kInvalidArgument,
                "{}: there is no window {} among {} of sequence length {}", path(), window,
                available, sequence_length);
    write(static_cast<size_t>(window), batch.inputs.mutable_data_ptr<int64_t>() + place,
          batch.labels.mutable_data_ptr<int64_t>() + place,
          batch.positions.mutable_data_ptr<int64_t>() + place, &seen);
    place += sequence_length;
  }
  if (vision_) {
    read_pixels(seen.images, vision_->rules, &batch);
    read_video_pixels(seen.videos, vision_->rules, &batch);
  }
  return batch;
}

std::string RecordFile::extent() const {
  return fmt::format(
      "bytes in the file={}\nrecords in the file={}\nimages in the file={}\nvideos in the "
      "file={}\n",
      file_.size(), record_count_, image_count_, video_count_);
}

int64_t RecordFile::video_inputs() const {
  if (video_count_ == 0) {
    return 0;
  }
  return vision_->rules.frames_are_apart ? 2 : 3;
}

std::string RecordFile::left_out() const {
  std::string text;
  const auto add = [&](const char* done, const Tally& tally) {
    if (tally.count > 0) {
      text += fmt::format("{}{} {} of the lines; the first: {}", text.empty() ? "" : "; ", done,
                          tally.count, tally.first);
    }
  };
  add("skipped", left_out_.lines);
  add("cut the end of", left_out_.ends);
  return text.empty() ? "" : path() + ": " + text;
}

}  // namespace fsdp2::train
