#include "cli/infer/stop_tokens.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/infer/model_json.h"

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

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

// A chat that goes on after an answer, where the tokenizer can write one. Not a record that ends
// with the answer: there are none by templates that open an answer otherwise than they keep it.
std::optional<std::vector<int64_t>> tokens_of_chat(const Tokenizer& tokenizer,
                                                   const std::string& answer) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"},
                                            {"role": "assistant", "content": ")" +
                           answer + R"("},
                                            {"role": "user", "content": "a"}]})";
  Tensor tensor;
  const fsdp2_status status =
      fsdp2_tokenizer_encode_prompt(tokenizer.get(), chat.c_str(), nullptr, nullptr, tensor.out(),
                                    nullptr, nullptr, nullptr, nullptr, nullptr);
  if (status == FSDP2_E_INVALID_ARGUMENT || status == FSDP2_E_CORRUPT_DATA) {
    return std::nullopt;
  }
  check(status);
  const auto info = info_of<fsdp2_tensor_info>(fsdp2_tensor_get_info, tensor.get());
  std::vector<int64_t> tokens(static_cast<size_t>(info.n_bytes) / sizeof(int64_t));
  check(fsdp2_tensor_read(tensor.get(), tokens.data(), static_cast<size_t>(info.n_bytes)));
  return tokens;
}

// What two chats that differ in an answer alone have in common behind it. None if they are the
// same: a template may leave old answers out.
std::vector<int64_t> tokens_behind_answer(const Tokenizer& tokenizer) {
  const auto one = tokens_of_chat(tokenizer, "b");
  const auto other = tokens_of_chat(tokenizer, "c");
  if (!one || !other || *one == *other) {
    return {};
  }
  const auto differ = std::mismatch(one->rbegin(), one->rend(), other->rbegin(), other->rend());
  return {differ.first.base(), one->end()};
}

// Whether people do not get to see it.
bool is_special(const Tokenizer& tokenizer, int64_t token) {
  const auto text = [&](int32_t keep_special) {
    return text_of(fsdp2_tokenizer_decode, tokenizer.get(), &token, size_t{1}, keep_special);
  };
  return text(0).empty() && !text(1).empty();
}

struct End {
  const char* model_type;
  int64_t token;
};

// What a model's class in transformers has where config.json does not say. The others have none.
constexpr std::array<End, 8> kEnds = {{{"gemma", 1},
                                       {"gemma2", 1},
                                       {"gemma3_text", 1},
                                       {"gpt2", 50256},
                                       {"llama", 2},
                                       {"mistral", 2},
                                       {"mixtral", 2},
                                       {"phi3", 32000}}};

Json end_by_model_type(const Json& config) {
  const Json model_type = config.value("model_type", Json());
  const auto end = std::find_if(kEnds.begin(), kEnds.end(),
                                [&](const End& one) { return model_type == one.model_type; });
  return end == kEnds.end() ? Json() : Json(end->token);
}

// A model of several parts may say it of its language model alone.
Json end_tokens(const Json& config) {
  const auto text = config.find("text_config");
  const bool has_text = text != config.end() && text->is_object();
  const Json end = config.value("eos_token_id", Json());
  if (end.is_null() && has_text && text->contains("eos_token_id")) {
    return text->at("eos_token_id");
  }
  return config.contains("eos_token_id") ? end : end_by_model_type(config);
}

}  // namespace

std::vector<int64_t> stop_tokens_of_model(const config::TrainOptions& run) {
  if (run.model.empty()) {
    return {};
  }
  const fs::path model(run.model);
  std::string path = (model / "generation_config.json").string();
  std::optional<Json> json = read_model_json(path);
  Json end = json ? json->value("eos_token_id", Json()) : Json();
  if (!json) {  // transformers makes one of config.json then
    path = (model / "config.json").string();
    json = read_model_json(path);
    end = json ? end_tokens(*json) : Json();
  }
  if (end == Json(-1)) {  // as some models' files say none
    end = Json();
  }
  return end.is_null() ? std::vector<int64_t>() : tokens_in(end, path);
}

std::vector<int64_t> stop_tokens_of_answers(const Tokenizer& tokenizer) {
  std::vector<int64_t> stops;
  const int64_t end =
      info_of<fsdp2_tokenizer_info>(fsdp2_tokenizer_get_info, tokenizer.get()).end_token;
  if (end >= 0) {
    stops.push_back(end);
  }
  const std::vector<int64_t> behind = tokens_behind_answer(tokenizer);
  const auto special = std::find_if(behind.begin(), behind.end(),
                                    [&](int64_t token) { return is_special(tokenizer, token); });
  if (special != behind.end()) {
    stops.push_back(*special);
  }
  return stops;
}

}  // namespace fsdp2::cli
