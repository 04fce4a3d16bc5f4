#pragma once

#include <string>

namespace fsdp2::text {

// A tokenizer.json whose bytes' cut, if that is its whole pre-tokenizer, puts a space before each
// text, or does not: transformers sets that anew as it reads the file. Errors:
// kCorruptData for a pre-tokenizer that is nested too deeply.
std::string with_prefix_space(std::string json, bool adds);

}  // namespace fsdp2::text
