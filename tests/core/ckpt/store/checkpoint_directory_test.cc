// Directories of checkpoints: whole or not at all, the newest, the last few.
#include "core/ckpt/store/checkpoint_directory.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/bytes/manifest.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

class CheckpointDirectory : public FileTest {
 protected:
  // A directory that counts as a complete checkpoint.
  void make(const std::string& name) {
    write(name + "/.metadata", "m");
    write(name + "/__0_0.distcp", "");
  }

  bool has(const std::string& name) { return std::filesystem::exists(path(name)); }
};

TEST_F(CheckpointDirectory, IsFoundWhereAnInterruptedReplacementLeftIt) {
  make("run.old-12-34");
  EXPECT_EQ(resolve_checkpoint(path("run")), path("run.old-12-34"));
  make("run");
  EXPECT_EQ(resolve_checkpoint(path("run")), path("run"));
  make("step-00000007.old-1-2");
  EXPECT_EQ(find_latest_checkpoint(path("")), path("step-00000007.old-1-2"));
}

TEST_F(CheckpointDirectory, OfAnyFormatIsFoundWhereAnInterruptedReplacementLeftIt) {
  write("model.old-1-2/model.safetensors", "");
  EXPECT_EQ(resolve_checkpoint(path("model")), path("model.old-1-2"));
}

TEST_F(CheckpointDirectory, LatestIsTheCompleteOneWithTheHighestStep) {
  make("step-00000002");
  make("step-00000010");
  make("step-00000011.tmp-1-2");  // being written
  write("step-00000012/mark", "without .metadata");
  make("step-x");
  EXPECT_EQ(find_latest_checkpoint(path("")), path("step-00000010"));
}

TEST_F(CheckpointDirectory, BeforeAnotherIsTheCompleteOneWithTheNextLowerStep) {
  make("step-00000002");
  make("step-00000010");
  write("step-00000012/mark", "without .metadata");
  make("step-00000020");
  EXPECT_EQ(find_checkpoint_before(path("step-00000020/")), path("step-00000010"));
  EXPECT_EQ(find_checkpoint_before(path("step-00000002")), std::nullopt);
  EXPECT_EQ(find_checkpoint_before(path("run")), std::nullopt);
}

TEST_F(CheckpointDirectory, WithAFileOfAnotherSizeThanTheManifestSaysIsIncomplete) {
  make("step-00000001");
  Manifest manifest;
  manifest.files["__0_0.distcp"] = {4, std::nullopt};
  write("step-00000001/fsdp2_manifest", encode_manifest(manifest));
  EXPECT_FALSE(is_complete_checkpoint(path("step-00000001")));
  write("step-00000001/__0_0.distcp", "1234");
  EXPECT_TRUE(is_complete_checkpoint(path("step-00000001")));
}

TEST_F(CheckpointDirectory, KeepLastRemovesTheOldestCompleteOnes) {
  for (const char* name : {"step-00000001", "step-00000002", "step-00000003"}) {
    make(name);
  }
  write("step-00000000/mark", "incomplete, and not ours to judge");
  keep_last_checkpoints(path("step-00000003"), 2);
  EXPECT_FALSE(has("step-00000001"));
  EXPECT_TRUE(has("step-00000002"));
  EXPECT_TRUE(has("step-00000003"));
  EXPECT_TRUE(has("step-00000000"));
}

TEST_F(CheckpointDirectory, KeepLastLeavesTheLaterStepsOfARunThatWasGivenUpAlone) {
  for (const int step : {90, 100, 110, 210, 220}) {
    make(step_directory_name(step));
  }
  keep_last_checkpoints(path("step-00000110"), 2);
  EXPECT_FALSE(has("step-00000090"));
  for (const int step : {100, 110, 210, 220}) {
    EXPECT_TRUE(has(step_directory_name(step))) << step;
  }
  EXPECT_EQ(find_latest_checkpoint(path("")), path("step-00000220"));
}

