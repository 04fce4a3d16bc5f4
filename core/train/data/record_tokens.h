// The tokens of a record.
//
// Without a tokenizer each byte is a token; a text, or a prompt with its response, ends with a zero
// byte, and a chat is ChatML, which has <|im_end|> for that. With one the text is encoded as a
// whole, with the tokens that the tokenizer puts around it and the one that ends a text; a chat is
// what the model's chat template makes of it, or ChatML if it has none and knows ChatML's tokens.
//
// An end is part of the answer, so that a model learns where to end. A token that begins in an
// answer is of the answer.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace fsdp2::train {

// Token i is to be learned from those before it if is_answer[i] is.
struct RecordTokens {
  std::vector<uint32_t> ids;
  std::vector<bool> is_answer;

  void add(uint32_t id, bool answer) {
    ids.push_back(id);
    is_answer.push_back(answer);
  }
};

// tokenizer: null for bytes, too. Errors: kCorruptData for the line, without a place;
// kInvalidArgument for a tokenizer that names no end of a text, or has no way to write a chat.
RecordTokens read_record_tokens(std::string_view line, const text::Tokenizer* tokenizer);

}  // namespace fsdp2::train
