// A data set of JSON lines (record.h), packed into windows of their tokens (record_tokens.h).
//
// A record of n tokens takes n - 1 places, whose labels are the tokens after them; those that are
// not of an answer are kIgnoredLabel. A window takes the next records of the file as long as they
// fit whole; its last places are padding, without labels. Positions begin at 0 in each record, and
// in the padding: no record sees another. Lines of white space are no records.
//
// The places of the tokens of an image or a video are never cut: a record that is cut loses it as a
// whole.
//
// The file is read once when it is opened, and then line by line as windows are asked for: what is
// kept in memory is 24 bytes a window. The files of its images and videos are read likewise: their
// sizes when this one is opened, and their pixels with each window. Their names are relative to its
// folder.
//
// Immutable: any thread may read from it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.h"
#include "core/text/tokenizer.h"
#include "core/train/data/record_tokens.h"
#include "core/train/data/window_source.h"

namespace fsdp2::train {

struct RecordRules {
  bool cut_long = false;  // leave out the end of records that do not fit a window
  bool skip_bad = false;  // leave out lines that are no record, or have nothing to learn
};

class RecordFile : public WindowSource {
 public:
  // tokenizer: null for bytes. vision: of a model that sees images. Errors: kNotFound, kIo;
  // kInvalidArgument for a vocabulary without all bytes, all tokens of the tokenizer or the model's
  // tokens of images, a record that is refused for its length, or no record at all; kCorruptData
  // for a line that is refused. They name the file and the line.
  RecordFile(std::string path, int64_t vocab_size, int64_t sequence_length, RecordRules rules,
             std::shared_ptr<const text::Tokenizer> tokenizer = nullptr,
             const std::optional<VisionRules>& vision = {});

  const std::string& path() const override { return file_.path(); }
  int64_t record_count() const { return record_count_; }
  int64_t window_count(int64_t sequence_length) const override;
  TokenBatch windows(const std::vector<int64_t>& windows, int64_t sequence_length) const override;
  int64_t image_count() const override { return image_count_; }
  int64_t video_count() const override { return video_count_; }
  int64_t video_inputs() const override;
  std::string extent() const override;
  std::string left_out() const override;

 private:
  // A place in the file where a line begins.
  struct Place {
    int64_t offset = 0;
    int64_t line = 1;  // its number
  };
  struct Window {
    Place begin;
    int64_t records = 0;
  };
  struct Tally {
    int64_t count = 0;
    std::string first;  // what was wrong with the first
    void add(const std::string& what);
  };
  struct LeftOut {
    Tally lines;  // that were skipped
    Tally ends;   // of records that were cut
  };

  // The next record of the file, which goes on to the line after it; nothing at the end. What the
  // rules leave out is passed over.
  std::optional<RecordTokens> next(Place* place, LeftOut* left_out) const;
  // The next line, without its end; nothing at the end of the file.
  std::optional<std::string_view> next_line(Place* place) const;
  // Cut to a window if that is the rule. Error: kCorruptData if nothing is to be learned from it.
  RecordTokens fitting(RecordTokens tokens, int64_t line, Tally* cut) const;
  void pack();
  // Where the records of a window end.
  int64_t end_of(size_t window) const;
  // What is seen in the rows of a batch.
  struct Seen {
    std::vector<RecordImage> images;
    std::vector<RecordVideo> videos;
  };
  // One row of a batch; its images and videos are added to `seen`.
  void write(size_t window, int64_t* inputs, int64_t* labels, int64_t* positions, Seen* seen) const;

  MappedFile file_;
  const int64_t sequence_length_;
  const RecordRules rules_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const std::optional<RecordVision> vision_;
  std::vector<Window> windows_;
  int64_t end_ = 0;  // of the last window's records
  int64_t record_count_ = 0;
  int64_t image_count_ = 0;
  int64_t video_count_ = 0;
  LeftOut left_out_;
};

}  // namespace fsdp2::train
