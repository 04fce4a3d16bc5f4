#include "include/fsdp2/tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/text/tokenizer.h"
#include "core/train/data/images/vision_rules.h"
#include "core/train/data/record_tokens.h"

namespace fsdp2::capi {

namespace {

struct TokenizerObject {
  TokenizerObject() = default;
  explicit TokenizerObject(const std::string& path) : tokenizer(path) {}
  const text::Tokenizer tokenizer;
};

std::shared_ptr<TokenizerObject> object_of(fsdp2_tokenizer tokenizer) {
  return std::static_pointer_cast<TokenizerObject>(
      HandleTable::global().pin(tokenizer.id, Kind::kTokenizer));
}

fsdp2_tokenizer_info info_of(const text::Tokenizer& tokenizer) {
  fsdp2_tokenizer_info info{};
  info.has_chat_template = tokenizer.has_chat_template() ? 1 : 0;
  info.vocab_size = tokenizer.vocab_size();
  info.end_token = tokenizer.end_token().value_or(-1);
  return info;
}

// None for a model that sees no images, too.
std::optional<train::RecordVision> read_vision_of_record(const char* model, const char* directory) {
  const std::string from = directory == nullptr ? "" : read_path(directory, "directory") + "/";
  if (model == nullptr || *model == 0) {
    return std::nullopt;
  }
  std::optional<train::VisionRules> rules =
      train::read_vision_rules(read_path(model, "vision_model"));
  return rules ? std::optional<train::RecordVision>({*std::move(rules), from}) : std::nullopt;
}

// The tokens and, in the order of train::TokenBatch, what is seen.
using PromptOutputs = std::array<fsdp2_tensor*, 6>;

void give_prompt(const std::string& line, const text::Tokenizer& tokenizer,
                 const std::optional<train::RecordVision>& vision, const PromptOutputs& outs) {
  const train::RecordVision* seen = vision ? &*vision : nullptr;
  const train::RecordTokens tokens = train::read_prompt_tokens(line, &tokenizer, seen);
  const bool reads_pixels = std::any_of(outs.begin() + 1, outs.end(),
                                        [](const fsdp2_tensor* out) { return out != nullptr; });
  const train::TokenBatch row =
      train::as_row(tokens, reads_pixels && seen != nullptr ? &seen->rules : nullptr);
  give_tensors({{row.inputs, outs[0]},
                {row.pixels, outs[1]},
                {row.grids, outs[2]},
                {row.video_pixels, outs[3]},
                {row.video_grids, outs[4]},
                {row.seconds_per_grid, outs[5]}});
}

std::vector<int64_t> read_tokens(const int64_t* tokens, size_t count) {
  check_array(tokens, count, "tokens");
  return {tokens, tokens + count};
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_tokenizer_open(const char* path, fsdp2_tokenizer* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    auto object = path == nullptr || *path == '\0'
                      ? std::make_shared<capi::TokenizerObject>()
                      : std::make_shared<capi::TokenizerObject>(capi::read_path(path, "path"));
    out->id = capi::give(capi::Kind::kTokenizer, std::move(object));
  });
}

fsdp2_status fsdp2_tokenizer_get_info(fsdp2_tokenizer tokenizer, fsdp2_tokenizer_info* out) {
  return guard(__func__, [&](Call&) {
    const auto object = capi::object_of(tokenizer);
    capi::check_out_struct(out, "out");
    capi::fill_struct(out, capi::info_of(object->tokenizer));
  });
}

fsdp2_status fsdp2_tokenizer_encode(fsdp2_tokenizer tokenizer, const char* text, int32_t surround,
                                    int64_t* tokens, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    const auto object = capi::object_of(tokenizer);
    const std::string whole = capi::read_text(text, capi::kMaxConfig, "text");
    const auto around = capi::read_flag(surround, "surround") ? fsdp2::text::Surround::kYes
                                                              : fsdp2::text::Surround::kNo;
    capi::write_numbers(object->tokenizer.encode(whole, around).ids, "tokens", tokens, cap, needed);
  });
}

fsdp2_status fsdp2_tokenizer_encode_record(fsdp2_tokenizer tokenizer, const char* text,
                                           int64_t* tokens, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    const auto object = capi::object_of(tokenizer);
    const std::string line = capi::read_text(text, capi::kMaxConfig, "text");
    const auto record = fsdp2::train::read_record_tokens(line, &object->tokenizer);
    capi::write_numbers(record.ids, "tokens", tokens, cap, needed);
  });
}

fsdp2_status fsdp2_tokenizer_encode_prompt(fsdp2_tokenizer tokenizer, const char* text,
                                           const char* vision_model, const char* directory,
                                           fsdp2_tensor* prompt, fsdp2_tensor* pixel_values,
                                           fsdp2_tensor* image_grid_thw,
                                           fsdp2_tensor* pixel_values_videos,
                                           fsdp2_tensor* video_grid_thw,
                                           fsdp2_tensor* second_per_grid_ts) {
  return guard(__func__, [&](Call&) {
    const auto object = capi::object_of(tokenizer);
    const std::string line = capi::read_text(text, capi::kMaxConfig, "text");
    capi::check_not_null(prompt, "prompt");
    capi::give_prompt(line, object->tokenizer, capi::read_vision_of_record(vision_model, directory),
                      {prompt, pixel_values, image_grid_thw, pixel_values_videos, video_grid_thw,
                       second_per_grid_ts});
  });
}

fsdp2_status fsdp2_tokenizer_decode(fsdp2_tokenizer tokenizer, const int64_t* tokens,
                                    size_t n_tokens, int32_t keep_special, char* buf, size_t cap,
                                    size_t* needed) {
  return guard(__func__, [&](Call&) {
    const auto object = capi::object_of(tokenizer);
    const bool keeps = capi::read_flag(keep_special, "keep_special");
    const std::vector<int64_t> numbers = capi::read_tokens(tokens, n_tokens);
    capi::write_text(object->tokenizer.decode(numbers, !keeps), buf, cap, needed);
  });
}

fsdp2_status fsdp2_tokenizer_destroy(fsdp2_tokenizer tokenizer) {
  return capi::destroy(__func__, capi::Kind::kTokenizer, tokenizer.id);
}

fsdp2_status fsdp2_tokenizer_duplicate(fsdp2_tokenizer tokenizer, fsdp2_tokenizer* out) {
  return capi::duplicate(__func__, capi::Kind::kTokenizer, tokenizer, out);
}
