// The images of a record: where they and its videos are among its tokens, and their pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/train/data/record_tokens.h"
#include "core/train/data/window_source.h"

namespace fsdp2::train {

// The images of these files; their tokens have no place yet. Errors: kCorruptData for a file that
// is missing or bad; kIo; kInvalidArgument where nothing says how images become pixels.
std::vector<RecordImage> find_images(const std::vector<std::string>& files,
                                     const RecordVision& vision);

// Whether the vocabulary has the tokens of images and videos, which are the model's whatever makes
// those of texts. path: of the records, for messages. Error: kInvalidArgument if not.
void check_vision_vocabulary(const std::string& path, const VisionRules& rules, int64_t vocab_size);

// Gives each image and each video, or frame of one, its tokens in place of its one. left_out: how
// many of the last images are those of an answer that is not among the tokens. Error: kCorruptData
// for another number of these than of their tokens.
void place_seen(std::vector<RecordImage> images, size_t left_out, std::vector<RecordVideo> videos,
                const VisionRules& rules, RecordTokens* tokens);

// Leaves out what is behind the first `most` tokens, and images and videos that would not be whole
// among the inputs, with all that is behind them.
void cut_record(size_t most, RecordTokens* tokens);

// A file's name that counts from a directory: "" or with a slash at its end.
std::string path_in(const std::string& directory, const std::string& file);

// Runs find(), which looks at files that a record names: what is wrong with them is wrong with the
// record, but for a missing file of the processor, a disk that fails and a lack of memory.
template <typename Find>
void as_part_of_record(const Find& find) {
  try {
    find();
  } catch (const Error& error) {
    const bool is_of_record = error.code() == Code::kNotFound ||
                              error.code() == Code::kUnsupported ||
                              error.code() == Code::kCorruptData;
    throw Error(is_of_record ? Code::kCorruptData : error.code(), error.message(),
                error.native_code());
  }
}

// Reads the pixels of images into a batch, in this order. Nothing where there are none.
void read_pixels(const std::vector<RecordImage>& images, const VisionRules& rules,
                 TokenBatch* batch);

}  // namespace fsdp2::train
