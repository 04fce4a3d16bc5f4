#include "cli/infer/stop_tokens.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "cli/token_text.h"

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uintmax_t kLargestFile = 1 << 20;

constexpr char kChat[] = R"({"messages": [{"role": "user", "content": "a"},
                                          {"role": "assistant", "content": "b"}]})";

bool is_token(const Json& value) { return value.is_number_integer() && value.get<int64_t>() >= 0; }

std::vector<int64_t> tokens_in(const Json& value, const std::string& path) {
  std::vector<int64_t> tokens;
  for (const Json& token : value.is_array() ? value : Json::array({value})) {
    if (!is_token(token)) {
      throw Failure(path +
                    ": \"eos_token_id\": expected the number of a token, or a list of such, " +
                    "found " + value.dump(-1, ' ', true, Json::error_handler_t::replace));
    }
    tokens.push_back(token.get<int64_t>());
  }
  return tokens;
}

// The record of a chat, where the tokenizer can write one.
std::optional<std::vector<int64_t>> tokens_of_chat(const Tokenizer& tokenizer) {
  try {
    return encoded(sizeof(kChat), [&](int64_t* tokens, size_t cap, size_t* needed) {
      return fsdp2_tokenizer_encode_record(tokenizer.get(), kChat, tokens, cap, needed);
    });
  } catch (const Failure& failure) {
    if (failure.status() != FSDP2_E_INVALID_ARGUMENT && failure.status() != FSDP2_E_CORRUPT_DATA) {
      throw;
    }
    return std::nullopt;
  }
}

size_t length_of_prompt(const Tokenizer& tokenizer) {
  Tensor prompt;
  check(fsdp2_tokenizer_encode_prompt(tokenizer.get(), kChat, nullptr, nullptr, prompt.out(),
                                      nullptr, nullptr, nullptr, nullptr, nullptr));
  const auto info = info_of<fsdp2_tensor_info>(fsdp2_tensor_get_info, prompt.get());
  return static_cast<size_t>(info.shape[1]);
}

// Whether people do not get to see it.
bool is_special(const Tokenizer& tokenizer, int64_t token) {
  const auto text = [&](int32_t keep_special) {
    return text_of(fsdp2_tokenizer_decode, tokenizer.get(), &token, size_t{1}, keep_special);
  };
  return text(0).empty() && !text(1).empty();
}

}  // namespace

std::vector<int64_t> stop_tokens_of_model(const config::TrainOptions& run) {
  const fs::path file = fs::path(run.model) / "generation_config.json";
  std::error_code none;
  if (run.model.empty() || !fs::is_regular_file(file, none)) {
    return {};
  }
  const std::string path = file.string();
  if (fs::file_size(file, none) > kLargestFile) {
    throw Failure(path + ": is larger than " + std::to_string(kLargestFile) + " bytes");
  }
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream) {
    throw Failure(path + ": cannot be read");
  }
  const Json json = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw Failure(path + ": expected a JSON object");
  }
  const Json end = json.value("eos_token_id", Json());
  return end.is_null() ? std::vector<int64_t>() : tokens_in(end, path);
}

std::vector<int64_t> stop_tokens_of_answers(const Tokenizer& tokenizer) {
  std::vector<int64_t> stops;
  const int64_t end =
      info_of<fsdp2_tokenizer_info>(fsdp2_tokenizer_get_info, tokenizer.get()).end_token;
  if (end >= 0) {
    stops.push_back(end);
  }
  const std::optional<std::vector<int64_t>> chat = tokens_of_chat(tokenizer);
  const size_t begin = chat ? length_of_prompt(tokenizer) : 0;
  for (size_t i = begin; chat && i < chat->size(); ++i) {
    if (is_special(tokenizer, (*chat)[i])) {
      stops.push_back((*chat)[i]);
      break;
    }
  }
  return stops;
}

}  // namespace fsdp2::cli
