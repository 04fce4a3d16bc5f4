#include "core/ckpt/hugging_face/hugging_face_directory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/ckpt/bytes/checksum.h"
#include "tests/core/ckpt/safetensors/safetensors_fixture.h"

namespace fsdp2::ckpt {
namespace {

std::string golden(const std::string& model) { return "tests/parity/golden/models/" + model; }

// A [2] tensor of float zeros under each name.
std::string file_of(const std::vector<std::string>& names) {
  std::string header = "{";
  for (size_t i = 0; i < names.size(); ++i) {
    header += (i > 0 ? ",\"" : "\"") + names[i] +
              R"(":{"dtype":"F32","shape":[2],"data_offsets":[)" + std::to_string(8 * i) + "," +
              std::to_string(8 * i + 8) + "]}";
  }
  return safetensors_text(header + "}", std::string(8 * names.size(), '\0'));
}

class HuggingFaceDirectoryTest : public FileTest {
 protected:
  void refuses(Code code, const std::string& message) const {
    EXPECT_ERROR(HuggingFaceDirectory{path("m")}, code, message);
  }
  // config.json and an index of this weight_map.
  void write_index(const std::string& weight_map) const {
    write("m/config.json", "{}");
    write("m/model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":" + weight_map + "}");
  }
};

TEST_F(HuggingFaceDirectoryTest, ReadsAWholeModel) {
  HuggingFaceDirectory directory(golden("tiny-llama"));
  EXPECT_EQ(directory.config_json(), contents(golden("tiny-llama/config.json")));
  EXPECT_EQ(directory.names().size(), 21U);
  EXPECT_EQ(directory.names().front(), "lm_head.weight");
  EXPECT_EQ(directory.names().back(), "model.norm.weight");
  EXPECT_TRUE(directory.contains("model.norm.weight"));
  EXPECT_FALSE(directory.contains("model.norm.bias"));
  EXPECT_EQ(directory.file_of("model.norm.weight"), golden("tiny-llama/model.safetensors"));
  EXPECT_EQ(directory.entry("model.norm.weight").shape, std::vector<int64_t>{64});
}

TEST_F(HuggingFaceDirectoryTest, RowsAreThoseThatPythonReads) {
  HuggingFaceDirectory directory(golden("tiny-llama"));
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  at::Tensor first = at::empty({1, 64});
  directory.read(name, {64, 64}, 0, first);
  EXPECT_TRUE(first[0].slice(0, 0, 4).equal(
      at::tensor({0x1.daf332p-8F, -0x1.cae004p-4F, -0x1.dfb786p-3F, 0x1.8dadeap-3F})));
  at::Tensor two = at::empty({2, 64});
  directory.read(name, {64, 64}, 4, two);
  EXPECT_TRUE(
      two[1].slice(0, 0, 3).equal(at::tensor({0x1.2919d6p-2F, 0x1.0587d8p-3F, 0x1.a660p-3F})));
  at::Tensor last = at::empty({1, 64});
  directory.read(name, {64, 64}, 63, last);
  EXPECT_TRUE(last[0].slice(0, 61, 64).equal(
      at::tensor({0x1.5183ccp-3F, 0x1.8fa8f6p-3F, -0x1.3c30dap-5F})));
}

TEST_F(HuggingFaceDirectoryTest, MarksTellValuesFromOthers) {
  const std::string config = contents(golden("tiny-llama/config.json"));
  std::string weights = contents(golden("tiny-llama/model.safetensors"));
  write("m/config.json", config);
  write("m/model.safetensors", weights);
  const HuggingFaceDirectory first(golden("tiny-llama"));
  const std::string name = first.names().front();
  EXPECT_EQ(first.mark_of(name), HuggingFaceDirectory(path("m")).mark_of(name));
  weights[static_cast<size_t>(first.entry(name).offset)] ^= 1;
  write("m/model.safetensors", weights);
  EXPECT_NE(first.mark_of(name), HuggingFaceDirectory(path("m")).mark_of(name));
}

TEST_F(HuggingFaceDirectoryTest, MarksAreThoseOfFilesWithoutChecksums) {
  const std::string data(8, '\0');
  const std::string checksums = R"({\"block_bytes\":1048576,\"tensors\":{\"w\":\")" +
                                checksum_text(checksum(data.data(), 8)) + R"(\"}})";
  write("ours/config.json", "{}");
  write("ours/model.safetensors",
        safetensors_text(R"({"__metadata__":{"fsdp2_checksums":")" + checksums +
                             R"("},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                         data));
  write("theirs/config.json", "{}");
  write("theirs/model.safetensors", file_of({"w"}));
  EXPECT_EQ(HuggingFaceDirectory(path("ours")).mark_of("w"),
            HuggingFaceDirectory(path("theirs")).mark_of("w"));
}

TEST_F(HuggingFaceDirectoryTest, RowsAreConverted) {
  HuggingFaceDirectory directory(golden("tiny-llama"));
  at::Tensor row = at::empty({1, 64}, at::kBFloat16);
  directory.read("model.layers.1.self_attn.k_proj.weight", {64, 64}, 5, row);
  EXPECT_TRUE(row[0]
                  .slice(0, 0, 3)
                  .to(at::kFloat)
                  .equal(at::tensor({0.291015625F, 0.1279296875F, 0.2060546875F})));
}

TEST_F(HuggingFaceDirectoryTest, ReadsAShardedModelWithTiedEmbeddings) {
  HuggingFaceDirectory directory(golden("tiny-llama-gqa-tied"));
  EXPECT_FALSE(directory.contains("lm_head.weight"));
  EXPECT_EQ(directory.file_of("model.norm.weight"),
            golden("tiny-llama-gqa-tied/model-00003-of-00003.safetensors"));
  for (const std::string& name : directory.names()) {
    const std::vector<int64_t> shape = directory.entry(name).shape;
    const at::Tensor out = at::full(shape, NAN);
    directory.read(name, shape, 0, out);
    EXPECT_TRUE(out.isfinite().all().item<bool>()) << name;
  }
}

TEST_F(HuggingFaceDirectoryTest, EveryGoldenModelOpens) {
  for (const char* model : {"tiny-llama", "tiny-llama-gqa-tied", "tiny-qwen2", "tiny-qwen2.5",
                            "tiny-qwen3", "tiny-qwen3-moe"}) {
    EXPECT_TRUE(HuggingFaceDirectory(golden(model)).contains("model.norm.weight")) << model;
  }
}

TEST_F(HuggingFaceDirectoryTest, ModelSavedWithoutItsHeadLacksTheBodysName) {
  write("m/config.json", "{}");
  write("m/model.safetensors", file_of({"h.0.weight", "transformer.both", "both"}));
  HuggingFaceDirectory directory(path("m"));
  EXPECT_TRUE(directory.contains("transformer.h.0.weight"));
  EXPECT_EQ(directory.entry("transformer.h.0.weight").name, "h.0.weight");
  EXPECT_EQ(directory.entry("transformer.both").name, "transformer.both");
  at::Tensor out = at::ones({2});
  directory.read("transformer.h.0.weight", {2}, 0, out);
  EXPECT_TRUE(out.equal(at::zeros({2})));
  EXPECT_FALSE(directory.contains("lm_head.weight"));
  EXPECT_ERROR(directory.read("lm_head.weight", {2}, 0, out), Code::kNotFound,
               "lm_head.weight: no tensor of this name");
}

TEST_F(HuggingFaceDirectoryTest, TensorsThatNoParameterTakesAreNamed) {
  write("m/config.json", "{}");
  write("m/model.safetensors",
        file_of({"h.0.weight", "h.1.weight", "h.0.attn.bias", "h.0.attn.masked_bias",
                 "h.0.rotary_emb.inv_freq", "both", "transformer.both"}));
  const HuggingFaceDirectory directory(path("m"));
  EXPECT_EQ(directory.unused({"transformer.h.0.weight", "transformer.both", "lm_head.weight"}),
            (std::vector<std::string>{"both", "h.1.weight"}));
}

TEST_F(HuggingFaceDirectoryTest, VisionLanguageModelsMayHaveTheirNamesInMemory) {
  write("m/config.json", "{}");
  write("m/model.safetensors", file_of({"model.visual.a", "model.language_model.b", "model.c",
                                        "model.language_model.c", "visual.d", "model.visual.d"}));
  HuggingFaceDirectory directory(path("m"));
  EXPECT_EQ(directory.entry("visual.a").name, "model.visual.a");
  EXPECT_EQ(directory.entry("model.b").name, "model.language_model.b");
  EXPECT_EQ(directory.entry("model.c").name, "model.c");
  EXPECT_EQ(directory.entry("visual.d").name, "visual.d");
  EXPECT_FALSE(directory.contains("visual.b"));
}

TEST_F(HuggingFaceDirectoryTest, WholeFileIsPreferredToAnIndex) {
  write_index(R"({"a":"none.safetensors"})");
  write("m/model.safetensors", file_of({"whole"}));
  EXPECT_TRUE(HuggingFaceDirectory(path("m")).contains("whole"));
}

TEST_F(HuggingFaceDirectoryTest, ShardsMayBeLinksOutOfTheDirectory) {
  write_index(R"({"a":"sub/shard.safetensors"})");
  write("blobs/1234", file_of({"a"}));
  std::filesystem::create_directories(path("m/sub"));
  std::filesystem::create_symlink("../../blobs/1234", path("m/sub/shard.safetensors"));
  EXPECT_TRUE(HuggingFaceDirectory(path("m")).contains("a"));
}

TEST_F(HuggingFaceDirectoryTest, TensorsThatTheIndexLeavesOutAreNotThere) {
  write_index(R"({"a":"s.safetensors"})");
  write("m/s.safetensors", file_of({"a", "b"}));
  EXPECT_EQ(HuggingFaceDirectory(path("m")).names(), std::vector<std::string>{"a"});
}

TEST_F(HuggingFaceDirectoryTest, MissingTensorIsNotFound) {
  HuggingFaceDirectory directory(golden("tiny-llama"));
  EXPECT_ERROR(
      directory.read("model.norm.bias", {64}, 0, at::empty({64})), Code::kNotFound,
      "model.norm.bias: no tensor of this name is in " + golden("tiny-llama/model.safetensors"));
  EXPECT_ERROR(directory.entry("x"), Code::kNotFound, "x: no tensor of this name");
}

TEST_F(HuggingFaceDirectoryTest, ShapeOtherThanTheModels) {
  HuggingFaceDirectory directory(golden("tiny-llama"));
  EXPECT_ERROR(directory.read("model.norm.weight", {96}, 0, at::empty({96})), Code::kCorruptData,
               "model.norm.weight: config.json says [96], " +
                   golden("tiny-llama/model.safetensors") + " has [64]");
}

TEST_F(HuggingFaceDirectoryTest, MissingDirectory) {
  refuses(Code::kNotFound, path("m") + ": there is no such model directory");
}

TEST_F(HuggingFaceDirectoryTest, FileInPlaceOfTheDirectory) {
  write("m", "");
  refuses(Code::kNotFound, "m: is a file, expected a model directory");
}

TEST_F(HuggingFaceDirectoryTest, MissingConfig) {
  write("m/model.safetensors", file_of({"a"}));
  refuses(Code::kNotFound, path("m/config.json") + ": cannot open: No such file");
}

TEST_F(HuggingFaceDirectoryTest, MissingWeights) {
  write("m/config.json", "{}");
  refuses(Code::kNotFound, "has neither model.safetensors nor model.safetensors.index.json");
}

TEST_F(HuggingFaceDirectoryTest, WeightsOnlyAsPickle) {
  write("m/config.json", "{}");
  write("m/pytorch_model.bin", "");
  refuses(Code::kNotFound, "pytorch_model.bin is not read, save the model as safetensors");
}

TEST_F(HuggingFaceDirectoryTest, TruncatedWeights) {
  write("m/config.json", "{}");
  write("m/model.safetensors", file_of({"a"}).substr(0, 50));
  refuses(Code::kCorruptData, path("m/model.safetensors") + ": says that its header has");
}

TEST_F(HuggingFaceDirectoryTest, IndexNamesAMissingFile) {
  write_index(R"({"a":"none.safetensors"})");
  refuses(Code::kNotFound, path("m/model.safetensors.index.json") +
                               ": says that a is in none.safetensors, but there is no such file");
}

TEST_F(HuggingFaceDirectoryTest, IndexNamesATensorThatIsNotInItsFile) {
  write_index(R"({"a":"s.safetensors","b":"s.safetensors"})");
  write("m/s.safetensors", file_of({"a"}));
  refuses(Code::kCorruptData, "says that b is in s.safetensors, but that file has no such tensor");
}

TEST_F(HuggingFaceDirectoryTest, IndexHasAValueThatIsNoJson) {
  const std::string index = path("m/model.safetensors.index.json");
  for (const std::string value : {"", "\"\\ud800\""}) {
    write_index("{\"a\":" + value + "}");
    refuses(Code::kCorruptData, index + ": is not valid JSON at byte ");
  }
  write_index("{\"a\":1e999}");
  refuses(Code::kCorruptData, index + ": is not valid JSON: it has a number beyond");
}

TEST_F(HuggingFaceDirectoryTest, IndexLeavesTheDirectory) {
  for (const std::string shard :
       {"../s.safetensors", "sub/../../s.safetensors", "..", "/s.safetensors", ""}) {
    write("s.safetensors", file_of({"a"}));
    write_index("{\"a\":\"" + shard + "\"}");
    refuses(Code::kCorruptData, "weight_map.a: " + shard + " is not a path inside the directory");
  }
}

TEST_F(HuggingFaceDirectoryTest, DotsThatDoNotLeaveTheDirectoryAreFine) {
  write_index(R"({"a":"./model..x"})");
  write("m/model..x", file_of({"a"}));
  EXPECT_TRUE(HuggingFaceDirectory(path("m")).contains("a"));
}

TEST_F(HuggingFaceDirectoryTest, IndexIsNotJson) {
  write("m/config.json", "{}");
  write("m/model.safetensors.index.json", "{\"weight_map\":");
  refuses(Code::kCorruptData, path("m/model.safetensors.index.json") +
                                  ": is not valid JSON: it ends too soon, after 14 bytes: the "
                                  "index is damaged");
  write("m/model.safetensors.index.json", std::string("{}\0{}", 5));
  refuses(Code::kCorruptData, ": is not JSON");
}

TEST_F(HuggingFaceDirectoryTest, IndexWithoutAWeightMap) {
  write("m/config.json", "{}");
  write("m/model.safetensors.index.json", "{}");
  refuses(Code::kCorruptData, "has no object \"weight_map\"");
  write_index("[]");
  refuses(Code::kCorruptData, "has no object \"weight_map\"");
  write("m/model.safetensors.index.json", R"([{"weight_map": 1}, {"a": "s.safetensors"}])");
  refuses(Code::kCorruptData, "is a list, expected an object");
  write_index("{}");
  refuses(Code::kCorruptData, "weight_map is empty");
  write_index(R"({"a":1})");
  refuses(Code::kCorruptData, "weight_map.a: expected a file name, found number");
}

TEST_F(HuggingFaceDirectoryTest, IndexWithATensorTwice) {
  write_index(R"({"a":"s.safetensors","a":"t.safetensors"})");
  refuses(Code::kCorruptData, "has a twice");
}

TEST_F(HuggingFaceDirectoryTest, IndexWithHostileNesting) {
  write_index(std::string(1'000'000, '['));
  refuses(Code::kCorruptData, "is nested more than 8 deep");
}

// It takes no time that anyone would notice.
TEST_F(HuggingFaceDirectoryTest, IndexWithAListOfManyObjects) {
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) {
    objects += "{},";
  }
  write("m/config.json", "{}");
  write("m/model.safetensors.index.json", "{\"metadata\": [" + objects + "{}]}");
  refuses(Code::kCorruptData, "has no object \"weight_map\"");
}

}  // namespace
}  // namespace fsdp2::ckpt
