#include "core/ckpt/formats/checkpoint_format.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/ckpt/formats/listing.h"
#include "core/ckpt/torch/archive.h"
#include "tests/core/ckpt/safetensors/safetensors_fixture.h"

namespace fsdp2::ckpt {
namespace {

constexpr char kDcp[] = "tests/core/ckpt/golden/dcp_two_ranks";
constexpr char kPth[] = "tests/core/ckpt/golden/linear.pth";

class CheckpointFormatTest : public SafetensorsFixture {
 protected:
  std::string directory() const {
    const std::string file = path("x.safetensors");
    return file.substr(0, file.rfind('/'));
  }
};

TEST_F(CheckpointFormatTest, EveryFormatIsToldByItsContent) {
  EXPECT_EQ(detect_format(kDcp), CheckpointFormat::kDcpDirectory);
  EXPECT_EQ(detect_format(kPth), CheckpointFormat::kPth);
  EXPECT_EQ(detect_format(save({{"a", at::zeros({2})}})), CheckpointFormat::kSafetensors);
  EXPECT_EQ(detect_format(directory()), CheckpointFormat::kHuggingFaceDirectory);
  std::filesystem::remove(path("x.safetensors"));
  write("fsdp_sharded_cpt5_rank0.pth", "");
  EXPECT_EQ(detect_format(directory()), CheckpointFormat::kPthPerRankDirectory);
  write("__3.metadata", "");
  EXPECT_EQ(detect_format(directory()), CheckpointFormat::kDcpPartDirectory);
}

TEST_F(CheckpointFormatTest, OtherThingsAreRefusedWithWhatWasLookedFor) {
  EXPECT_ERROR(detect_format(path("missing")), Code::kNotFound, "there is no such file");
  write("notes.txt", "x");
  EXPECT_ERROR(detect_format(directory()), Code::kUnsupported, "expected .metadata");
  EXPECT_ERROR(detect_format(path("notes.txt")), Code::kUnsupported,
               "neither a file of torch.save");
  EXPECT_ERROR(detect_format("tests/core/ckpt/golden/old_format.pth"), Code::kUnsupported,
               "format of before 1.6");
  write("__0_0.distcp", "x");
  EXPECT_ERROR(detect_format(directory()), Code::kCorruptData, "the checkpoint was not finished");
}

TEST_F(CheckpointFormatTest, ListsADcpDirectory) {
  const CheckpointListing listing = list_checkpoint(kDcp);
  EXPECT_EQ(listing.tensors.front().name, "model.a.weight");
  const ListedTensor& weight = listing.tensors.front();
  EXPECT_EQ(weight.dtype, at::kFloat);
  EXPECT_EQ(weight.bytes, 60);
  ASSERT_EQ(weight.chunks.size(), 2U);
  EXPECT_EQ(weight.chunks[1].offsets, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(weight.chunks[1].bytes, 24);
  EXPECT_EQ(weight.chunks[1].file, std::string(kDcp) + "/__1_0.distcp");
  bool has_object = false;
  for (const ListedTensor& tensor : listing.tensors) {
    has_object = has_object || (tensor.name == "seed" && !tensor.dtype && tensor.bytes > 0);
  }
  EXPECT_TRUE(has_object);
}

TEST_F(CheckpointFormatTest, ListsFilesOfOneTensorInOnePiece) {
  const CheckpointListing pth = list_checkpoint(kPth);
  ASSERT_EQ(pth.tensors.size(), 2U);
  EXPECT_EQ(pth.tensors[0].name, "weight");
  EXPECT_EQ(pth.tensors[0].chunks.at(0).sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(pth.bytes, 32);
  const CheckpointListing safetensors = list_checkpoint(save({{"a", at::zeros({2, 4})}}));
  ASSERT_EQ(safetensors.tensors.size(), 1U);
  EXPECT_EQ(safetensors.bytes, 32);
  EXPECT_EQ(list_checkpoint(directory()).tensors.size(), 1U);
}

}  // namespace
}  // namespace fsdp2::ckpt
