#include "cli/train/sample.h"

#include "cli/token_text.h"
#include "core/config/checks/data_files.h"

namespace fsdp2::cli {

namespace {

const std::string kDefaultPrompt = "The ";

// Tokens of a file are numbers to people, unless a tokenizer is named.
TokenText form_of(const TrainOptions& options) {
  const bool is_numbers = !options.tokens.empty() && options.tokenizer == "auto";
  return is_numbers ? TokenText::numbers() : TokenText::by_tokenizer(tokenizer_path(options));
}

}  // namespace

std::vector<int64_t> prompt_tokens(const TrainOptions& options, int64_t vocab_size) {
  const TokenText form = form_of(options);
  const std::string usual = form.is_numbers() ? "0" : kDefaultPrompt;
  return form.tokens_in(options.prompt.empty() ? usual : options.prompt, vocab_size, "--prompt");
}

Sample make_sample(const TrainOptions& options, const Module& module,
                   const std::vector<int64_t>& prompt) {
  fsdp2_generate_options generate = FSDP2_GENERATE_OPTIONS_INIT;
  generate.max_new_tokens = static_cast<int32_t>(options.sample);
  generate.temperature = options.temperature;
  generate.seed = options.seed;
  std::vector<int64_t> tokens(static_cast<size_t>(options.sample));
  size_t count = 0;
  check(fsdp2_module_train(module.get(), 0));  // nothing is trained any more, or dropped
  check(fsdp2_module_generate(module.get(), prompt.data(), prompt.size(), &generate, tokens.data(),
                              tokens.size(), &count));
  tokens.resize(count);
  std::vector<int64_t> whole = prompt;
  whole.insert(whole.end(), tokens.begin(), tokens.end());
  const TokenText form = form_of(options);
  return {form.text_of(prompt), form.text_of(tokens), form.text_of(whole)};
}

}  // namespace fsdp2::cli
