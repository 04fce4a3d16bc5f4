#include "cli/train/sample.h"

#include <cstdint>
#include <sstream>
#include <vector>

namespace fsdp2::cli {

namespace {

constexpr char kDefaultPrompt[] = "The ";

std::vector<int64_t> numbers_in(const std::string& prompt) {
  std::istringstream text(prompt);
  std::vector<int64_t> numbers;
  for (int64_t number = 0; text >> number;) {
    numbers.push_back(number);
  }
  if (!text.eof()) {
    throw Failure("--prompt '" + prompt + "': expected token numbers, as --tokens has no text");
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

Sample make_sample(const TrainOptions& options, const Module& module) {
  const bool is_text = !options.text.empty();
  std::vector<int64_t> prompt;
  if (is_text) {
    const std::string text = options.prompt.empty() ? kDefaultPrompt : options.prompt;
    for (const char c : text) {
      prompt.push_back(static_cast<unsigned char>(c));
    }
  } else {
    prompt = numbers_in(options.prompt);
  }
  fsdp2_generate_options generate = FSDP2_GENERATE_OPTIONS_INIT;
  generate.max_new_tokens = static_cast<int32_t>(options.sample);
  generate.temperature = options.temperature;
  generate.seed = options.seed;
  std::vector<int64_t> tokens(static_cast<size_t>(options.sample));
  size_t count = 0;
  check(fsdp2_module_generate(module.get(), prompt.data(), prompt.size(), &generate, tokens.data(),
                              &count));
  tokens.resize(count);
  return is_text ? Sample{as_text(prompt), as_text(tokens)}
                 : Sample{as_numbers(prompt), as_numbers(tokens)};
}

}  // namespace fsdp2::cli
