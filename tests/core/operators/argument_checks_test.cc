// Inputs on which LibTorch's operators end the process, and good ones beside them.
#include "core/operators/argument_checks.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/operators/run_operator.h"

namespace fsdp2::operators {
namespace {

using Values = std::vector<c10::IValue>;

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

at::Tensor numbers(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// The message with which the operator refuses its inputs; empty if it runs.
std::string refusal(const std::string& name, const std::string& overload, Values inputs) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
  try {
    run_operator(op, inputs);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  }
}

Values ctc(const at::Tensor& targets, const c10::IValue& lengths) {
  return {at::ones({5, 2, 4}), targets, std::vector<int64_t>{5, 5}, lengths, 0, 1, false};
}

TEST(ArgumentChecks, TargetsOutsideTheClassesAreNamed) {
  const std::vector<int64_t> lengths = {2, 1};
  EXPECT_EQ(refusal("aten::ctc_loss", "IntList", ctc(numbers({1, 2, 3}), lengths)), "");
  EXPECT_EQ(refusal("aten::ctc_loss", "IntList", ctc(numbers({1, 2, 4}), lengths)),
            "aten::ctc_loss: targets: expected 0 to 3, found 4");
  EXPECT_EQ(refusal("aten::ctc_loss", "IntList", ctc(numbers({-1, 2, 3}), lengths)),
            "aten::ctc_loss: targets: expected 0 to 3, found -1");
}

TEST(ArgumentChecks, TargetsBeyondTheLengthsMayBeAnything) {
  const at::Tensor padded = numbers({1, 2, 3, -100}).view({2, 2});
  EXPECT_EQ(refusal("aten::ctc_loss", "IntList", ctc(padded, std::vector<int64_t>{2, 1})), "");
  EXPECT_EQ(refusal("aten::ctc_loss", "IntList", ctc(padded, std::vector<int64_t>{2, 2})),
            "aten::ctc_loss: targets: expected 0 to 3, found -100");
}

TEST(ArgumentChecks, OffsetsOfBagsAreWithinTheIndices) {
  const auto bag = [](const at::Tensor& offsets) {
    return Values{at::ones({4, 3}), numbers({1, 1, 1}), offsets, false, 0, false,
                  at::Tensor(),     c10::IValue(false)};
  };
  EXPECT_EQ(refusal("aten::embedding_bag", "", bag(numbers({0, 2}))), "");
  EXPECT_EQ(refusal("aten::embedding_bag", "", bag(numbers({0, -5}))),
            "aten::embedding_bag: offsets: expected 0 to 3, found -5");
}

TEST(ArgumentChecks, PivotsAreRowsOfTheMatrix) {
  const auto solve = [](int pivot) {
    return Values{at::ones({3, 3}), at::full({3}, pivot, at::kInt), at::ones({3, 2}), false};
  };
  EXPECT_EQ(refusal("aten::linalg_ldl_solve", "", solve(1)), "");
  EXPECT_EQ(refusal("aten::linalg_ldl_solve", "", solve(-4)),
            "aten::linalg_ldl_solve: pivots (but for their signs): expected 1 to 3, found 4");
}

TEST(ArgumentChecks, PackedRecordsAreAllRowsOfTheData) {
  const auto lstm = [](const std::vector<int64_t>& sizes) {
    const std::vector<at::Tensor> states(2, at::ones({1, 2, 2}));
    const std::vector<at::Tensor> weights = {at::ones({8, 2}), at::ones({8, 2}), at::ones({8}),
                                             at::ones({8})};
    return Values{at::ones({3, 2}), numbers(sizes), states, weights, true, 1, 0.0, true, false};
  };
  EXPECT_EQ(refusal("aten::lstm", "data", lstm({2, 1})), "");
  const std::string begin = "aten::lstm: batch_sizes: expected ";
  EXPECT_EQ(refusal("aten::lstm", "data", lstm({2})), begin + "3 in all, found 2");
  for (const auto& [sizes, found] : std::vector<std::pair<std::vector<int64_t>, std::string>>{
           {{kLeast}, std::to_string(kLeast) + " at 0"},
           {{int64_t{1} << 40}, std::to_string(int64_t{1} << 40) + " at 0"},
           {{1, 2}, "2 at 1"}}) {
    EXPECT_EQ(refusal("aten::lstm", "data", lstm(sizes)),
              begin + "positive numbers that never rise and add up to 3, found " + found);
  }
}

TEST(ArgumentChecks, NormalizationHasAnElementAChannel) {
  const at::Tensor each = at::ones({3});
  const auto norm = [](const at::Tensor& weight, const at::Tensor& mean, bool training) {
    return Values{at::ones({2, 3}), weight, weight, mean, mean, training, 0.1, 1e-5};
  };
  EXPECT_EQ(refusal("aten::native_batch_norm", "", norm(each, each, false)), "");
  EXPECT_EQ(refusal("aten::native_batch_norm", "", norm(at::Tensor(), at::Tensor(), true)), "");
  EXPECT_EQ(refusal("aten::native_batch_norm", "", norm(at::ones({1}), each, true)),
            "aten::native_batch_norm: weight: expected an element for each of 3 channels, found 1");
  EXPECT_EQ(refusal("aten::native_batch_norm", "", norm(each, at::Tensor(), false)),
            "aten::native_batch_norm: running_mean, running_var: expected both where it is not "
            "training");
  EXPECT_EQ(refusal("aten::batch_norm_update_stats", "",
                    {at::ones({2, 3}), at::ones({1}), at::ones({1}), 0.1}),
            "aten::batch_norm_update_stats: running_mean: expected an element for each of 3 "
            "channels, found 1");
}

TEST(ArgumentChecks, QuotientsBeyondTheDtypeAreRefused) {
  const at::Tensor least = numbers({1, kLeast});
  EXPECT_EQ(refusal("aten::div", "Tensor_mode", {least, numbers({-1, 1}), "trunc"}), "");
  EXPECT_EQ(refusal("aten::div", "Tensor_mode", {least, numbers({-1, -1}), "floor"}), "");
  const std::string beyond = "-9223372036854775808 / -1 is beyond its dtype";
  EXPECT_EQ(refusal("aten::div", "Tensor_mode", {least, numbers({-1, -1}), "trunc"}),
            "aten::div: " + beyond);
  EXPECT_EQ(refusal("aten::div_", "Scalar_mode", {least, -1, "trunc"}), "aten::div_: " + beyond);
  EXPECT_EQ(refusal("aten::lcm", "", {least, numbers({7, 7})}),
            "aten::lcm: the absolute value of -9223372036854775808 is beyond its dtype");
  EXPECT_EQ(refusal("aten::lcm", "", {numbers({4}), numbers({6})}), "");
}

// The least number of one dtype is 0 in a narrower one.
TEST(ArgumentChecks, NumbersAreThoseOfTheResultsDtype) {
  const at::Tensor narrow = at::tensor(std::vector<int32_t>{0, 3}, at::kInt);
  EXPECT_EQ(refusal("aten::div", "Tensor_mode", {narrow, numbers({-1, -1}), "trunc"}), "");
  EXPECT_EQ(refusal("aten::lcm", "", {narrow, numbers({4, 6})}), "");
}

// A program's shapes are computed by tensors without values.
TEST(ArgumentChecks, TensorsWithoutValuesPass) {
  const at::Tensor meta = at::ones({2}, at::TensorOptions(at::kLong).device(at::kMeta));
  EXPECT_EQ(refusal("aten::div", "Tensor_mode", {meta, meta, "trunc"}), "");
  EXPECT_EQ(refusal("aten::lcm", "", {meta, meta}), "");
}

}  // namespace
}  // namespace fsdp2::operators
