#include "core/train/data/token_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/train/data/flat_windows.h"

namespace fsdp2::train {

namespace {

// Tokens are copied from the file as they are.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are little-endian");

constexpr int64_t kLargestUint16Vocabulary = int64_t{1} << 16;
constexpr int64_t kLargestVocabulary = int64_t{1} << 32;

int64_t bytes_per_token(TokenFormat format, int64_t vocab_size) {
  if (format == TokenFormat::kBytes) {
    return 1;
  }
  return vocab_size <= kLargestUint16Vocabulary ? 2 : 4;
}

// Widens `count` tokens; returns the largest, 0 if there are none.
template <typename Token>
int64_t widen(const uint8_t* source, int64_t count, int64_t* out) {
  int64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    Token token;
    std::memcpy(&token, source + i * static_cast<int64_t>(sizeof(Token)), sizeof(Token));
    out[i] = token;
    largest = std::max<int64_t>(largest, token);
  }
  return largest;
}

}  // namespace

TokenFile::TokenFile(std::string path, int64_t vocab_size, TokenFormat format)
    : file_(std::move(path)),
      vocab_size_(vocab_size),
      token_bytes_(bytes_per_token(format, vocab_size)),
      token_count_(file_.size() / token_bytes_) {
  FSDP2_CHECK(vocab_size >= 1 && vocab_size <= kLargestVocabulary, Code::kInvalidArgument,
              "{}: vocab_size {} is not in [1, {}]", this->path(), vocab_size, kLargestVocabulary);
  FSDP2_CHECK(file_.size() % token_bytes_ == 0, Code::kCorruptData,
              "{}: has {} bytes, not a multiple of {} (a vocabulary of {} has uint{} tokens): "
              "incomplete, or made for another vocabulary",
              this->path(), file_.size(), token_bytes_, vocab_size, token_bytes_ * 8);
}

int64_t TokenFile::window_count(int64_t sequence_length) const {
  return flat_window_count(path(), token_count_, sequence_length);
}

std::string TokenFile::extent() const {
  return fmt::format("tokens in the file={}\n", token_count_);
}

void TokenFile::copy_tokens(int64_t first, int64_t count, int64_t* out) const {
  const uint8_t* source = file_.bytes().data() + first * token_bytes_;
  int64_t largest = 0;
  switch (token_bytes_) {
    case 1:
      largest = widen<uint8_t>(source, count, out);
      break;
    case 2:
      largest = widen<uint16_t>(source, count, out);
      break;
    default:
      largest = widen<uint32_t>(source, count, out);
  }
  if (largest >= vocab_size_) {
    const int64_t* bad =
        std::find_if(out, out + count, [this](int64_t token) { return token >= vocab_size_; });
    fail(Code::kCorruptData,
         "{}: token {} at position {} is not in the vocabulary of {}: made for another vocabulary?",
         path(), *bad, first + (bad - out), vocab_size_);
  }
}

TokenBatch TokenFile::windows(const std::vector<int64_t>& windows, int64_t sequence_length) const {
  file_.check_size();
  return flat_windows(
      path(), token_count_, windows, sequence_length,
      [this](int64_t first, int64_t count, int64_t* out) { copy_tokens(first, count, out); });
}

}  // namespace fsdp2::train
