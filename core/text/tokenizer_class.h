// Which class transformers makes of a tokenizer, where that changes what tokenizer.json says.
#pragma once

#include <nlohmann/json.hpp>

namespace fsdp2::text {

// A class that makes tokenizer.json's post-processor anew, by "add_bos_token" and "add_eos_token".
struct TokenizerClass {
  const char* name;  // without "Fast"
  bool adds_begin;   // where the key is left out
  const char* begin;
  const char* end;
  bool keeps_prefix_space = false;  // and does not decide whether a text begins with a space
};

struct FoundClass {
  const TokenizerClass* one = nullptr;  // null: a class that leaves the post-processor alone
  bool is_named = false;                // by tokenizer_config.json
};

// By "tokenizer_class" of tokenizer_config.json, or else of config.json, or else by the latter's
// "model_type".
FoundClass find_tokenizer_class(const nlohmann::json& tokenizer_config,
                                const nlohmann::json& model_config);

}  // namespace fsdp2::text
