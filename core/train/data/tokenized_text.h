// A text file as the tokens of a tokenizer, in windows (flat_windows.h).
//
// The text is encoded when the file is opened, in pieces that end with a line and have about a
// mebibyte, so that no copy of a large text is made; a longer line is a piece of its own. Pieces
// get no tokens around them. What is kept in memory is 4 bytes a token.
//
// Immutable: any thread may read from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/text/tokenizer.h"
#include "core/train/data/window_source.h"

namespace fsdp2::train {

class TokenizedText : public WindowSource {
 public:
  // Errors: kNotFound, kIo; kCorruptData for what is not UTF-8, with its place; kInvalidArgument
  // for a vocabulary that has not all tokens of the tokenizer.
  TokenizedText(std::string path, int64_t vocab_size, const text::Tokenizer& tokenizer);

  const std::string& path() const override { return path_; }
  int64_t window_count(int64_t sequence_length) const override;
  TokenBatch windows(const std::vector<int64_t>& windows, int64_t sequence_length) const override;
  std::string extent() const override;

 private:
  const std::string path_;
  std::vector<uint32_t> tokens_;
};

}  // namespace fsdp2::train
