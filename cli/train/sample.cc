#include "cli/train/sample.h"

#include <sstream>

namespace fsdp2::cli {

namespace {

const std::string kDefaultPrompt = "The ";

std::vector<int64_t> numbers_in(const std::string& prompt) {
  std::istringstream text(prompt);
  std::vector<int64_t> numbers;
  for (int64_t number = 0; text >> number;) {
    numbers.push_back(number);
  }
  if (!text.eof()) {
    throw Failure("--prompt '" + prompt +
                  "': expected token numbers, separated by spaces, because --tokens is not text");
  }
  return numbers.empty() ? std::vector<int64_t>{0} : numbers;
}

std::string as_text(const std::vector<int64_t>& tokens) {
  std::string text;
  for (const int64_t token : tokens) {
    text += static_cast<char>(token < 256 ? token : '?');
  }
  return text;
}

std::string as_numbers(const std::vector<int64_t>& tokens) {
  std::string text;
  for (const int64_t token : tokens) {
    text += std::to_string(token) + " ";
  }
  return text;
}

}  // namespace

std::vector<int64_t> prompt_tokens(const TrainOptions& options, int64_t vocab_size) {
  std::vector<int64_t> prompt;
  if (options.text.empty()) {
    prompt = numbers_in(options.prompt);
  } else {
    for (const char c : options.prompt.empty() ? kDefaultPrompt : options.prompt) {
      prompt.push_back(static_cast<unsigned char>(c));
    }
  }
  for (const int64_t token : prompt) {
    if (token < 0 || token >= vocab_size) {
      throw Failure("--prompt: token " + std::to_string(token) + " is outside the vocabulary of " +
                    std::to_string(vocab_size));
    }
  }
  return prompt;
}

Sample make_sample(const TrainOptions& options, const Module& module,
                   const std::vector<int64_t>& prompt) {
  const bool is_text = !options.text.empty();
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
  return is_text ? Sample{as_text(prompt), as_text(tokens)}
                 : Sample{as_numbers(prompt), as_numbers(tokens)};
}

}  // namespace fsdp2::cli
