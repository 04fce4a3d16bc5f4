#include "core/text/tokenizer_class.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace fsdp2::text {

namespace {

using Json = nlohmann::json;

constexpr TokenizerClass kLlama = {"LlamaTokenizer", true, "<s>", "</s>",
                                   /*keeps_prefix_space=*/true};
constexpr TokenizerClass kCodeLlama = {"CodeLlamaTokenizer", true, "<s>", "</s>"};
constexpr TokenizerClass kGemma = {"GemmaTokenizer", true, "<bos>", "<eos>"};
constexpr TokenizerClass kCohere = {"CohereTokenizer", true, "<BOS_TOKEN>",
                                    "<|END_OF_TURN_TOKEN|>"};
constexpr TokenizerClass kGptNeoX = {"GPTNeoXTokenizer", false, "<|endoftext|>", "<|endoftext|>"};

constexpr std::array<const TokenizerClass*, 5> kClasses = {&kLlama, &kCodeLlama, &kGemma, &kCohere,
                                                           &kGptNeoX};

// Those of transformers 4.57.
struct ModelTypes {
  const TokenizerClass* one;
  std::string_view types;  // between spaces
};

constexpr std::array<ModelTypes, 5> kTypes = {{
    {&kLlama,
     " arcee aria chameleon colpali deepseek_v2 deepseek_v3 deepseek_vl deepseek_vl_hybrid "
     "diffllama "
     "ernie4_5 ernie4_5_moe idefics idefics2 idefics3 jamba janus jetmoe llama llama4 llama4_text "
     "llava llava_next llava_next_video llava_onevision ministral mistral mistral3 mixtral mllama "
     "paligemma persimmon "
     "phi3 phimoe video_llava vipllava zamba zamba2 "},
    {&kCodeLlama, " code_llama "},
    {&kGemma,
     " gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2 siglip2 "
     "t5gemma "},
    {&kCohere, " aya_vision cohere cohere2 "},
    {&kGptNeoX, " falcon_mamba gpt_neox mamba mamba2 mpt olmo olmo2 olmoe rwkv stablelm xlstm "},
}};

const TokenizerClass* class_of_name(const Json& name) {
  const auto found = std::find_if(kClasses.begin(), kClasses.end(), [&](const TokenizerClass* one) {
    return name == one->name || name == std::string(one->name) + "Fast";
  });
  return found == kClasses.end() ? nullptr : *found;
}

const TokenizerClass* class_of_type(const Json& type) {
  if (!type.is_string()) {
    return nullptr;
  }
  const std::string word = " " + type.get<std::string>() + " ";
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const ModelTypes& of_one) {
    return of_one.types.find(word) != std::string_view::npos;
  });
  return found == kTypes.end() ? nullptr : found->one;
}

}  // namespace

FoundClass find_tokenizer_class(const Json& tokenizer_config, const Json& model_config) {
  constexpr const char* kName = "tokenizer_class";
  const Json name = tokenizer_config.value(kName, Json());
  if (!name.is_null()) {
    return {class_of_name(name), /*is_named=*/true};
  }
  const Json of_model = model_config.value(kName, Json());
  return {of_model.is_null() ? class_of_type(model_config.value("model_type", Json()))
                             : class_of_name(of_model)};
}

}  // namespace fsdp2::text
