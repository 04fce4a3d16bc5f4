// Tokens as people write them and read them: as text, with the tokens of a tokenizer or of bytes,
// or as numbers with spaces between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/library.h"

namespace fsdp2::cli {

class TokenText {
 public:
  static TokenText numbers() { return TokenText(Form::kNumbers); }
  // By a tokenizer.json, or a directory with one; "": each byte is a token.
  static TokenText by_tokenizer(const std::string& path);

  // Throws Failure, which begins with `what`, for text that has no such form and for tokens that
  // are not in the vocabulary.
  std::vector<int64_t> tokens_in(const std::string& text, int64_t vocab_size,
                                 const std::string& what) const;
  // Bytes as they are, '?' for tokens above them; "5 17 3"; or text, without special tokens.
  std::string text_of(const std::vector<int64_t>& tokens) const;

  bool is_numbers() const { return form_ == Form::kNumbers; }

 private:
  enum class Form { kBytes, kNumbers, kTokenizer };
  explicit TokenText(Form form) : form_(form) {}
  std::vector<int64_t> read(const std::string& text, const std::string& what) const;
  std::string decoded(const std::vector<int64_t>& tokens) const;

  Form form_;
  Tokenizer tokenizer_;
};

// The tokens of a text; `encode` is fsdp2_tokenizer_encode, or _encode_record, with what comes
// before its outputs.
template <typename Encode>
std::vector<int64_t> encoded(size_t text_bytes, const Encode& encode) {
  std::vector<int64_t> tokens(text_bytes + 16);  // seldom are there more
  size_t needed = 0;
  fsdp2_status status = encode(tokens.data(), tokens.size(), &needed);
  if (status == FSDP2_E_BUFFER_TOO_SMALL) {
    tokens.resize(needed);
    status = encode(tokens.data(), tokens.size(), &needed);
  }
  check(status);
  tokens.resize(needed);
  return tokens;
}

}  // namespace fsdp2::cli
