#include "core/ckpt/torch/pth_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/ckpt/torch/pth_parameters.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

constexpr char kLinear[] = "tests/core/ckpt/golden/linear.pth";

class PthStateDict : public FileTest {
 protected:
  std::string save(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
    std::vector<TensorSpec> plan;
    for (const auto& [name, tensor] : tensors) {
      plan.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
    }
    PthWriter writer(path("x.pth"), plan);
    for (const auto& [name, tensor] : tensors) {
      writer.append(name, tensor);
    }
    writer.finish();
    return path("x.pth");
  }
};

TEST_F(PthStateDict, ReadsAStateDictOfPython) {
  PthParameters source(kLinear);
  EXPECT_EQ(source.names(), (std::vector<std::string>{"bias", "weight"}));
  at::Tensor weight = at::empty({2, 3});
  source.read("weight", {2, 3}, 0, weight);
  EXPECT_TRUE(weight.equal(at::arange(6, at::kFloat).view({2, 3})));
  at::Tensor row = at::empty({1, 3}, at::kBFloat16);
  source.read("weight", {2, 3}, 1, row);
  EXPECT_TRUE(row.to(at::kFloat).equal(at::arange(3, 6, at::kFloat).view({1, 3})));
}

TEST_F(PthStateDict, RoundTrip) {
  const at::Tensor a = at::randn({5, 2});
  const at::Tensor b = at::arange(3);
  const at::Tensor scalar = at::scalar_tensor(1.5);
  PthParameters source(save({{"z.weight", a}, {"a.count", b}, {"scalar", scalar}}));
  const std::vector<PthTensor> listed = list_tensors(source.archive().root());
  ASSERT_EQ(listed.size(), 3U);
  EXPECT_EQ(listed[0].name, "z.weight");  // the order of the plan
  EXPECT_TRUE(source.archive().read(*source.find("a.count")).equal(b));
  at::Tensor rows = at::empty({3, 2});
  source.read("z.weight", {5, 2}, 2, rows);
  EXPECT_TRUE(rows.equal(a.narrow(0, 2, 3)));
  at::Tensor one = at::empty({1});
  source.read("scalar", {}, 0, one);
  EXPECT_EQ(one.item<float>(), 1.5F);
  EXPECT_FALSE(source.contains("b"));
}

TEST_F(PthStateDict, PrefixPicksOneModelOfMany) {
  const PythonValue tree =
      PythonDict{{{"model", PythonDict{{{"w", describe_tensor(0, at::kFloat, {2})}}}},
                  {"optim", PythonList{{PythonDict{{{"m", describe_tensor(1, at::kFloat, {3})}}}}}},
                  {"step", 7}}};
  PthWriter writer(path("x.pth"), tree, {{"w", at::kFloat, {2}}, {"m", at::kFloat, {3}}});
  writer.append("w", at::ones({2}));
  writer.append("m", at::zeros({3}));
  writer.finish();
  EXPECT_EQ(PthParameters(path("x.pth"), "model.").names(), std::vector<std::string>{"w"});
  const PthParameters all(path("x.pth"));
  EXPECT_EQ(all.names(), (std::vector<std::string>{"model.w", "optim.0.m"}));
  EXPECT_EQ(list_tensors(all.archive().root())[1].path,
            (std::vector<PathPart>{"optim", int64_t{0}, "m"}));
}

TEST_F(PthStateDict, WriterTakesThePlannedTensorsInOrder) {
  PthWriter writer(path("x.pth"), {{"a", at::kFloat, {2}}, {"b", at::kFloat, {2, 1}}});
  EXPECT_ERROR(writer.append("b", at::zeros({2, 1})), Code::kInvalidArgument,
               "x.pth: tensor b was appended where the plan has a");
  writer.append("a", at::zeros({2}));
  EXPECT_ERROR(writer.append("b", at::zeros({1, 2})), Code::kInvalidArgument,
               "tensor b: the plan says Float [2, 1], the tensor is Float [1, 2]");
  EXPECT_ERROR(writer.finish(), Code::kWrongState, "finished after 1 of 2 tensors; b is missing");
  EXPECT_ERROR(PthWriter(path("y.pth"), {{"a", at::kFloat, {2}}, {"a", at::kFloat, {2}}}),
               Code::kInvalidArgument, "a is planned twice");
}

TEST_F(PthStateDict, UnfinishedFileDoesNotAppear) {
  {
    const PthWriter writer(path("x.pth"), {{"a", at::kFloat, {2}}});
  }
  EXPECT_TRUE(files().empty());
}

TEST_F(PthStateDict, TensorThatDoesNotFitTheModelIsRefused) {
  PthParameters source(kLinear);
  at::Tensor out = at::empty({2, 3});
  EXPECT_ERROR(source.read("weight", {2, 4}, 0, out), Code::kCorruptData,
               "weight: the model says [2, 4], tests/core/ckpt/golden/linear.pth has [2, 3]");
  EXPECT_ERROR(source.read("weights", {2, 3}, 0, out), Code::kNotFound, "no tensor weights");
  EXPECT_ERROR(source.read("weight", {2, 3}, 1, out), Code::kInvalidArgument, "cannot read");
}

}  // namespace
}  // namespace fsdp2::ckpt
