#include "core/ckpt/torch/pth_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/ckpt/torch/pth_parameters.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

class PthFileTest : public FileTest {
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

TEST_F(PthFileTest, RoundTrip) {
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

TEST_F(PthFileTest, WriterTakesThePlannedTensorsInOrder) {
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

TEST_F(PthFileTest, UnfinishedFileDoesNotAppear) {
  {
    const PthWriter writer(path("x.pth"), {{"a", at::kFloat, {2}}});
  }
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace fsdp2::ckpt
