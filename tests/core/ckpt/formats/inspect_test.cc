// What a checkpoint is said to hold, also where some of it is not read.
#include "core/ckpt/formats/inspect.h"
#include "core/ckpt/store/find_checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/ckpt/formats/convert.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/ckpt/torch/pth_file.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/ckpt/dcp/dcp_fixture.h"

namespace fsdp2::ckpt {
namespace {

using Json = nlohmann::json;

class Inspect : public FileTest {
 protected:
  static std::map<std::string, Json> by_name(const Json& list) {
    std::map<std::string, Json> named;
    for (const Json& entry : list) {
      named.emplace(entry.at("name").get<std::string>(), entry);
    }
    return named;
  }

  void write_safetensors(const std::string& name) const {
    SafetensorsWriter writer(path(name), {{"w", at::kFloat, {3}}});
    writer.append("w", at::ones({3}));
    writer.finish();
  }
};

TEST_F(Inspect, ObjectThatIsNotReadIsListedWithItsError) {
  DcpBuilder builder(path("run"));
  builder.add_tensor({"model", "w"}, at::ones({2}));
  builder.add_object({"optim", "param_groups", int64_t{0}, "lr"}, PythonValue(0.5));
  builder.add_pickle({"rng_state", "numpy"}, kRefusedPickle);
  builder.write();
  const Json listed = Json::parse(inspect_checkpoint(path("run")));
  const auto objects = by_name(listed.at("objects"));
  ASSERT_EQ(objects.size(), 2U);
  EXPECT_EQ(objects.at("optim.param_groups.0.lr").at("value"), "0.5");
  const Json& refused = objects.at("rng_state.numpy");
  EXPECT_FALSE(refused.contains("value"));
  EXPECT_NE(refused.at("error").get<std::string>().find("numpy"), std::string::npos);
  EXPECT_NO_THROW(verify_checkpoint(path("run")));
}

// Few programs have use for the dtype, but it is one of PyTorch's.
TEST_F(Inspect, TensorOfComplex32KeepsNobodyFromTheOthers) {
  const at::Tensor halves = at::ones({2}, at::kComplexFloat).to(at::kComplexHalf);
  DcpBuilder builder(path("run"));
  builder.add_tensor({"model", "rotation"}, halves);
  builder.add_tensor({"model", "w"}, at::ones({2}));
  builder.write();
  const auto tensors = by_name(Json::parse(inspect_checkpoint(path("run"))).at("tensors"));
  EXPECT_EQ(tensors.at("model.rotation").at("dtype"), "ComplexHalf");
  EXPECT_NO_THROW(verify_checkpoint(path("run")));
  const auto source = open_checkpoint(path("run"));
  EXPECT_TRUE(read_whole(*source, *source->find("model.w")).equal(at::ones({2})));
  EXPECT_TRUE(at::view_as_real(read_whole(*source, *source->find("model.rotation")))
                  .equal(at::view_as_real(halves)));
}

TEST_F(Inspect, NumbersThatAreNotFiniteAreSaidAsPythonSaysThem) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  DcpBuilder builder(path("run"));
  builder.add_tensor({"model", "w"}, at::ones({2}));
  builder.add_object({"best_loss"}, PythonValue(kInfinity));
  builder.add_object({"losses"}, PythonTuple{{std::nan(""), -kInfinity, 1.0}});
  builder.write();
  const auto objects = by_name(Json::parse(inspect_checkpoint(path("run"))).at("objects"));
  EXPECT_EQ(objects.at("best_loss").at("value"), "inf");
  EXPECT_EQ(objects.at("losses").at("value"), "(nan, -inf, 1.0)");
}

TEST_F(Inspect, ObjectThatIsNotReadIsLeftOutOfAConversion) {
  DcpBuilder builder(path("run"));
  builder.add_tensor({"model", "w"}, at::ones({2}));
  builder.add_pickle({"rng_state", "numpy"}, kRefusedPickle);
  builder.write();
  const ConvertResult result = convert_checkpoint(path("run"), path("copy"), {});
  EXPECT_EQ(result.tensors, 1);
  EXPECT_EQ(result.left_out, 1);
  EXPECT_TRUE(Json::parse(inspect_checkpoint(path("copy"))).at("objects").empty());
}

TEST_F(Inspect, TellsWhatEachPartIsComparedWith) {
  DcpBuilder builder(path("run"));
  builder.add_tensor({"with"}, at::ones({2}));
  builder.add_tensor({"without"}, at::ones({2}), 1, /*with_checksums=*/false);
  builder.write();
  const auto tensors = by_name(Json::parse(inspect_checkpoint(path("run"))).at("tensors"));
  const std::string checksum = tensors.at("with").at("chunks")[0].at("checksum");
  EXPECT_EQ(checksum.substr(0, 6), "crc32:");
  EXPECT_TRUE(tensors.at("without").at("chunks")[0].at("checksum").is_null());
}

TEST_F(Inspect, TensorsInPthAndSafetensorsFilesHaveChecksums) {
  PthWriter pth(path("x.pth"), {{"w", at::kFloat, {3}}});
  pth.append("w", at::ones({3}));
  pth.finish();
  write_safetensors("x.safetensors");
  for (const char* name : {"x.pth", "x.safetensors"}) {
    const Json listed = Json::parse(inspect_checkpoint(path(name)));
    EXPECT_TRUE(listed.at("tensors")[0].at("chunks")[0].at("checksum").is_string()) << name;
  }
}

TEST_F(Inspect, ObjectsInAPthFileAreListed) {
  const PythonValue tree = PythonDict{
      {{"optim", PythonDict{{{"param_groups", PythonList{{PythonDict{{{"lr", 0.25}}}}}}}}}}};
  write("x.pth", write_torch_archive(tree, {}));
  const auto objects = by_name(Json::parse(inspect_checkpoint(path("x.pth"))).at("objects"));
  EXPECT_EQ(objects.at("optim.param_groups.0.lr").at("value"), "0.25");
}

TEST_F(Inspect, TellsTheStepAndTheRanks) {
  DcpBuilder builder(path("python"));
  builder.spread(3);
  for (const char* name : {"a", "b", "c"}) {
    builder.add_tensor({"model", name}, at::ones({2}));
  }
  builder.write();
  Json listed = Json::parse(inspect_checkpoint(path("python")));
  EXPECT_TRUE(listed.at("step").is_null());
  EXPECT_EQ(listed.at("world_size"), 3);
  builder = DcpBuilder(path("ours"));
  builder.add_object({"step"}, PythonValue(100));
  builder.add_object({"fsdp2", "world_size"}, PythonValue(8));
  builder.write();
  listed = Json::parse(inspect_checkpoint(path("ours")));
  EXPECT_EQ(listed.at("step"), 100);
  EXPECT_EQ(listed.at("world_size"), 8);
  ConvertOptions options;
  options.format = CheckpointFormat::kPthPerRankDirectory;
  options.ranks = 2;
  options.step = 7;
  convert_checkpoint(path("python"), path("ranks"), options);
  listed = Json::parse(inspect_checkpoint(path("ranks")));
  EXPECT_EQ(listed.at("step"), 7);
  EXPECT_EQ(listed.at("world_size"), 2);
  const std::string of_rank1 = path("ranks/fsdp_sharded_cpt7_rank1.pth");
  for (const char* other : {"cpt5_rank3",     // of an older step by more ranks
                            "cpt9_rank1"}) {  // of a step that is not complete
    std::filesystem::copy_file(of_rank1, path("ranks/fsdp_sharded_") + other + ".pth");
  }
  listed = Json::parse(inspect_checkpoint(path("ranks")));
  EXPECT_EQ(listed.at("step"), 7);
  EXPECT_EQ(listed.at("world_size"), 2);
  write_safetensors("x.safetensors");
  EXPECT_TRUE(Json::parse(inspect_checkpoint(path("x.safetensors"))).at("world_size").is_null());
}

TEST_F(Inspect, AllOfARunIsPreferredToTheModelBesideIt) {
  write("step/config.json", "{}");
  write_safetensors("step/model.safetensors");
  DcpBuilder builder(path("step/dcp"));
  builder.add_tensor({"w"}, at::ones({3}));
  builder.add_object({"optimizer", "param_groups", int64_t{0}, "lr"}, PythonValue(0.5));
  builder.write();
  EXPECT_EQ(find_checkpoint(path("step")), path("step/dcp"));
}

}  // namespace
}  // namespace fsdp2::ckpt
