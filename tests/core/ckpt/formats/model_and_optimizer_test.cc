// A model and its optimizer that a trainer has saved side by side.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/formats/convert.h"
#include "core/ckpt/formats/inspect.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/formats/replaced_file.h"
#include "core/ckpt/torch/archive.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/ckpt/dcp/dcp_fixture.h"

namespace fsdp2::ckpt {
namespace {

using Json = nlohmann::json;

constexpr char kRanks[] = "tests/core/ckpt/golden/ranks";

class ModelAndOptimizer : public FileTest {
 protected:
  static at::Tensor read(const StateSource& source, const std::string& name) {
    const StateEntry* entry = source.find(name);
    return entry == nullptr ? at::Tensor() : read_whole(source, *entry);
  }

  // What accelerate makes of FULL_STATE_DICT.
  void write_full() const {
    const StoredTensor two = describe_tensor(0, at::kFloat, {2});
    const PythonValue state{PythonDict{{{"w", PythonDict{{{"exp_avg", two}}}}}}};
    const PythonValue groups{
        PythonList{{PythonDict{{{"lr", 0.5}, {"params", PythonList{{"w"}}}}}}}};
    write("run/pytorch_model_fsdp.bin",
          write_torch_archive(PythonDict{{{"w", two}}}, {at::ones({2})}));
    write("run/optimizer.bin",
          write_torch_archive(PythonDict{{{"state", state}, {"param_groups", groups}}},
                              {at::zeros({2})}));
    write("run/scheduler.bin", "not read");
    write("run/model.safetensors", "not read either");
  }
};

TEST_F(ModelAndOptimizer, DirectoriesOfDcpAreOneCheckpoint) {
  std::filesystem::create_directories(path("run"));
  DcpBuilder model(path("run/pytorch_model_fsdp_0"));
  model.add_tensor({"model", "w"}, at::ones({2}));
  model.write();
  DcpBuilder optimizer(path("run/optimizer_0"));
  optimizer.add_tensor({"optimizer", "state", "w", "exp_avg"}, at::zeros({2}));
  optimizer.add_object({"optimizer", "param_groups", int64_t{0}, "lr"}, PythonValue(0.5));
  optimizer.write();
  EXPECT_EQ(detect_format(path("run")), CheckpointFormat::kModelAndOptimizer);
  const auto source = open_checkpoint(path("run"));
  EXPECT_TRUE(read(*source, "model.w").equal(at::ones({2})));
  EXPECT_TRUE(read(*source, "optimizer.state.w.exp_avg").equal(at::zeros({2})));
  EXPECT_EQ(source->read_object(*source->find("optimizer.param_groups.0.lr")), 0.5);
  EXPECT_NO_THROW(verify_checkpoint(path("run")));
  const Json listed = Json::parse(inspect_checkpoint(path("run")));
  EXPECT_EQ(listed.at("format"), "a model and its optimizer side by side");
  EXPECT_EQ(listed.at("tensors").size(), 2U);
}

TEST_F(ModelAndOptimizer, FullStateDictsAreOneCheckpoint) {
  write_full();
  const auto source = open_checkpoint(path("run"));
  EXPECT_EQ(source->entries().size(), 4U);
  EXPECT_TRUE(read(*source, "model.w").equal(at::ones({2})));
  EXPECT_TRUE(read(*source, "optim.state.w.exp_avg").equal(at::zeros({2})));
  const ConvertResult result = convert_checkpoint(path("run"), path("dcp"), {});
  EXPECT_EQ(result.tensors, 2);
  EXPECT_TRUE(read(*open_checkpoint(path("dcp")), "model.w").equal(at::ones({2})));
}

// What transformers' Trainer makes where nothing is sharded.
TEST_F(ModelAndOptimizer, AModelDirectoryAndItsOptimizerAreOneCheckpoint) {
  DcpBuilder model(path("model"));
  model.add_tensor({"model", "w"}, at::ones({2}));
  model.write();
  write("config.json", "{}");
  ConvertOptions options;
  options.format = CheckpointFormat::kHuggingFaceDirectory;
  options.config_path = path("config.json");
  convert_checkpoint(path("model"), path("run"), options);
  EXPECT_EQ(detect_format(path("run")), CheckpointFormat::kHuggingFaceDirectory);
  const PythonValue state{
      PythonDict{{{int64_t{0}, PythonDict{{{"exp_avg", describe_tensor(0, at::kFloat, {2})}}}}}}};
  write("run/optimizer.pt", write_torch_archive(PythonDict{{{"state", state}}}, {at::zeros({2})}));
  write("run/rng_state_0.pth", "not read");
  EXPECT_EQ(detect_format(path("run")), CheckpointFormat::kModelAndOptimizer);
  const auto source = open_checkpoint(path("run"));
  EXPECT_TRUE(read(*source, "model.w").equal(at::ones({2})));
  EXPECT_TRUE(read(*source, "optim.state.0.exp_avg").equal(at::zeros({2})));
  EXPECT_EQ(Json::parse(inspect_checkpoint(path("run"))).at("tensors").size(), 2U);
  EXPECT_ERROR(check_may_replace_file(path("run/optimizer.pt")), Code::kIo, "is a part of");
  // With the config.json that is there.
  options.config_path.clear();
  convert_checkpoint(path("run"), path("again"), options);
  EXPECT_TRUE(read(*open_checkpoint(path("again")), "w").equal(at::ones({2})));
}

TEST_F(ModelAndOptimizer, FilesOfRanksAreOneCheckpoint) {
  const auto source = open_checkpoint(kRanks);
  EXPECT_TRUE(read(*source, "model.a.weight").equal(at::arange(15, at::kFloat).view({5, 3})));
  EXPECT_TRUE(
      read(*source, "optim.state.0.exp_avg").equal(at::arange(50, 65).to(at::kFloat).view({5, 3})));
  EXPECT_EQ(source->read_object(*source->find("optim.param_groups.0.lr")), 0.25);
  const Json listed = Json::parse(inspect_checkpoint(kRanks));
  EXPECT_EQ(listed.at("world_size"), 2);
  const Json& a = listed.at("tensors").at(0);
  EXPECT_EQ(a.at("name"), "model.a.weight");
  EXPECT_EQ(a.at("shape"), (Json{5, 3}));
  EXPECT_EQ(a.at("bytes"), 60);
  EXPECT_EQ(a.at("chunks").at(1).at("offsets"), (Json{3, 0}));
  EXPECT_EQ(a.at("chunks").at(1).at("file"), "model_world_size_2_rank_1.pt");
  EXPECT_FALSE(a.at("chunks").at(1).at("checksum").is_null());
}

TEST_F(ModelAndOptimizer, FilesOfOneKindAreAllOfARun) {
  for (const char* rank : {"0", "1"}) {
    std::filesystem::create_directories(path("run"));
    std::filesystem::copy(std::string(kRanks) + "/model_world_size_2_rank_" + rank + ".pt",
                          path("run/checkpoint_rank" + std::string(rank) + ".pt"));
  }
  EXPECT_TRUE(read(*open_checkpoint(path("run")), "a.weight")
                  .equal(at::arange(15, at::kFloat).view({5, 3})));
}

TEST_F(ModelAndOptimizer, SeveralModelsAreRefused) {
  for (const char* name : {"model_rank0.pt", "model_world_size_1_rank_0.pt"}) {
    write(std::string("run/") + name, "");
  }
  EXPECT_ERROR(open_checkpoint(path("run")), Code::kInvalidArgument,
               "expected one model, found model_rank* and model_world_size_1_rank*");
}

TEST_F(ModelAndOptimizer, ALinkToNoModelIsNoCheckpoint) {
  std::filesystem::create_directories(path("run"));
  std::filesystem::create_symlink("gone", path("run/pytorch_model_fsdp.bin"));
  EXPECT_ERROR(open_checkpoint(path("run")), Code::kNotFound, "leads to no model");
}

TEST_F(ModelAndOptimizer, IsBrokenByNoOtherFileInPlaceOfOneOfItsOwn) {
  write_full();
  EXPECT_ERROR(check_may_replace_file(path("run/optimizer.bin")), Code::kIo, "is a part of");
  EXPECT_ERROR(check_may_replace_file(path("run/scheduler.bin")), Code::kIo, "would be lost");
  check_may_replace_file(path("run/new.bin"));
}

}  // namespace
}  // namespace fsdp2::ckpt
