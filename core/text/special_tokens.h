// What the files beside a tokenizer.json say of its tokens, as transformers reads them:
// tokenizer_config.json, special_tokens_map.json, chat_template.jinja and config.json. None of them
// must be there.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdp2::text {

// What transformers' class of the tokenizer puts around a text, whatever tokenizer.json says.
struct Surrounding {
  std::string begin;  // "": nothing
  std::string end;
  // Not where the class is known by the model alone: transformers then adds tokens that the
  // vocabulary lacks, for which the model has no row.
  bool is_named = false;
  std::vector<std::string> usual_roles;  // those of by_role that the class alone has a token for
};

struct SpecialTokens {
  std::map<std::string, std::string> by_role;  // "eos_token" -> "</s>"
  std::optional<int64_t> end_id;  // config.json's, where by_role has no eos_token that is one
  std::string chat_template;      // Jinja; "": there is none
  std::optional<Surrounding> surrounding;  // none: tokenizer.json's
  std::optional<bool> prefix_space;        // as with_prefix_space() has it; none: tokenizer.json's
};

// `directory` has a slash at its end, or is "". Errors: kIo, kCorruptData for a file that is not
// what it is to be, with its path.
SpecialTokens read_special_tokens(const std::string& directory);

}  // namespace fsdp2::text
