#include "cli/token_text.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>

#include "cli/arguments.h"

namespace fsdp2::cli {

namespace {

constexpr int64_t kBytes = 256;

std::vector<int64_t> numbers_in(const std::string& text, const std::string& what) {
  std::istringstream words(text);
  std::vector<int64_t> numbers;
  for (std::string word; words >> word;) {
    int64_t number = 0;
    const char* const end = word.data() + word.size();
    const auto read = std::from_chars(word.data(), end, number);
    if (read.ec != std::errc() || read.ptr != end) {
      throw Failure(what + " '" + text + "': expected token numbers, separated by spaces, found " +
                    word);
    }
    numbers.push_back(number);
  }
  return numbers;
}

// The text goes on: as a record's prompt it has no end, which some tokenizers put behind every
// text.
std::vector<int64_t> without_end(const Tokenizer& tokenizer, const std::string& text,
                                 const std::string& what) {
  if (text.find('\0') != std::string::npos) {
    throw Failure(what + ": has a zero byte, which is no text");
  }
  if (const std::optional<std::string> fault = fault_of_utf8(text)) {
    throw Failure(what + ": " + *fault);
  }
  const std::string record = nlohmann::json({{"prompt", text}}).dump();
  Tensor prompt;
  const fsdp2_status status =
      fsdp2_tokenizer_encode_prompt(tokenizer.get(), record.c_str(), nullptr, nullptr, prompt.out(),
                                    nullptr, nullptr, nullptr, nullptr, nullptr);
  if (status != FSDP2_OK) {
    throw Failure(what + ": " + fsdp2_error_message(), status);
  }
  const auto info = info_of<fsdp2_tensor_info>(fsdp2_tensor_get_info, prompt.get());
  std::vector<int64_t> tokens(static_cast<size_t>(info.n_bytes) / sizeof(int64_t));
  check(fsdp2_tensor_read(prompt.get(), tokens.data(), static_cast<size_t>(info.n_bytes)));
  return tokens;
}

}  // namespace

TokenText TokenText::by_tokenizer(const std::string& path) {
  TokenText text(path.empty() ? Form::kBytes : Form::kTokenizer);
  if (!path.empty()) {
    check(fsdp2_tokenizer_open(path.c_str(), text.tokenizer_.out()));
  }
  return text;
}

std::vector<int64_t> TokenText::read(const std::string& text, const std::string& what) const {
  if (form_ == Form::kNumbers) {
    return numbers_in(text, what);
  }
  if (form_ == Form::kTokenizer) {
    return without_end(tokenizer_, text, what);
  }
  std::vector<int64_t> tokens;
  for (const char c : text) {
    tokens.push_back(static_cast<unsigned char>(c));
  }
  return tokens;
}

std::vector<int64_t> TokenText::tokens_in(const std::string& text, int64_t vocab_size,
                                          const std::string& what) const {
  const std::vector<int64_t> tokens = read(text, what);
  for (const int64_t token : tokens) {
    if (token < 0 || token >= vocab_size) {
      throw Failure(what + ": token " + std::to_string(token) + " is outside the vocabulary of " +
                    std::to_string(vocab_size));
    }
  }
  return tokens;
}

// A model may have more tokens than its tokenizer.
std::string TokenText::decoded(const std::vector<int64_t>& tokens) const {
  const auto info = info_of<fsdp2_tokenizer_info>(fsdp2_tokenizer_get_info, tokenizer_.get());
  std::vector<int64_t> known;
  for (const int64_t token : tokens) {
    if (token < info.vocab_size) {
      known.push_back(token);
    }
  }
  constexpr int32_t kKeepSpecial = 0;
  return cli::text_of(fsdp2_tokenizer_decode, tokenizer_.get(), known.data(), known.size(),
                      kKeepSpecial);
}

std::string TokenText::text_of(const std::vector<int64_t>& tokens) const {
  if (form_ == Form::kTokenizer) {
    return decoded(tokens);
  }
  std::string text;
  for (const int64_t token : tokens) {
    if (form_ == Form::kBytes) {
      text += static_cast<char>(token < kBytes ? token : '?');
    } else {
      text += (text.empty() ? "" : " ") + std::to_string(token);
    }
  }
  return text;
}

}  // namespace fsdp2::cli
