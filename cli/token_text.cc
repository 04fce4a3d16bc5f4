#include "cli/token_text.h"

#include <sstream>

#include "cli/library.h"

namespace fsdp2::cli {

namespace {

constexpr int64_t kBytes = 256;

std::vector<int64_t> numbers_in(const std::string& text, const std::string& what) {
  std::istringstream stream(text);
  std::vector<int64_t> numbers;
  for (int64_t number = 0; stream >> number;) {
    numbers.push_back(number);
  }
  if (!stream.eof()) {
    throw Failure(what + " '" + text + "': expected token numbers, separated by spaces");
  }
  return numbers;
}

}  // namespace

std::vector<int64_t> tokens_in(const std::string& text, TokenText form, int64_t vocab_size,
                               const std::string& what) {
  std::vector<int64_t> tokens;
  if (form == TokenText::kNumbers) {
    tokens = numbers_in(text, what);
  } else {
    for (const char c : text) {
      tokens.push_back(static_cast<unsigned char>(c));
    }
  }
  for (const int64_t token : tokens) {
    if (token < 0 || token >= vocab_size) {
      throw Failure(what + ": token " + std::to_string(token) + " is outside the vocabulary of " +
                    std::to_string(vocab_size));
    }
  }
  return tokens;
}

std::string text_of_tokens(const std::vector<int64_t>& tokens, TokenText form) {
  std::string text;
  for (const int64_t token : tokens) {
    if (form == TokenText::kBytes) {
      text += static_cast<char>(token < kBytes ? token : '?');
    } else {
      text += (text.empty() ? "" : " ") + std::to_string(token);
    }
  }
  return text;
}

}  // namespace fsdp2::cli
