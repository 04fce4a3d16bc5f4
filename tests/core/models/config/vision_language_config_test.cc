// Reading the config.json of vision-language models, good and bad.
#include "core/models/config/vision_language_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/support/errors.h"

namespace fsdp2::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// Qwen2.5-VL-3B-Instruct, as published.
Json qwen2_5_vl() {
  return Json::parse(R"({
    "model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
    "vision_start_token_id": 151652, "vision_end_token_id": 151653, "vision_token_id": 151654,
    "image_token_id": 151655, "video_token_id": 151656, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 128000,
    "max_window_layers": 70, "num_attention_heads": 16, "num_hidden_layers": 36,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": true, "use_sliding_window": false,
    "vocab_size": 151936, "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {"depth": 32, "hidden_act": "silu", "hidden_size": 1280,
      "intermediate_size": 3420, "num_heads": 16, "in_chans": 3, "out_hidden_size": 2048,
      "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "window_size": 112,
      "fullatt_block_indexes": [7, 15, 23, 31], "tokens_per_second": 2, "temporal_patch_size": 2}
  })");
}

// Qwen3-VL-4B-Instruct, as published.
Json qwen3_vl() {
  return Json::parse(R"({
    "model_type": "qwen3_vl", "image_token_id": 151655, "video_token_id": 151656,
    "tie_word_embeddings": true, "text_config": {
      "attention_bias": false, "attention_dropout": 0.0, "dtype": "bfloat16", "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02,
      "intermediate_size": 9728, "max_position_embeddings": 262144,
      "model_type": "qwen3_vl_text", "num_attention_heads": 32, "num_hidden_layers": 36,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": {
        "mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"},
      "rope_theta": 5000000, "tie_word_embeddings": true, "vocab_size": 151936},
    "vision_config": {"deepstack_visual_indexes": [5, 11, 17], "depth": 24,
      "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1024, "in_channels": 3,
      "initializer_range": 0.02, "intermediate_size": 4096, "num_heads": 16,
      "num_position_embeddings": 2304, "out_hidden_size": 2560, "patch_size": 16,
      "spatial_merge_size": 2, "temporal_patch_size": 2}
  })");
}

using ReadVisionLanguage = VisionLanguageConfig(const ConfigReader&);

VisionLanguageConfig read(const Json& config, ReadVisionLanguage* reader) {
  return reader(ConfigReader(config.dump()));
}

// The error of a config with this change, a JSON patch of one key.
std::string refusal(Json config, const char* pointer, const Json& value, ReadVisionLanguage* reader,
                    Code code = Code::kInvalidArgument) {
  config[Json::json_pointer(pointer)] = value;
  return message_of_error([&] { read(config, reader); }, code);
}

TEST(VisionLanguageConfig, ReadsPublishedQwen25) {
  const VisionLanguageConfig config = read(qwen2_5_vl(), read_qwen2_5_vl_config);
  EXPECT_EQ(config.text.kind("DecoderLayer"), "Qwen2_5_VLDecoderLayer");
  EXPECT_TRUE(config.text.qkv_bias && config.text.tie_word_embeddings);
  EXPECT_THAT(config.text.rope.sections, ElementsAre(16, 24, 24));
  EXPECT_FALSE(config.text.rope.interleaves_sections);
  EXPECT_EQ(config.vision.window, 4);
  EXPECT_THAT(config.vision.full_attention_layers, ElementsAre(7, 15, 23, 31));
  EXPECT_EQ(config.vision.patch_numel(), 1176);
  EXPECT_EQ(config.frames.video_step, 2);
  EXPECT_EQ(config.image_token, 151655);
}

TEST(VisionLanguageConfig, ReadsTheDecoderFromTextConfigWhereThereIsOne) {
  Json config = qwen2_5_vl();
  Json text = config;
  text.erase("vision_config");
  text["num_hidden_layers"] = 7;
  config["text_config"] = text;
  EXPECT_EQ(read(config, read_qwen2_5_vl_config).text.layers, 7);
}

TEST(VisionLanguageConfig, ReadsPublishedQwen3) {
  const VisionLanguageConfig config = read(qwen3_vl(), read_qwen3_vl_config);
  EXPECT_EQ(config.text.kind("DecoderLayer"), "Qwen3VLTextDecoderLayer");
  EXPECT_TRUE(config.text.qk_norm && config.text.tie_word_embeddings);
  EXPECT_TRUE(config.text.rope.interleaves_sections);
  EXPECT_EQ(config.vision.position_side, 48);
  EXPECT_THAT(config.vision.deepstack_layers, ElementsAre(5, 11, 17));
  EXPECT_EQ(config.vision.patch_numel(), 1536);
  EXPECT_TRUE(config.frames.frames_are_apart);
}