TEST_F(CheckpointDirectory, KeepLastNeverRemovesTheOneJustSaved) {
  make("step-1");
  make("step-00000001");
  keep_last_checkpoints(path("step-00000001"), 1);
  EXPECT_TRUE(has("step-00000001"));
}

TEST_F(CheckpointDirectory, OfAMissingParentIsNotFound) {
  EXPECT_EQ(error_of([&] { find_latest_checkpoint(path("nowhere")); }).code(), Code::kNotFound);
}

TEST(StepDirectoryName, SortsAsItsNumberAndIsReadBack) {
  EXPECT_EQ(step_directory_name(100), "step-00000100");
  EXPECT_EQ(step_of_directory_name("step-00000100"), 100);
  EXPECT_EQ(step_of_directory_name("step-"), std::nullopt);
  EXPECT_EQ(step_of_directory_name("step-1.tmp-2"), std::nullopt);
}

class ManifestFileTest : public FileTest {
 protected:
  static Manifest example() {
    Manifest manifest;
    manifest.files[".metadata"] = {7, 0x1234};
    manifest.files["__0_0.distcp"] = {20, std::nullopt};
    manifest.items.push_back({"__0_0.distcp", 5, 15, "b", {2}});
    manifest.items.push_back({"__0_0.distcp", 0, 5, "a", {1}});
    return manifest;
  }
};

TEST_F(ManifestFileTest, IsReadBackAndFindsItemsByPlace) {
  write("fsdp2_manifest", encode_manifest(example()));
  const auto manifest = read_manifest(path(""));
  ASSERT_TRUE(manifest.has_value());
  EXPECT_EQ(manifest->files.at(".metadata").checksum, 0x1234u);
  ASSERT_NE(manifest->find("__0_0.distcp", 5), nullptr);
  EXPECT_EQ(manifest->find("__0_0.distcp", 5)->name, "b");
  EXPECT_EQ(manifest->find("__0_0.distcp", 6), nullptr);
}

TEST_F(ManifestFileTest, WithAnyByteChangedOrMissingIsRefused) {
  const std::string text = encode_manifest(example());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    write("fsdp2_manifest", changed);
    EXPECT_EQ(error_of([&] { read_manifest(path("")); }).code(), Code::kCorruptData) << i;
    write("fsdp2_manifest", text.substr(0, i));
    EXPECT_EQ(error_of([&] { read_manifest(path("")); }).code(), Code::kCorruptData) << i;
  }
}

TEST_F(ManifestFileTest, WithSizesThatAreNoWholeNumbersIsRefused) {
  for (const std::string size : {"1e79", "1.5", "-1", "true", "18446744073709551615"}) {
    const std::string body =
        R"({"block_bytes":1048576,"files":{},"items":[["f",0,)" + size + R"(,"w",""]]})";
    write("fsdp2_manifest",
          "fsdp2-manifest 1 " + checksum_text(checksum(body.data(), body.size())) + "\n" + body);
    EXPECT_ERROR(read_manifest(path("")), Code::kCorruptData,
                 "an item's size is no whole number below 2^63");
  }
}

TEST_F(ManifestFileTest, OfALaterVersionIsNotCalledDamaged) {
  const std::string body = "[\"something new\"]\n";
  const std::string text =
      "fsdp2-manifest 2 " + checksum_text(checksum(body.data(), body.size())) + "\n" + body;
  write("step-00000002/fsdp2_manifest", text);
  write("step-00000002/.metadata", "x");
  EXPECT_ERROR(read_manifest(path("step-00000002")), Code::kUnsupported,
               "fsdp2_manifest: has version 2, this library reads version 1: use a newer libfsdp2");
  // It counts: an older checkpoint is not gone on from in its place.
  EXPECT_EQ(find_latest_checkpoint(path("")), path("step-00000002"));
  write("step-00000002/fsdp2_manifest", text + "more");
  EXPECT_ERROR(read_manifest(path("step-00000002")), Code::kCorruptData, "is damaged");
}

TEST_F(ManifestFileTest, MayBeAbsent) { EXPECT_FALSE(read_manifest(path("")).has_value()); }

}  // namespace
}  // namespace fsdp2::ckpt
