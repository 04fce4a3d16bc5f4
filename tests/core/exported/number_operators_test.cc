#include "core/exported/operators/number_operators.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/core/base/file_fixture.h"

namespace fsdp2::exported {
namespace {

using c10::IValue;

IValue run(const std::string& target, const std::vector<IValue>& inputs) {
  const NumberOperator* found = find_number_operator(target);
  EXPECT_NE(found, nullptr) << target;
  EXPECT_EQ(found->inputs, inputs.size()) << target;
  return found->run(inputs);
}

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

TEST(NumberOperators, DivideTowardsMinusInfinityAsPython) {
  EXPECT_EQ(run("_operator.floordiv", {7, 2}).toInt(), 3);
  EXPECT_EQ(run("_operator.floordiv", {-7, 2}).toInt(), -4);
  EXPECT_EQ(run("_operator.floordiv", {7, -2}).toInt(), -4);
  EXPECT_EQ(run("_operator.mod", {-7, 2}).toInt(), 1);
  EXPECT_EQ(run("_operator.mod", {7, -2}).toInt(), -1);
  EXPECT_EQ(run("_operator.mod", {kLeast, -1}).toInt(), 0);
  EXPECT_EQ(run("_operator.floordiv", {-7.5, 2}).toDouble(), -4.0);
  EXPECT_EQ(run("_operator.truediv", {7, 2}).toDouble(), 3.5);
}

TEST(NumberOperators, KeepWholeNumbersWholeAndTruthTrue) {
  EXPECT_TRUE(run("_operator.add", {1, true}).isInt());
  EXPECT_TRUE(run("_operator.add", {1, 0.5}).isDouble());
  EXPECT_TRUE(run("_operator.eq", {2, 2.0}).toBool());
  EXPECT_TRUE(run("_operator.and_", {true, true}).toBool());
  EXPECT_EQ(run("_operator.and_", {6, 3}).toInt(), 2);
  EXPECT_FALSE(run("torch.sym_not", {true}).toBool());
  EXPECT_EQ(run("torch.sym_ite", {false, 1, 2}).toInt(), 2);
  EXPECT_EQ(run("torch.sym_max", {3, 5}).toInt(), 5);
  EXPECT_EQ(run("math.trunc", {-2.5}).toInt(), -2);
  EXPECT_EQ(run("_operator.pow", {3, 4}).toInt(), 81);
}

TEST(NumberOperators, RefuseWhatDoesNotFit) {
  EXPECT_ERROR(run("_operator.add", {kMost, 1}), Code::kInvalidArgument, "");
  EXPECT_ERROR(run("_operator.mul", {kMost, 2}), Code::kInvalidArgument, "");
  EXPECT_ERROR(run("_operator.neg", {kLeast}), Code::kInvalidArgument, "");
  EXPECT_ERROR(run("_operator.floordiv", {kLeast, -1}), Code::kInvalidArgument, "");
  EXPECT_ERROR(run("_operator.floordiv", {1, 0}), Code::kInvalidArgument, "");
  EXPECT_ERROR(run("_operator.mod", {1, 0}), Code::kInvalidArgument, "");
  EXPECT_ERROR(run("_operator.truediv", {1, 0}), Code::kInvalidArgument, "");
  EXPECT_ERROR(run("_operator.pow", {2, 64}), Code::kInvalidArgument, "");
  EXPECT_ERROR(run("_operator.lshift", {1, 63}), Code::kInvalidArgument, "");
  EXPECT_ERROR(run("_operator.rshift", {1, -1}), Code::kInvalidArgument, "");
  EXPECT_ERROR(run("torch.sym_int", {1e300}), Code::kInvalidArgument, "");
  EXPECT_EQ(find_number_operator("_operator.call"), nullptr);
}

}  // namespace
}  // namespace fsdp2::exported
