// The images of a record: where they are among its tokens, and their pixels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/text/tokenizer.h"
#include "core/train/data/record_tokens.h"
#include "core/train/data/window_source.h"

namespace fsdp2::train {

// Whether the text of an image becomes the model's tokens. Error: kInvalidArgument if not.
// tokenizer: null for bytes.
void check_image_tokens(const text::Tokenizer* tokenizer, const VisionRules& rules);

// Whether the vocabulary has the tokens of images, which are the model's whatever makes those of
// texts. path: of the records, for messages. Error: kInvalidArgument if not.
void check_image_vocabulary(const std::string& path, const VisionRules& rules, int64_t vocab_size);

// Gives each image of these files its tokens in place of its one. Errors: kCorruptData for another
// number of images than of their tokens, and for a file that is missing or bad; kIo.
void place_images(const std::vector<std::string>& files, const RecordVision& vision,
                  RecordTokens* tokens);

// Leaves out what is behind the first `most` tokens, and images that would not be whole among the
// inputs, with all that is behind them.
void cut_record(size_t most, RecordTokens* tokens);

// Reads the pixels of images into a batch, in this order. Nothing where there are none.
void read_pixels(const std::vector<RecordImage>& images, const VisionRules& rules,
                 TokenBatch* batch);

}  // namespace fsdp2::train
