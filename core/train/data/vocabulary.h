// Whether a model has the tokens of its data.
#pragma once

#include <cstdint>
#include <string>

#include "core/text/tokenizer.h"

namespace fsdp2::train {

// tokenizer: null for bytes. kInvalidArgument, which begins with the path of the data, for a
// vocabulary that has not all bytes, or not all tokens of the tokenizer.
void check_vocabulary(const std::string& path, const text::Tokenizer* tokenizer,
                      int64_t vocab_size);

}  // namespace fsdp2::train
