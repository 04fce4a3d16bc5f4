// Checklist, safetensors interchange: HFS-1 to HFS-7.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "core/ckpt/formats/listing.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/ranks/consolidate.h"
#include "core/ckpt/ranks/full_state_dict.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/ckpt/state/state_source.h"
#include "tests/core/base/file_fixture.h"
#include "tests/parity/checklist/checkpoint_layout.h"

namespace fsdp2::checklist {
namespace {

using ckpt::CheckpointFormat;
using ckpt::FileNumbers;
using ckpt::FullWriterOptions;
using ckpt::ShardedSaveOptions;
using Json = nlohmann::json;

class ChecklistHfs : public FileTest {
 protected:
  Json json_in(const std::string& name) const { return Json::parse(contents(path(name))); }

  std::set<std::string> names_in(const std::string& name) const {
    std::set<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(path(name))) {
      names.insert(file.path().filename());
    }
    return names;
  }

  // Writes two tensors as a model directory.
  void write_two(const std::string& name, const FileNumbers& numbers) const {
    FullWriterOptions options;
    options.config_json = "{}";
    options.file_numbers = numbers;
    const auto writer =
        ckpt::make_full_writer(path(name), CheckpointFormat::kHuggingFaceDirectory,
                               {{"a", at::kFloat, {4}}, {"b", at::kFloat, {10}}}, options);
    for (const ckpt::TensorSpec& spec : writer->plan()) {
      writer->append(spec.name, at::arange(spec.shape[0], at::kFloat));
    }
    writer->finish();
  }
};

ShardedSaveOptions as_shards(const std::string& path) {
  ShardedSaveOptions options{path};
  options.format = CheckpointFormat::kShardedSafetensors;
  return options;
}

at::Tensor read(const ckpt::StateSource& source, const std::string& name) {
  const ckpt::StateEntry* entry = source.find(name);
  EXPECT_NE(entry, nullptr) << name;
  at::Tensor tensor = at::empty(entry->shape, *entry->dtype);
  source.read(*entry, std::vector<int64_t>(entry->shape.size(), 0), tensor);
  return tensor;
}

at::Tensor sixteen() { return at::arange(16, at::kFloat).view({4, 4}); }

TEST_F(ChecklistHfs, HFS1_FilesAreNamedByNumberAndByShard) {
  write_two("numbered", {{"a", 1}, {"b", 2}});
  EXPECT_EQ(
      names_in("numbered"),
      (std::set<std::string>{"config.json", "model-00001-of-00002.safetensors",
                             "model-00002-of-00002.safetensors", "model.safetensors.index.json"}));
  run_ranks(1, [&](const WorldPtr& world) {
    StateDict state;
    state.add_whole({"a"}, at::ones({4}));
    state.add_whole({"b"}, at::ones({10}));
    save_state(world, state, as_shards(path("sharded")));
    ShardedSaveOptions numbered = as_shards(path("both"));
    numbered.file_numbers = {{"a", 1}, {"b", 2}};
    save_state(world, state, numbered);
  });
  EXPECT_EQ(names_in("sharded"),
            (std::set<std::string>{"shard-00001-model-00001-of-00001.safetensors"}));
  EXPECT_EQ(names_in("both"),
            (std::set<std::string>{"shard-00001-model-00001-of-00002.safetensors",
                                   "shard-00001-model-00002-of-00002.safetensors"}));
}

TEST_F(ChecklistHfs, HFS2_AFileMadeByHandIsRead) {
  const std::string header = R"({"weight":{"dtype":"F32","shape":[5,10],"data_offsets":[0,200]}})";
  const at::Tensor values = at::rand({5, 10});
  std::string bytes(8, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  }
  bytes += header;
  bytes.append(static_cast<const char*>(values.const_data_ptr()), 200);
  const std::string file = write("model.safetensors", bytes);

  const ckpt::CheckpointListing listing = ckpt::list_checkpoint(file);
  ASSERT_EQ(listing.tensors.size(), 1U);
  EXPECT_EQ(listing.tensors[0].shape, (std::vector<int64_t>{5, 10}));
  EXPECT_EQ(listing.tensors[0].dtype, at::kFloat);
  EXPECT_EQ(listing.tensors[0].chunks.size(), 1U);
  EXPECT_TRUE(read(*ckpt::open_checkpoint(file), "weight").equal(values));
}

TEST_F(ChecklistHfs, HFS3_TheIndexHasTheSizeAndAFileForEachTensor) {
  write_two("one", {{"a", 1}, {"b", 1}});
  EXPECT_EQ(json_in("one/model.safetensors.index.json"),
            Json::parse(R"({"metadata": {"total_size": 56},
                            "weight_map": {"a": "model-00001-of-00001.safetensors",
                                           "b": "model-00001-of-00001.safetensors"}})"));
  write_two("two", {{"a", 1}, {"b", 2}});
  EXPECT_EQ(json_in("two/model.safetensors.index.json"),
            Json::parse(R"({"metadata": {"total_size": 56},
                            "weight_map": {"a": "model-00001-of-00002.safetensors",
                                           "b": "model-00002-of-00002.safetensors"}})"));
  for (const char* name : {"one", "two"}) {
    EXPECT_TRUE(read(*ckpt::open_checkpoint(path(name)), "b").equal(at::arange(10, at::kFloat)));
  }
}

TEST_F(ChecklistHfs, HFS4_ASavedModuleIsReadAndForeignFilesAreLoaded) {
  run_ranks(2, [&](const WorldPtr& world) {
    const auto saved = seed(make_simple_uneven(), 1);
    const UnitPtr root = fsdp::fully_shard(saved, flat_mesh(world), policy_unset());
    for (const FileNumbers& numbers : {FileNumbers{}, FileNumbers{{"0.weight", 1},
                                                                  {"0.bias", 2},
                                                                  {"2.weight", 2},
                                                                  {"2.bias", 1},
                                                                  {"4.weight", 1},
                                                                  {"4.bias", 1},
                                                                  {"6.weight", 2},
                                                                  {"6.bias", 2}}}) {
      FullWriterOptions options;
      options.config_json = "{}";
      options.file_numbers = numbers;
      ckpt::save_full_state_dict(*root, path("model"), CheckpointFormat::kHuggingFaceDirectory,
                                 options);
      // Without destinations: all that is there, by name.
      const auto source = ckpt::open_checkpoint(path("model"));
      const auto original = nn::named_unique_parameters(*seed(make_simple_uneven(), 1));
      EXPECT_EQ(source->entries().size(), original.size());
      for (const nn::NamedParameter& parameter : original) {
        EXPECT_TRUE(read(*source, parameter.names[0]).equal(parameter.tensor));
      }
      world->control().barrier();
    }
    // A file of another writer: other metadata, another order.
    if (world->rank() == 0) {
      std::vector<ckpt::TensorSpec> plan;
      const auto values = nn::named_unique_parameters(*seed(make_simple_uneven(), 5));
      for (auto value = values.rbegin(); value != values.rend(); ++value) {
        plan.push_back({value->names[0], at::kFloat, value->tensor.sizes().vec()});
      }
      ckpt::SafetensorsWriter writer(path("other.safetensors"), plan, {{"producer", "another"}});
      for (auto value = values.rbegin(); value != values.rend(); ++value) {
        writer.append(value->names[0], value->tensor.detach());
      }
      writer.finish();
    }
    world->control().barrier();
    ckpt::load_full_state_dict(*root, path("other.safetensors"));
    for (const fsdp::ShardedParam* param : root->parameters()) {
      const auto expected = seed(make_simple_uneven(), 5);
      EXPECT_TRUE(
          param->local_values().equal(slice_of(*param, find_parameter(*expected, param->name()))))
          << param->name();
    }
  });
}

TEST_F(ChecklistHfs, HFS5_ShardedFilesAreResharded) {
  const std::vector<Placing> flat = {kFlatReplicated, kFlatSharded};
  expect_resharding(as_shards(path("flat")), sixteen(), flat, flat);
  expect_resharding(as_shards(path("two-dims")), sixteen(), placings_on_two_dims(), flat);
}

// The files are those of two ranks, one of which holds nothing of "one".
TEST_F(ChecklistHfs, HFS5_PythonsShardedFilesAreRead) {
  const auto source = ckpt::open_checkpoint("tests/core/ckpt/golden/shards");
  const at::Tensor full = at::arange(15, at::kFloat).view({5, 3});
  EXPECT_TRUE(read(*source, "rows").equal(full));
  EXPECT_TRUE(read(*source, "columns").equal(full));
  EXPECT_TRUE(read(*source, "one").equal(at::full({1}, 7.0)));
}

TEST_F(ChecklistHfs, HFS5_AShardsFileThatIsMissingIsAnError) {
  run_ranks(2, [&](const WorldPtr& world) {
    save_state(world, state_of(sixteen(), {{2}, "S"}, world->rank()), as_shards(path("run")));
  });
  std::filesystem::remove(path("run/shard-00002-model-00001-of-00001.safetensors"));
  EXPECT_ERROR(ckpt::open_checkpoint(path("run")), Code::kCorruptData, "do not hold all of t");
}

TEST_F(ChecklistHfs, HFS6_EmptyShardsAreLeftOutAndDoNotMatter) {
  expect_resharding(as_shards(path("run")), at::full({1}, 2.5), {kFlatSharded},
                    {{{2, 2}, "SS"}, kFlatReplicated});
  EXPECT_EQ(ckpt::list_checkpoint(path("run-S")).tensors[0].chunks.size(), 1U);
}

// Saves the same tensor by rows and by columns on two ranks.
void save_rows_and_columns(const std::string& path) {
  run_ranks(2, [&](const WorldPtr& world) {
    const int64_t first = world->rank() * int64_t{2};
    StateDict state;
    add_chunk(&state, "rows", sixteen(), {first, 2});
    state.add_tensor({"columns"}, {4, 4}, {0, first}, sixteen().narrow(1, first, 2));
    save_state(world, state, as_shards(path));
  });
}

TEST_F(ChecklistHfs, HFS7_ShardsAreConsolidatedIntoOneFileOrByAllRanksIntoTwo) {
  save_rows_and_columns(path("shards"));
  const std::vector<FileNumbers> targets = {{{"rows", 1}, {"columns", 1}},
                                            {{"rows", 1}, {"columns", 2}}};
  for (const FileNumbers& numbers : targets) {
    const std::string name = fmt::format("of-{}", numbers.at("columns"));
    run_ranks(2, [&](const WorldPtr& world) {
      FullWriterOptions options;
      options.config_json = "{}";
      options.file_numbers = numbers;
      ckpt::consolidate_safetensors(*world, path("shards"), path(name), options);
    });
    const Json index = json_in(name + "/model.safetensors.index.json");
    EXPECT_EQ(index.at("metadata").at("total_size"), 128);
    EXPECT_EQ(json_in(name + "/config.json").at("torch_dtype"), "float32");
    const auto source = ckpt::open_checkpoint(path(name));
    EXPECT_TRUE(read(*source, "rows").equal(sixteen()));
    EXPECT_TRUE(read(*source, "columns").equal(sixteen()));
    const ckpt::SafetensorsFile file(path(name) + "/" +
                                     index.at("weight_map").at("columns").get<std::string>());
    EXPECT_EQ(file.find("columns")->shape, (std::vector<int64_t>{4, 4}));
    EXPECT_EQ(names_in(name).size(), 2 + static_cast<size_t>(numbers.at("columns")));
  }
}

// Rank 1 waits until rank 0 has begun to read, and saves in the same place.
TEST_F(ChecklistHfs, HFS7_ShardsThatASaveReplacesMeanwhileAreNotConsolidated) {
  namespace fs = std::filesystem;
  save_rows_and_columns(path("shards"));
  save_rows_and_columns(path("later"));
  const auto has_begun = [&] {
    const auto names = names_in(".");
    return std::any_of(names.begin(), names.end(),
                       [](const std::string& name) { return name.rfind("model.tmp-", 0) == 0; });
  };
  run_ranks(2, [&](const WorldPtr& world) {
    FullWriterOptions options;
    options.config_json = "{}";
    if (world->rank() == 1) {
      while (!has_begun()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      fs::rename(path("shards"), path("old"));
      fs::rename(path("later"), path("shards"));
    }
    EXPECT_ERROR(ckpt::consolidate_safetensors(*world, path("shards"), path("model"), options),
                 world->rank() == 0 ? Code::kIo : Code::kPeerFailed,
                 "shards: was replaced or removed while it was read");
  });
  EXPECT_FALSE(fs::exists(path("model")));
  EXPECT_FALSE(has_begun());
}

}  // namespace
}  // namespace fsdp2::checklist
