// What the files beside a tokenizer.json say of its tokens, as transformers reads them:
// tokenizer_config.json, special_tokens_map.json, chat_template.jinja and config.json. None of them
// must be there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace fsdp2::text {

struct SpecialTokens {
  std::map<std::string, std::string> by_role;  // "eos_token" -> "</s>"
  std::optional<int64_t> end_id;               // config.json's, where by_role has no eos_token
  std::string chat_template;                   // Jinja; "": there is none
};

// `directory` has a slash at its end, or is "". Errors: kIo, kCorruptData for a file that is not
// what it is to be, with its path.
SpecialTokens read_special_tokens(const std::string& directory);

}  // namespace fsdp2::text
