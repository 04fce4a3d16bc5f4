#include "core/ckpt/hugging_face/hugging_face_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/ckpt/hugging_face/config_dtype.h"
#include "core/ckpt/hugging_face/model_directory_writer.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

class HuggingFaceSourceTest : public FileTest {
 protected:
  // "a" and "b" of a [2] float tensor each, in a file of its own.
  void write_model(const std::string& config = "{}") const {
    FullWriterOptions options;
    options.config_json = config;
    options.max_file_bytes = 8;
    const auto writer = make_model_directory_writer(
        path("m"), {{"a", at::kFloat, {2}}, {"b", at::kFloat, {2}}}, options);
    writer->append("a", at::zeros({2}));
    writer->append("b", at::ones({2}));
    writer->finish();
  }
};

TEST_F(HuggingFaceSourceTest, ReadsTensorsFromTheFileThatTheIndexNames) {
  write_model();
  const auto source = open_model_directory(path("m"));
  ASSERT_EQ(source->entries().size(), 2U);
  EXPECT_EQ(source->path(), path("m"));
  EXPECT_TRUE(read_whole(*source, *source->find("b")).equal(at::ones({2})));
  EXPECT_NO_THROW(source->verify());
}

TEST_F(HuggingFaceSourceTest, NeedsNoConfig) {
  write_model();
  std::filesystem::remove(path("m/config.json"));
  const auto source = open_model_directory(path("m"));
  EXPECT_TRUE(read_whole(*source, *source->find("a")).equal(at::zeros({2})));
}

TEST_F(HuggingFaceSourceTest, ConfigSaysTheDtypeOfTheWeightsBesideIt) {
  write_model("{\"torch_dtype\": \"bfloat16\", \"hidden_size\": 2}");
  EXPECT_EQ(contents(path("m/config.json")),
            "{\n  \"torch_dtype\": \"float32\",\n  \"hidden_size\": 2\n}\n");
  const std::string right = "{\"dtype\":\"float32\"}";
  write_model(right);
  EXPECT_EQ(contents(path("m/config.json")), right);
}

TEST(ConfigFor, WeightsOfSeveralDtypesTakesTheWidest) {
  const TensorSpec half{"h", at::kHalf, {2}};
  const TensorSpec bfloat{"b", at::kBFloat16, {2}};
  const TensorSpec count{"c", at::kLong, {2}};
  EXPECT_NE(config_for("{}", {half, bfloat}).find("\"torch_dtype\": \"float32\""),
            std::string::npos);
  EXPECT_NE(config_for("{}", {count, bfloat}).find("bfloat16"), std::string::npos);
  EXPECT_EQ(config_for("{}", {count}), "{}");
  EXPECT_ERROR(config_for("[]", {half}), Code::kCorruptData, "config.json: is no JSON object");
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_ERROR(config_for("{\"a\": " + deep + "}", {half}), Code::kCorruptData,
               "config.json: is nested more than 64 deep");
}

TEST_F(HuggingFaceSourceTest, IsToldAndListedByItsFiles) {
  write_model();
  EXPECT_TRUE(is_model_directory(PathContent(path("m"))));
  const std::vector<ListedTensor> listed = list_model_directory(path("m"));
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[0].chunks[0].file, path("m/model-00001-of-00002.safetensors"));
  EXPECT_EQ(listed[1].name, "b");
  write("empty/config.json", "{}");
  EXPECT_FALSE(is_model_directory(PathContent(path("empty"))));
}

TEST_F(HuggingFaceSourceTest, ReplacesAnyDirectory) {
  EXPECT_FALSE(static_cast<bool>(replaceable_by_model().is_ours));
}

}  // namespace
}  // namespace fsdp2::ckpt
