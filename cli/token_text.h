// Tokens as people write them and read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::cli {

enum class TokenText {
  kBytes,    // text, of which each byte is a token
  kNumbers,  // numbers with spaces between them
};

// Throws Failure, which begins with `what`, for text that has no such form and for tokens that are
// not in the vocabulary.
std::vector<int64_t> tokens_in(const std::string& text, TokenText form, int64_t vocab_size,
                               const std::string& what);

// Bytes as they are, '?' for tokens above them; or "5 17 3".
std::string text_of_tokens(const std::vector<int64_t>& tokens, TokenText form);

}  // namespace fsdp2::cli
