// DTensors and ShardedTensors in files of torch.save, and the files that all ranks of a trainer
// have saved.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "core/ckpt/pickle/reader.h"
#include "core/ckpt/torch/pth_source.h"
#include "core/ckpt/torch/rank_files.h"
#include "core/ckpt/torch/zip_records.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

using namespace std::string_literals;  // texts with zeros in them

constexpr char kRanks[] = "tests/core/ckpt/golden/ranks";

std::string model_file(int rank) {
  return fmt::format("{}/model_world_size_2_rank_{}.pt", kRanks, rank);
}

std::string pickle_of(const std::string& path) {
  const auto file = std::make_shared<const FileBytes>(path);
  return ZipRecords(file, 0, file->size(), "x.pt").read_text("data.pkl", 1 << 20, "file");
}

std::string pickle_of_rank1() { return pickle_of(model_file(1)); }

// The values of rank 1's model after one of the bytes behind a text of its pickle has changed.
PythonValue read_changed(const std::string& text, size_t behind, char byte) {
  std::string pickle = pickle_of_rank1();
  pickle[pickle.find(text) + text.size() + behind] = byte;
  return read_pickle(pickle, PickleNames::kAnyTorchSave, "x.pt");
}

TEST(DTensor, SaysWhichPartOfATensorARankHas) {
  const TorchArchive archive(model_file(1));
  const auto& a = *find(archive.root(), "a.weight")->as<StoredTensor>();
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  ASSERT_NE(a.part, nullptr);
  EXPECT_EQ(a.part->shape, (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(a.part->offsets, (std::vector<int64_t>{3, 0}));
  const auto& b = *find(archive.root(), "b.weight")->as<StoredTensor>();
  EXPECT_EQ(b.shape, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(b.part->offsets, (std::vector<int64_t>{1, 0}));
}

std::string fsdp1_file(int rank) {
  return fmt::format("{}_fsdp1/model_world_size_2_rank_{}.pt", kRanks, rank);
}

TEST(ShardedTensor, SaysWhichPartOfATensorARankHas) {
  const TorchArchive archive(fsdp1_file(1));
  const auto& a = *find(archive.root(), "a.weight")->as<StoredTensor>();
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  ASSERT_NE(a.part, nullptr);
  EXPECT_EQ(a.part->shape, (std::vector<int64_t>{5, 3}));
  EXPECT_EQ(a.part->offsets, (std::vector<int64_t>{3, 0}));
  EXPECT_ERROR(check_is_read(*find(archive.root(), "b.weight"), "x.pt"), Code::kUnsupported,
               "a ShardedTensor with 0 shards of a rank");
}

TEST(ShardedTensor, FilesOfAllRanksHoldTheWhole) {
  const PthSource source("ranks", PthFiles::kOneOfEachRank, {fsdp1_file(0), fsdp1_file(1)});
  ASSERT_EQ(source.entries().size(), 2U);
  EXPECT_TRUE(
      read_whole(source, *source.find("a.weight")).equal(at::arange(15, at::kFloat).view({5, 3})));
  EXPECT_TRUE(read_whole(source, *source.find("b.weight"))
                  .equal(at::arange(100, 104).to(at::kFloat).view({1, 4})));
}

TEST(ShardedTensor, WhoseShardDoesNotLieInItIsRefused) {
  std::string pickle = pickle_of(fsdp1_file(1));
  const std::string text = "shard_offsets";
  // The first: of the shard. A memo of 2 bytes, an empty list with one, a mark, K 3.
  pickle[pickle.find(text) + text.size() + 7] = 4;
  EXPECT_ERROR(read_pickle(pickle, PickleNames::kAnyTorchSave, "x.pt"), Code::kCorruptData,
               "a ShardedTensor whose shard does not lie in it");
}

// Its mesh holds a tensor of its ranks, and no layout.
TEST(DTensor, OfOlderTorchIsRead) {
  std::string pickle = pickle_of_rank1();
  const auto replace = [&](const std::string& text, const std::string& by) {
    const size_t at = pickle.find(text);
    ASSERT_NE(at, std::string::npos) << text;
    pickle.replace(at, text.size(), by);
  };
  replace("X\7\0\0\0_layout"s, "X\1\0\0\0x"s);
  const size_t map = pickle.find("X\11\0\0\0_rank_map"s);
  const size_t sizes = pickle.find("K\2\x85"s, map);
  pickle.replace(sizes, 3, "K\1K\2\x86");
  pickle.replace(pickle.find("K\1\x85"s, sizes), 3, "K\2K\1\x86");
  replace("X\11\0\0\0_rank_map"s, "X\4\0\0\0mesh"s);
  const PythonValue values = read_pickle(pickle, PickleNames::kAnyTorchSave, "x.pt");
  const auto& a = *find(values, "a.weight")->as<StoredTensor>();
  EXPECT_EQ(a.part->offsets, (std::vector<int64_t>{3, 0}));
}

TEST(DTensor, WhatDoesNotFitItsMeshIsRefused) {
  constexpr char kCoordinate[] = "_coordinate_on_dim";  // then a memo of 2 bytes, K 0, K 1
  EXPECT_NO_THROW(read_changed(kCoordinate, 5, 1));
  EXPECT_ERROR(read_changed(kCoordinate, 5, 2), Code::kCorruptData, "a DTensor of rank 2 of 2");
  EXPECT_ERROR(read_changed(kCoordinate, 5, 0), Code::kCorruptData,
               "a DTensor whose part has another shape than its mesh says");
  EXPECT_ERROR(read_changed("X\3\0\0\0dim"s, 3, 2), Code::kCorruptData,
               "a DTensor cut along dim 2");
  EXPECT_ERROR(read_changed("_local_tenso", 0, 'x'), Code::kCorruptData,
               "a tensor of a class without a _local_tensor that is read");
}

TEST(RankFiles, OfAllRanksAreOneModel) {
  const auto sets = find_rank_files(kRanks);
  ASSERT_EQ(sets.size(), 3U);
  EXPECT_EQ(sets[1].stem, "model_world_size_2_");
  const PthSource model("model", PthFiles::kOneOfEachRank, sets[1].files);
  const StateEntry* a = model.find("a.weight");
  ASSERT_NE(a, nullptr);
  EXPECT_TRUE(read_whole(model, *a).equal(at::arange(15, at::kFloat).view({5, 3})));
  EXPECT_TRUE(read_whole(model, *model.find("b.weight"))
                  .equal(at::arange(100, 104).to(at::kBFloat16).view({1, 4})));
  model.verify();
  const PthSource optimizer("optim", PthFiles::kOneOfEachRank, sets[2].files);
  EXPECT_TRUE(read_whole(optimizer, *optimizer.find("state.0.exp_avg"))
                  .equal(at::arange(50, 65).to(at::kFloat).view({5, 3})));
  EXPECT_TRUE(
      read_whole(optimizer, *optimizer.find("state.0.step")).equal(at::scalar_tensor(3.0F)));
}

TEST(RankFiles, OfNewerTorchAreOneModel) {
  const auto sets = find_rank_files("tests/core/ckpt/golden/ranks_2_15");
  ASSERT_EQ(sets.size(), 1U);
  const PthSource model("model", PthFiles::kOneOfEachRank, sets[0].files);
  EXPECT_TRUE(
      read_whole(model, *model.find("a.weight")).equal(at::arange(15, at::kFloat).view({5, 3})));
}

TEST(RankFiles, OneOfThemIsNoCheckpoint) {
  EXPECT_ERROR(PthSource(model_file(0), PthFiles::kOne), Code::kInvalidArgument,
               "holds one rank's part of a.weight: name the directory with the files of all ranks");
}

using RankFilesTest = FileTest;

TEST_F(RankFilesTest, OneThatIsMissingIsNamed) {
  write("run/model_world_size_3_rank_0.pt", "");
  write("run/model_world_size_3_rank_1.pt", "");
  EXPECT_ERROR(find_rank_files(path("run")), Code::kCorruptData,
               "model_world_size_3_rank: expected the files of 3 ranks, that of rank 2 is missing");
  std::filesystem::remove(path("run/model_world_size_3_rank_0.pt"));
  EXPECT_ERROR(find_rank_files(path("run")), Code::kCorruptData, "that of rank 0 is missing");
}

TEST_F(RankFilesTest, OursAndOtherFilesAreNotAmongThem) {
  for (const char* name : {"checkpoint_rank0.pt", "x-rank-12.bin", "rank1.pth"}) {
    EXPECT_TRUE(is_rank_file(name)) << name;
  }
  for (const char* name :
       {"fsdp_sharded_cpt1_rank0.pth", "model.pt", "rank0.safetensors", "rank.pt"}) {
    EXPECT_FALSE(is_rank_file(name)) << name;
  }
}

// Ranks' own tensors of the same shape: nobody knows of what they are a part.
TEST_F(RankFilesTest, WithoutDTensorsNothingTellsTheParts) {
  const PythonValue tree = PythonDict{{{"w", describe_tensor(0, at::kFloat, {2})}}};
  const std::vector<std::string> files{
      write("model_rank0.pt", write_torch_archive(tree, {at::ones({2})})),
      write("model_rank1.pt", write_torch_archive(tree, {at::zeros({2})}))};
  EXPECT_ERROR(PthSource("model", PthFiles::kOneOfEachRank, files), Code::kUnsupported,
               "model: its files hold no DTensors or ShardedTensors, and");
}

// torch.save of an argparse.Namespace, numpy's generators, an enum as a key and a numpy number.
TEST(TrainersFile, ObjectsOfItsOwnHinderNoneOfTheRest) {
  const PthSource file("tests/core/ckpt/golden/trainer.pth", PthFiles::kOne);
  EXPECT_TRUE(read_whole(file, *file.find("model.a.weight"))
                  .equal(at::arange(15, at::kFloat).view({5, 3})));
  EXPECT_EQ(file.read_object(*file.find("step")), 3);
  EXPECT_EQ(file.read_object(*file.find("lr")), 0.25);
  EXPECT_ERROR(file.read_object(*file.find("args")), Code::kUnsupported,
               "trainer.pth: args: its pickle, byte");
  EXPECT_ERROR(file.read_object(*file.find("args")), Code::kUnsupported, "argparse.Namespace");
  EXPECT_ERROR(file.read_object(*file.find("generator.state.inc")), Code::kUnsupported, "64 bits");
  EXPECT_ERROR(file.read_object(*file.find("phases")), Code::kUnsupported, "Phase");
  file.verify();
}

}  // namespace
}  // namespace fsdp2::ckpt
