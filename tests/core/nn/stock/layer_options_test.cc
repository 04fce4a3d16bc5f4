#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/nn/stock/layer.h"

namespace fsdp2::nn {
namespace {

// What make_layer says against it; "" if nothing.
std::string refusal(const std::string& kind, const std::string& options) {
  try {
    make_layer(kind, options, {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
    return error.what();
  }
  return "";
}

void expect_refusal(const std::string& kind, const std::string& options, const std::string& part) {
  const std::string found = refusal(kind, options);
  EXPECT_NE(found.find(part), std::string::npos) << kind << " " << options << ": " << found;
  EXPECT_EQ(found.find('\n'), std::string::npos);
}

constexpr const char* kLinear = R"({"in_features": 2, "out_features": 3)";

TEST(LayerOptions, AnUnknownOptionNamesTheNearest) {
  expect_refusal("Linear", R"({"in_feature": 2, "out_features": 3})",
                 "Linear has no option \"in_feature\"; did you mean \"in_features\"?");
  expect_refusal("Linear", std::string(kLinear) + R"(, "device": "cpu"})",
                 "it has in_features, out_features, bias");
  expect_refusal("Sequential", R"({"p": 1})", "Sequential has no option \"p\"; it has none");
}

TEST(LayerOptions, AnUnknownKindNamesTheNearest) {
  expect_refusal("linear", "", "no layer is called 'linear'; did you mean Linear?");
  expect_refusal("Attention", "", "did you mean MultiheadAttention?");
  expect_refusal("Perceptron", "", "there are Conv1d, Conv2d, Dropout");
  expect_refusal(std::string(1000, 'x'), "", "there are Conv1d");
}

TEST(LayerOptions, AMissingOptionIsNamed) {
  expect_refusal("Linear", "", "Linear needs the option \"in_features\" (an integer from 1 to");
  expect_refusal("Linear", R"({"in_features": 2, "out_features": null})",
                 "Linear needs the option \"out_features\"");
  expect_refusal("LayerNorm", "{}", "LayerNorm needs the option \"normalized_shape\"");
}

TEST(LayerOptions, AValueThatDoesNotFitIsShown) {
  expect_refusal("Linear", R"({"in_features": 0, "out_features": 3})",
                 "Linear: \"in_features\" should be an integer from 1 to 1099511627776, found 0");
  for (const char* value : {"2.0", "-1", "\"2\"", "true", "[2]", "{}", "1e30",
                            "18446744073709551615", "9223372036854775807"}) {
    expect_refusal("Linear", std::string(R"({"out_features": 3, "in_features": )") + value + "}",
                   "\"in_features\" should be an integer");
  }
  expect_refusal("Linear", std::string(kLinear) + R"(, "bias": 1})", "should be true or false");
  expect_refusal("Dropout", R"({"p": 1})", "should be a number from 0 to below 1, found 1");
  expect_refusal("Dropout", R"({"p": 1e999})", "Dropout");
  expect_refusal("GELU", R"({"approximate": "erf"})", "should be one of none, tanh");
  expect_refusal("MLP", R"({"hidden_size": 2, "intermediate_size": 2, "hidden_act": "gleu"})",
                 "\"hidden_act\" should be one of gelu_new, ");
  expect_refusal("Conv2d", R"({"in_channels": 1, "out_channels": 1, "kernel_size": [3]})",
                 "should be an integer from 1 to 1099511627776, or an array of 2, found an array");
  expect_refusal("LayerNorm", R"({"normalized_shape": []})", "an array of 1 to 16");
}

TEST(LayerOptions, OptionsThatDoNotFitEachOtherAreRefused) {
  expect_refusal("MultiheadAttention", R"({"embed_dim": 8, "num_heads": 3})",
                 "\"num_heads\" should divide embed_dim, found 3 for 8");
  expect_refusal("MultiheadAttention", R"({"embed_dim": 8, "num_heads": 4, "num_kv_heads": 3})",
                 "\"num_kv_heads\" should divide num_heads");
  expect_refusal("MultiheadAttention", R"({"embed_dim": 6, "num_heads": 2, "rope_theta": 10000})",
                 "an even dim of a head");
  expect_refusal("MultiheadAttention",
                 R"({"embed_dim": 1099511627776, "num_heads": 1, "rope_theta": 10000})",
                 "heads of at most 65536 dims");
  expect_refusal("Conv1d",
                 R"({"in_channels": 3, "out_channels": 4, "kernel_size": 1, "groups": 2})",
                 "\"groups\" should divide in_channels and out_channels");
  expect_refusal("Linear", R"({"in_features": 1099511627776, "out_features": 1099511627776})",
                 "too large");
}

TEST(LayerOptions, OnlyAJsonObjectIsTaken) {
  for (const char* text : {"[]", "1", "null", "\"text\""}) {
    expect_refusal("ReLU", text, "expected the options as a JSON object");
  }
  for (const char* text : {"{", "{\"a\": }", "{} {}", "\x01", "{\"a\nb\": 1", "nope"}) {
    expect_refusal("ReLU", text, "the options are not valid JSON");
  }
  expect_refusal("ReLU", std::string(100000, '['), "nested more than 8 deep");
  EXPECT_EQ(refusal("ReLU", ""), "");
  EXPECT_EQ(refusal("ReLU", " {} "), "");
}

}  // namespace
}  // namespace fsdp2::nn
