// The tokenizer of a model: text to tokens and back, by Hugging Face's tokenizers library, which is
// in a plug-in (tokenizers_library.h); or bytes, of which each is a token, and 0 ends a text.
//
// Immutable: any thread may use it, several at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp2::text {

struct SpecialTokens;

struct Encoding {
  std::vector<uint32_t> ids;
  std::vector<uint64_t> begins;  // of each token: the byte of the text that it begins at
  size_t behind = 0;             // of them, at the end: what is put behind a text that has tokens
};

// Whether a text gets the tokens that the tokenizer puts around one, such as a beginning.
enum class Surround { kNo, kYes };

class Tokenizer {
 public:
  // Bytes.
  Tokenizer();
  // `path`: a tokenizer.json, or a directory with one; the files beside it say which token is the
  // end of a text, and have the chat template. Errors: kNotFound, kIo; kUnsupported without the
  // plug-in; kCorruptData for a file that is not what it is to be.
  explicit Tokenizer(const std::string& path);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  bool is_bytes() const { return handle_ == nullptr; }
  // "" of bytes.
  const std::string& path() const { return path_; }
  // One more than the largest token.
  int64_t vocab_size() const { return vocab_size_; }
  // The token that ends a text, if the files name one.
  std::optional<int64_t> end_token() const { return end_token_; }
  std::optional<int64_t> find_token(std::string_view token) const;

  // kCorruptData for what is not UTF-8, or what the tokenizer has no tokens for.
  Encoding encode(std::string_view text, Surround surround) const;
  // Bytes that are no UTF-8 become U+FFFD. kInvalidArgument for a token outside the vocabulary.
  std::string decode(const std::vector<int64_t>& tokens, bool skip_special) const;

  bool has_chat_template() const { return chat_ != nullptr; }
  // The text of a chat: a JSON list of objects with "role" and "content". `opens_answer`: with what
  // the answer of the assistant follows on. kCorruptData for a chat that the template refuses.
  // REQUIRES: has_chat_template().
  std::string chat_text(const std::string& messages, bool opens_answer) const;

 private:
  struct Handle;
  struct Chat;
  // Tokens around a text that the files beside tokenizer.json say, where they do.
  struct Around {
    std::optional<int64_t> begin;
    std::optional<int64_t> end;
    std::string missing;  // what the vocabulary lacks of them
  };

  // Takes them, or leaves them out of `tokens`, too.
  void take_surrounding(SpecialTokens* tokens);
  Around find_around(const std::string& begin, const std::string& end) const;

  std::string path_;
  std::unique_ptr<Handle> handle_;
  std::unique_ptr<Chat> chat_;
  int64_t vocab_size_ = 0;
  std::optional<int64_t> end_token_;
  std::optional<Around> around_;  // none: those of tokenizer.json
};

}  // namespace fsdp2::text
