#include "core/ckpt/hugging_face/hugging_face_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/ckpt/hugging_face/model_directory_writer.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

class HuggingFaceSourceTest : public FileTest {
 protected:
  // "a" and "b" of a [2] float tensor each, in a file of its own.
  void write_model() const {
    FullWriterOptions options;
    options.config_json = "{}";
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
