// What `fsdp2 tokenize` is asked to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::cli {

struct TokenizeOptions {
  std::string tokenizer;
  std::string text;
  std::string records;
  std::string out;
  int64_t vocab_size = 0;  // 0: that of the config.json beside the tokenizer, else the tokenizer's
  bool skip_bad_records = false;
  bool quiet = false;

  const std::string& input() const { return text.empty() ? records : text; }
};

// False: help has been printed. Throws UsageError.
bool parse_tokenize_options(const std::vector<std::string>& arguments, TokenizeOptions* out);

}  // namespace fsdp2::cli
