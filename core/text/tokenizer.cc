#include "core/text/tokenizer.h"

#include <sys/stat.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/text/prefix_space.h"
#include "core/text/special_tokens.h"
#include "core/text/tokenizers_library.h"

namespace fsdp2::text {

namespace {

// Those of large vocabularies have some ten MiB.
constexpr int64_t kLargestTokenizer = int64_t{1} << 30;
constexpr const char* kFileName = "tokenizer.json";
constexpr int64_t kBytes = 256;
constexpr uint32_t kEndByte = 0;

std::string file_of(const std::string& path) {
  struct stat info{};
  const bool is_directory = stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  return is_directory ? path + (path.back() == '/' ? "" : "/") + kFileName : path;
}

std::string shown(const std::string& token) {
  return nlohmann::json(token).dump(-1, ' ', /*ensure_ascii=*/true,
                                    nlohmann::json::error_handler_t::replace);
}

Encoding encode_bytes(std::string_view text) {
  Encoding encoding;
  for (size_t i = 0; i < text.size(); ++i) {
    encoding.ids.push_back(static_cast<uint8_t>(text[i]));
    encoding.begins.push_back(i);
  }
  return encoding;
}

// With U+FFFD for each byte that begins no character.
std::string with_replacements(std::string_view text) {
  std::string sound;
  while (const auto bad = find_malformed_utf8(text)) {
    sound.append(text.substr(0, *bad)).append("\xef\xbf\xbd");
    text.remove_prefix(*bad + 1);
  }
  return sound.append(text);
}

// As the library has it, such tokens begin where the text does.
void put_around(std::optional<int64_t> begin, std::optional<int64_t> end, Encoding* encoding) {
  encoding->behind = end && !encoding->ids.empty() ? 1 : 0;
  if (begin) {
    encoding->ids.insert(encoding->ids.begin(), static_cast<uint32_t>(*begin));
    encoding->begins.insert(encoding->begins.begin(), 0);
  }
  if (end) {
    encoding->ids.push_back(static_cast<uint32_t>(*end));
    encoding->begins.push_back(0);
  }
}

std::string decode_bytes(const std::vector<uint32_t>& ids, bool skip_special) {
  std::string text;
  for (const uint32_t id : ids) {
    if (id != kEndByte || !skip_special) {
      text += static_cast<char>(id);
    }
  }
  return with_replacements(text);
}

}  // namespace

struct Tokenizer::Handle {
  Handle(const std::string& path, const std::string& json) {
    fsdp2_tokenizers_text error{};
    pointer = api.open(json.data(), json.size(), &error);
    FSDP2_CHECK(pointer != nullptr, Code::kCorruptData, "{}: is no tokenizer: {}", path,
                taken(error));
  }
  ~Handle() { api.close(pointer); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  const fsdp2_tokenizers_api& api = tokenizers_library();
  fsdp2_tokenizers_tokenizer* pointer;
};

struct Tokenizer::Chat {
  Chat(const std::string& path, const SpecialTokens& tokens) : variables(tokens.by_role) {
    const std::string& source = tokens.chat_template;
    fsdp2_tokenizers_text error{};
    pointer = api.open_template(source.data(), source.size(), &error);
    FSDP2_CHECK(pointer != nullptr, Code::kCorruptData, "{}: its chat template cannot be read: {}",
                path, taken(error));
  }
  ~Chat() { api.close_template(pointer); }
  Chat(const Chat&) = delete;
  Chat& operator=(const Chat&) = delete;

