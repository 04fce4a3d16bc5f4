#include "core/train/data/tokenized_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/train/data/flat_windows.h"
#include "core/train/data/vocabulary.h"

namespace fsdp2::train {

namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

// The beginning of `rest`, up to the end of the line in which a piece is long enough.
std::string_view first_piece(std::string_view rest) {
  if (rest.size() <= kPieceBytes) {
    return rest;
  }
  const size_t end = rest.find('\n', kPieceBytes - 1);
  return rest.substr(0, end == std::string_view::npos ? rest.size() : end + 1);
}

}  // namespace

TokenizedText::TokenizedText(std::string path, int64_t vocab_size, const text::Tokenizer& tokenizer)
    : path_(std::move(path)) {
  check_vocabulary(path_, &tokenizer, vocab_size);
  const MappedFile file(path_);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              static_cast<size_t>(file.size()));
  for (size_t begin = 0; begin < text.size();) {
    file.check_size();
    const std::string_view piece = first_piece(text.substr(begin));
    try {
      const text::Encoding encoding = tokenizer.encode(piece, text::Surround::kNo);
      tokens_.insert(tokens_.end(), encoding.ids.begin(), encoding.ids.end());
    } catch (const Error& error) {
      fail(error.code(), "{}: its text from byte {} on: {}", path_, begin, error.message());
    }
    begin += piece.size();
  }
}

int64_t TokenizedText::window_count(int64_t sequence_length) const {
  return flat_window_count(path_, static_cast<int64_t>(tokens_.size()), sequence_length);
}

TokenBatch TokenizedText::windows(const std::vector<int64_t>& windows,
                                  int64_t sequence_length) const {
  return flat_windows(path_, static_cast<int64_t>(tokens_.size()), windows, sequence_length,
                      [this](int64_t first, int64_t count, int64_t* out) {
                        std::copy_n(tokens_.begin() + first, count, out);
                      });
}

std::string TokenizedText::extent() const {
  return fmt::format("tokens in the file={}\n", tokens_.size());
}

}  // namespace fsdp2::train
