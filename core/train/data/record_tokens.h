// The tokens of a record.
//
// Without a tokenizer each byte is a token; a text, or a prompt with its response, ends with a zero
// byte, and a chat is ChatML, which has <|im_end|> for that. With one the text is encoded as a
// whole, with the tokens that the tokenizer puts around it and the one that ends a text; a chat is
// what the model's chat template makes of it, or ChatML if it has none and knows ChatML's tokens.
//
// An end is part of the answer, so that a model learns where to end. A token that begins in an
// answer is of the answer.
//
// An image is one token in the text, which becomes as many as the image has for the model. So is a
// video, or each frame of its grid for models that have frames apart: these are written as
// "<0.3 seconds>" and a start, the token and an end, as transformers' Qwen3VLProcessor writes them.
// None of it is to be learned.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"
#include "core/train/data/images/video_file.h"
#include "core/train/data/images/vision_rules.h"
#include "core/train/data/window_source.h"

namespace fsdp2::train {

// The images and videos that records may have.
struct RecordVision {
  VisionRules rules;
  std::string directory;  // that files are named from, with a slash; "": the process's own
};

struct RecordImage {
  std::string file;
  size_t number;  // in its file
  ImageGrid grid;
  size_t begin;  // of its tokens
  size_t tokens;

  size_t end() const { return begin + tokens; }
};

struct RecordVideo {
  std::shared_ptr<const VideoSource> source;
  size_t number;  // in its source
  Video video;
  size_t begin = 0;  // of its tokens, with what is between them
  size_t end = 0;
};

// Token i is to be learned from those before it if is_answer[i] is.
struct RecordTokens {
  std::vector<uint32_t> ids;
  std::vector<bool> is_answer;
  std::vector<RecordImage> images = {};  // in their order
  std::vector<RecordVideo> videos = {};

  void add(uint32_t id, bool answer) {
    ids.push_back(id);
    is_answer.push_back(answer);
  }
};

// tokenizer: null for bytes, too. vision: null for a model that sees no images. Errors:
// kCorruptData for the line or a file with images or videos, without a place; kInvalidArgument for
// a tokenizer that names no end of a text, has no way to write a chat, or is not the model's; kIo
// for a file that is there and cannot be read.
RecordTokens read_record_tokens(std::string_view line, const text::Tokenizer* tokenizer,
                                const RecordVision* vision = nullptr);

// The tokens of a record's prompt (read_prompt), for a model to go on with: without an end, and a
// chat as the template writes it where it opens an answer. Errors: the same.
RecordTokens read_prompt_tokens(std::string_view line, const text::Tokenizer* tokenizer,
                                const RecordVision* vision = nullptr);

// A row of all these tokens, without labels and positions. rules: what images and videos are read
// by; null: they are not.
TokenBatch as_row(const RecordTokens& tokens, const VisionRules* rules);

}  // namespace fsdp2::train
