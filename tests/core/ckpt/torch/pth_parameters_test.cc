#include "core/ckpt/torch/pth_parameters.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/ckpt/torch/pth_file.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

constexpr char kLinear[] = "tests/core/ckpt/golden/linear.pth";

class PthParametersTest : public FileTest {};

TEST_F(PthParametersTest, ReadsAStateDictOfPython) {
  PthParameters source(kLinear);
  EXPECT_EQ(source.names(), (std::vector<std::string>{"bias", "weight"}));
  at::Tensor weight = at::empty({2, 3});
  source.read("weight", {2, 3}, 0, weight);
  EXPECT_TRUE(weight.equal(at::arange(6, at::kFloat).view({2, 3})));
  at::Tensor row = at::empty({1, 3}, at::kBFloat16);
  source.read("weight", {2, 3}, 1, row);
  EXPECT_TRUE(row.to(at::kFloat).equal(at::arange(3, 6, at::kFloat).view({1, 3})));
}

TEST_F(PthParametersTest, PrefixPicksOneModelOfMany) {
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

TEST_F(PthParametersTest, TensorThatDoesNotFitTheModelIsRefused) {
  PthParameters source(kLinear);
  at::Tensor out = at::empty({2, 3});
  EXPECT_ERROR(source.read("weight", {2, 4}, 0, out), Code::kCorruptData,
               "weight: the model says [2, 4], tests/core/ckpt/golden/linear.pth has [2, 3]");
  EXPECT_ERROR(source.read("weights", {2, 3}, 0, out), Code::kNotFound, "no tensor weights");
  EXPECT_ERROR(source.read("weight", {2, 3}, 1, out), Code::kInvalidArgument, "cannot read");
}

}  // namespace
}  // namespace fsdp2::ckpt