TEST(VisionLanguageConfig, TiesTheHeadAsItSaysBesideTextConfigWhereThatSaysNothing) {
  Json config = qwen3_vl();
  config["text_config"].erase("tie_word_embeddings");
  EXPECT_TRUE(read(config, read_qwen3_vl_config).text.tie_word_embeddings);
  config["text_config"]["tie_word_embeddings"] = false;
  EXPECT_FALSE(read(config, read_qwen3_vl_config).text.tie_word_embeddings);
  config["text_config"]["tie_word_embeddings"] = nullptr;
  EXPECT_FALSE(read(config, read_qwen3_vl_config).text.tie_word_embeddings);
  config["text_config"].erase("tie_word_embeddings");
  config.erase("tie_word_embeddings");
  EXPECT_FALSE(read(config, read_qwen3_vl_config).text.tie_word_embeddings);
}

TEST(VisionLanguageConfig, KeepsSectionsBesideAScaledRotaryEmbedding) {
  Json config = qwen2_5_vl();
  config["rope_scaling"] = {{"type", "yarn"},
                            {"mrope_section", {16, 24, 24}},
                            {"factor", 4.0},
                            {"original_max_position_embeddings", 32768}};
  const DecoderConfig text = read(config, read_qwen2_5_vl_config).text;
  EXPECT_TRUE(std::holds_alternative<nn::YarnScaling>(text.rope.scaling));
  EXPECT_THAT(text.rope.sections, ElementsAre(16, 24, 24));
}

TEST(VisionLanguageConfig, RefusesWhatDoesNotFitTogether) {
  const auto of_qwen2_5 = [](const char* pointer, const Json& value) {
    return refusal(qwen2_5_vl(), pointer, value, read_qwen2_5_vl_config);
  };
  const auto of_qwen3 = [](const char* pointer, const Json& value) {
    return refusal(qwen3_vl(), pointer, value, read_qwen3_vl_config);
  };
  EXPECT_THAT(of_qwen2_5("/vision_config", nullptr), HasSubstr("has no \"vision_config\""));
  EXPECT_THAT(of_qwen2_5("/vision_config/out_hidden_size", 1280),
              HasSubstr("\"vision_config.out_hidden_size\" (1280) should be the decoder's "
                        "\"hidden_size\" (2048)"));
  EXPECT_THAT(of_qwen2_5("/vision_config/num_heads", 640),
              HasSubstr("\"vision_config.hidden_size\" (1280) should be 4 times "
                        "\"vision_config.num_heads\" (640)"));
  EXPECT_THAT(of_qwen2_5("/vision_config/window_size", 27),
              HasSubstr("\"vision_config.window_size\" (27) should be at least"));
  EXPECT_THAT(of_qwen2_5("/rope_scaling", nullptr), HasSubstr("\"rope_scaling.mrope_section\""));
  EXPECT_THAT(of_qwen2_5("/rope_scaling/mrope_section", {16, 24, 25}),
              HasSubstr("64 frequencies in all"));
  EXPECT_THAT(of_qwen2_5("/image_token_id", 151936), HasSubstr("\"image_token_id\" should be"));
  EXPECT_THAT(of_qwen2_5("/image_token_id", 151656), HasSubstr("should be two tokens"));
  EXPECT_THAT(of_qwen2_5("/vocab_size", 151000), HasSubstr("image_token_id"));
  EXPECT_THAT(of_qwen3("/text_config", nullptr), HasSubstr("has no \"text_config\""));
  EXPECT_THAT(of_qwen3("/vision_config/num_position_embeddings", 2300),
              HasSubstr("\"vision_config.num_position_embeddings\" should be a square number"));
  EXPECT_THAT(of_qwen3("/vision_config/deepstack_visual_indexes", {5, 24}),
              HasSubstr("\"vision_config.deepstack_visual_indexes\" should be a list of integers "
                        "from 0 to 23, found 24"));
  EXPECT_THAT(of_qwen3("/vision_config/deepstack_visual_indexes", {5, 5}),
              HasSubstr("different layers of the 24"));
  EXPECT_THAT(of_qwen3("/text_config/num_hidden_layers", 2), HasSubstr("as many layers"));
  EXPECT_THAT(of_qwen3("/text_config/rope_scaling/mrope_section", {32, 32}),
              HasSubstr("should be three numbers"));
  EXPECT_THAT(of_qwen3("/vision_config/spatial_merge_size", 1000), HasSubstr("from 1 to 64"));
  EXPECT_THAT(of_qwen2_5("/vision_config/patch_size", 1024),
              HasSubstr("patches of 6291456 numbers (3 \"vision_config.in_channels\" x 2"));
  EXPECT_THAT(refusal(qwen2_5_vl(), "/vision_config/hidden_act", "gelu", read_qwen2_5_vl_config,
                      Code::kUnsupported),
              HasSubstr("\"vision_config.hidden_act\" \"gelu\" is not supported; supported: silu"));
}

}  // namespace
}  // namespace fsdp2::models