  const fsdp2_tokenizers_api& api = tokenizers_library();
  fsdp2_tokenizers_template* pointer;
  const nlohmann::json variables;
};

Tokenizer::Tokenizer() : vocab_size_(kBytes), end_token_(kEndByte) {}

Tokenizer::Tokenizer(const std::string& path) : path_(file_of(path)) {
  std::string json = read_text_file(path_, kLargestTokenizer);
  SpecialTokens tokens = read_special_tokens(path_.substr(0, path_.rfind('/') + 1));
  if (tokens.prefix_space) {
    json =
        in_context(path_, [&] { return with_prefix_space(std::move(json), *tokens.prefix_space); });
  }
  handle_ = std::make_unique<Handle>(path_, json);
  vocab_size_ = static_cast<int64_t>(handle_->api.vocab_size(handle_->pointer));
  take_surrounding(&tokens);
  const auto named = tokens.by_role.find("eos_token");
  end_token_ = named == tokens.by_role.end() ? std::nullopt : find_token(named->second);
  end_token_ = end_token_ ? end_token_ : tokens.end_id;
  if (!tokens.chat_template.empty()) {
    chat_ = std::make_unique<Chat>(path_, tokens);
  }
}

Tokenizer::~Tokenizer() = default;

void Tokenizer::take_surrounding(SpecialTokens* tokens) {
  if (!tokens->surrounding) {
    return;
  }
  around_ = find_around(tokens->surrounding->begin, tokens->surrounding->end);
  if (!tokens->surrounding->is_named && !around_->missing.empty()) {
    around_.reset();
    for (const std::string& role : tokens->surrounding->usual_roles) {
      tokens->by_role.erase(role);
    }
  }
}

Tokenizer::Around Tokenizer::find_around(const std::string& begin, const std::string& end) const {
  Around around;
  const auto find = [&](const std::string& token) {
    const auto id = token.empty() ? std::nullopt : find_token(token);
    around.missing = token.empty() || id ? around.missing : token;
    return id;
  };
  around.begin = find(begin);
  around.end = find(end);
  return around;
}

std::optional<int64_t> Tokenizer::find_token(std::string_view token) const {
  if (is_bytes()) {
    return token.size() == 1 ? std::optional(int64_t{static_cast<uint8_t>(token[0])})
                             : std::nullopt;
  }
  const int64_t id = handle_->api.find_token(handle_->pointer, token.data(), token.size());
  return id < 0 ? std::nullopt : std::optional(id);
}

Encoding Tokenizer::encode(std::string_view text, Surround surround) const {
  if (is_bytes()) {
    return encode_bytes(text);
  }
  fsdp2_tokenizers_tokens tokens{};
  fsdp2_tokenizers_text error{};
  const bool is_surrounded = surround == Surround::kYes;
  FSDP2_CHECK(
      !is_surrounded || !around_ || around_->missing.empty(), Code::kInvalidArgument,
      "{}: lacks the token {} that the tokenizer_class in tokenizer_config.json puts around "
      "a text: expected it, or \"add_bos_token\" and \"add_eos_token\" false",
      path_, shown(around_->missing));
  const int is_done = handle_->api.encode(handle_->pointer, text.data(), text.size(),
                                          is_surrounded && !around_ ? 1 : 0, &tokens, &error);
  FSDP2_CHECK(is_done != 0, Code::kCorruptData, "{}", taken(error));
  Encoding encoding{{tokens.ids, tokens.ids + tokens.count},
                    {tokens.begins, tokens.begins + tokens.count},
                    tokens.behind};
  handle_->api.free_tokens(tokens);
  if (is_surrounded && around_) {
    put_around(around_->begin, around_->end, &encoding);
  }
  return encoding;
}

std::string Tokenizer::decode(const std::vector<int64_t>& tokens, bool skip_special) const {
  std::vector<uint32_t> ids;
  for (const int64_t token : tokens) {
    FSDP2_CHECK(token >= 0 && token < vocab_size_, Code::kInvalidArgument,
                "token {} is outside the tokenizer's vocabulary of {}", token, vocab_size_);
    ids.push_back(static_cast<uint32_t>(token));
  }
  if (is_bytes()) {
    return decode_bytes(ids, skip_special);
  }
  fsdp2_tokenizers_text text{};
  fsdp2_tokenizers_text error{};
  const int is_done = handle_->api.decode(handle_->pointer, ids.data(), ids.size(),
                                          skip_special ? 1 : 0, &text, &error);
  FSDP2_CHECK(is_done != 0, Code::kInvalidArgument, "{}: {}", path_, taken(error));
  return taken(text);
}

std::string Tokenizer::chat_text(const std::string& messages, bool opens_answer) const {
  // Ordered, as a template may write a message as JSON.
  nlohmann::ordered_json context = chat_->variables;
  context["messages"] = nlohmann::ordered_json::parse(messages);
  context["add_generation_prompt"] = opens_answer;
  // Templates ask whether these are none, which what is not defined is not.
  context["tools"] = nullptr;
  context["documents"] = nullptr;
  const std::string variables = context.dump();
  fsdp2_tokenizers_text text{};
  fsdp2_tokenizers_text error{};
  const int is_done =
      chat_->api.render(chat_->pointer, variables.data(), variables.size(), &text, &error);
  FSDP2_CHECK(is_done != 0, Code::kCorruptData, "the chat template refuses it: {}", taken(error));
  return taken(text);
}

}  // namespace fsdp2::text
