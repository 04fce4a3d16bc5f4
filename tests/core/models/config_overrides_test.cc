// Fields of config.json that a caller changes.
#include "core/models/config_overrides.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "core/models/configured_model.h"
#include "core/models/registry.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::models {
namespace {

using Json = nlohmann::json;

constexpr char kLlama[] = R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 16,
  "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4,
  "num_key_value_heads": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
  "rope_scaling": null, "use_cache": true, "tie_word_embeddings": false,
  "nested": {"a": 1, "b": "x"}})";

Json changed(const std::string& overrides) {
  return Json::parse(with_overrides(kLlama, overrides));
}

TEST(ConfigOverrides, StandInPlaceOfTheConfigsOwn) {
  EXPECT_EQ(changed("{}"), Json::parse(kLlama));
  const Json config = changed(R"({"num_hidden_layers": 3, "rms_norm_eps": 1e-6})");
  EXPECT_EQ(config.at("num_hidden_layers"), 3);
  EXPECT_EQ(config.at("rms_norm_eps"), 1e-6);
  EXPECT_EQ(config.at("vocab_size"), 40);
  EXPECT_EQ(build(config.dump())->named_parameters().size(),
            build(kLlama)->named_parameters().size() + 2 * 9);
}

TEST(ConfigOverrides, MergeObjectsAndFillWhatIsNull) {
  EXPECT_EQ(changed(R"({"nested": {"b": "y"}})").at("nested"), Json::parse(R"({"a":1,"b":"y"})"));
  const Json config = changed(R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0}})");
  EXPECT_EQ(config.at("rope_scaling").at("factor"), 2.0);
  EXPECT_TRUE(changed(R"({"num_key_value_heads": null})").at("num_key_value_heads").is_null());
}

TEST(ConfigOverrides, MayGiveWhatTheModelReadsAndTheConfigLeavesOut) {
  EXPECT_EQ(changed(R"({"attention_dropout": 0.5})").at("attention_dropout"), 0.5);
  EXPECT_EQ(changed(R"({"use_cache": false})").at("use_cache"), false);  // it has it, unread
}

TEST(ConfigOverrides, AreRefusedWhereNobodyReadsThem) {
  EXPECT_ERROR(changed(R"({"atention_dropout": 0.5})"), Code::kInvalidArgument,
               "unknown field \"atention_dropout\": config.json lacks it and the model does not "
               "read it; did you mean attention_dropout?");
  EXPECT_ERROR(changed(R"({"nested": {"c": 1}})"), Code::kInvalidArgument,
               "unknown field \"nested.c\"");
  EXPECT_ERROR(changed(R"({"output_router_logits": true})"), Code::kInvalidArgument,
               "unknown field \"output_router_logits\"");
}

TEST(ConfigOverrides, KeepTypes) {
  EXPECT_ERROR(changed(R"({"hidden_size": "16"})"), Code::kInvalidArgument,
               "\"hidden_size\": expected a number, as config.json has, found a string");
  EXPECT_ERROR(changed(R"({"nested": 3})"), Code::kInvalidArgument,
               "\"nested\": expected an object, as config.json has, found a number");
  EXPECT_ERROR(changed(R"({"attention_dropout": "x"})"), Code::kInvalidArgument,
               "\"attention_dropout\" should be a finite number");
  for (const std::string text : {"", "[]", "3", "{", "null", "{\"a\": nan}"}) {
    EXPECT_ERROR(changed(text), Code::kInvalidArgument, "expected a JSON object");
  }
}

TEST(ConfigOverrides, AreNotNestedDeep) {
  std::string deep = "1";
  for (int i = 0; i < 100; ++i) {
    deep = "{\"a\":" + deep + "}";
  }
  EXPECT_ERROR(changed(deep), Code::kInvalidArgument, "nested more than 8 deep");
}

}  // namespace
}  // namespace fsdp2::models
