// A data set as one memory-mapped file of tokens, read in windows.
//
// Two formats:
//   kTokens  token ids, flat and little-endian: uint16 if vocab_size <= 65536, else uint32
//   kBytes   any file: each byte is a token, as byte-level models have it (vocabulary 256)
//
// With T tokens and sequence length S there are N = (T - 1) / S windows, rounded down; what remains
// is not used. Window w is the S + 1 tokens from w * S on: inputs are its first S tokens, labels
// its last S, so that neighbouring windows share one token.
//
// Immutable: any thread may read from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/train/data/window_source.h"

namespace fsdp2::train {

enum class TokenFormat { kTokens, kBytes };

class TokenFile : public WindowSource {
 public:
  // vocab_size is the model's. Errors: kNotFound, kIo; kCorruptData for a size that is no whole
  // number of tokens; kInvalidArgument for a vocab_size outside [1, 2^32].
  TokenFile(std::string path, int64_t vocab_size, TokenFormat format = TokenFormat::kTokens);

  const std::string& path() const override { return file_.path(); }
  int64_t vocab_size() const { return vocab_size_; }
  int64_t token_count() const { return token_count_; }

  // N above. kInvalidArgument if there is not even one window, with the numbers.
  int64_t window_count(int64_t sequence_length) const override;

  std::string extent() const override;
  // kCorruptData for a token that is not in the vocabulary, with its position.
  TokenBatch windows(const std::vector<int64_t>& windows, int64_t sequence_length) const override;

 private:
  void copy_tokens(int64_t first, int64_t count, int64_t* out) const;

  MappedFile file_;
  int64_t vocab_size_;
  int64_t token_bytes_;
  int64_t token_count_;
};

}  // namespace fsdp2::train
