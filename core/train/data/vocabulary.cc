#include "core/train/data/vocabulary.h"

#include "core/base/error.h"

namespace fsdp2::train {

void check_vocabulary(const std::string& path, const text::Tokenizer* tokenizer,
                      int64_t vocab_size) {
  constexpr int64_t kBytes = 256;
  FSDP2_CHECK(tokenizer != nullptr || vocab_size >= kBytes, Code::kInvalidArgument,
              "{}: the tokens of its records are bytes, and the vocabulary of {} has not all {}",
              path, vocab_size, kBytes);
  FSDP2_CHECK(tokenizer == nullptr || tokenizer->vocab_size() <= vocab_size, Code::kInvalidArgument,
              "{}: {} has {} tokens, more than the vocabulary of {}: expected the model's own "
              "tokenizer",
              path, tokenizer->path(), tokenizer->vocab_size(), vocab_size);
}

}  // namespace fsdp2::train
