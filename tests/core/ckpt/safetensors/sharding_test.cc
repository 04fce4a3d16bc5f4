// Directories of sharded safetensors files: what is refused when they are written and read.
#include "core/ckpt/safetensors/sharding.h"

#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "tests/core/ckpt/ranks/checkpoint_fixture.h"

namespace fsdp2::ckpt {
namespace {

constexpr char kInfo[] = "DCP_SHARDING_INFO";

class SafetensorsSharding : public FileTest {
 protected:
  // Writes the file of a rank with two rows of a tensor "t", and says `info` of it.
  void write_rows(int rank, const std::string& info, at::ScalarType dtype = at::kFloat) const {
    std::filesystem::create_directories(path("run"));
    SafetensorsWriter writer(path("run/" + shard_file_name(rank, 1, 1)), {{"t", dtype, {2, 3}}},
                             {{kInfo, info}});
    writer.append("t", at::ones({2, 3}, dtype));
    writer.finish();
  }
  void expect_refused(const std::string& words) const {
    EXPECT_ERROR(open_checkpoint(path("run")), Code::kCorruptData, words);
  }
};

TEST_F(SafetensorsSharding, WhatIsSaidOfATensorComesBack) {
  const SafetensorsShards shards = {{"a.b", {{2, 0}, std::vector<int64_t>{4, 3}}},
                                    {"c", {{}, std::nullopt}}};
  const SafetensorsShards read = read_shards(shard_metadata(shards), "file");
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read.at("a.b").offsets, shards.at("a.b").offsets);
  EXPECT_EQ(read.at("a.b").shape, shards.at("a.b").shape);
  EXPECT_EQ(read.at("c").shape, std::nullopt);
}

TEST_F(SafetensorsSharding, TextsThatAreNoneAreRefused) {
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"{", "not a JSON object"},
      {"[]", "not a JSON object"},
      {R"({"t": 1})", "has no saved_offsets"},
      {R"({"t": {}})", "has no saved_offsets"},
      {R"({"t": {"saved_offsets": [-1, 0]}})", "has no saved_offsets"},
      {R"({"t": {"saved_offsets": [0.5, 0]}})", "has no saved_offsets"},
      {R"({"t": {"saved_offsets": [18446744073709551615, 0]}})", "has no saved_offsets"},
      {R"({"t": {"saved_offsets": [0, 0], "shape": "all"}})", "shape that is none"},
      {R"({"t": {"saved_offsets": [0]}})", "does not lie where"},
      {R"({"t": {"saved_offsets": [9223372036854775807, 0]}})", "does not lie where"},
      {R"({"t": {"saved_offsets": [1, 0], "shape": [2, 3]}})", "outside its shape"},
      {R"({"t": {"saved_offsets": [2, 0]}})", "do not hold all of t"},
  };
  for (const auto& [text, words] : texts) {
    SCOPED_TRACE(text);
    write_rows(0, text);
    expect_refused(words);
  }
}

TEST_F(SafetensorsSharding, FilesThatContradictEachOtherAreRefused) {
  write_rows(0, R"({"t": {"saved_offsets": [0, 0], "shape": [4, 3]}})");
  write_rows(1, R"({"t": {"saved_offsets": [2, 0], "shape": [5, 3]}})");
  expect_refused("another dtype or shape");
  write_rows(1, R"({"t": {"saved_offsets": [2, 0], "shape": [4, 3]}})", at::kInt);
  expect_refused("another dtype or shape");
  write_rows(1, R"({"t": {"saved_offsets": [1, 0], "shape": [4, 3]}})");
  expect_refused("chunks that overlap");
  write_rows(1, R"({"t": {"saved_offsets": [2, 0], "shape": [4, 3]}})");
  EXPECT_TRUE(read_whole(*open_checkpoint(path("run")), "t").equal(at::ones({4, 3})));
}

TEST_F(SafetensorsSharding, StatesThatTheFormatCannotHoldAreRefusedOnAllRanks) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    ShardedSaver saver(Mesh::for_fsdp(world, 0));
    ShardedSaveOptions options{path("saved")};
    options.format = CheckpointFormat::kShardedSafetensors;
    StateDict state = example_state(world->rank(), 2, 1);
    EXPECT_ERROR(saver.save(state, options), Code::kUnsupported, "hold tensors only");
    state.objects.clear();
    options.file_numbers = {{"model.b", 1}};
    EXPECT_ERROR(saver.save(state, options), Code::kInvalidArgument, "has no file number");
    options.file_numbers.clear();
    options.keep_last = 1;
    EXPECT_ERROR(saver.save(state, options), Code::kUnsupported, "keep_last");
    options.keep_last = 0;
    StateDict twice = state;
    twice.tensors.insert(twice.tensors.begin(), twice.tensors.front());
    EXPECT_ERROR(saver.save(twice, options), Code::kUnsupported, "one chunk");
    saver.save(state, options);
  });
  EXPECT_EQ(open_checkpoint(path("saved"))->entries().size(), 3U);
}

}  // namespace
}  // namespace fsdp2::ckpt
