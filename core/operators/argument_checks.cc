#include "core/operators/argument_checks.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "core/base/error.h"

namespace fsdp2::operators {

namespace {

// The inputs of one call, by the names in the operator's schema.
class Inputs {
 public:
  Inputs(const c10::FunctionSchema& schema, const torch::jit::Stack& stack)
      : schema_(schema), values_(torch::jit::last(stack, schema.arguments().size())) {}

  const std::string& operator_name() const { return schema_.name(); }
  at::ArrayRef<c10::IValue> values() const { return values_; }
  // None if the operator has no such argument.
  c10::IValue value(const char* name) const {
    const auto index = schema_.argumentIndexWithName(name);
    return index ? values_[static_cast<size_t>(*index)] : c10::IValue();
  }
  // Undefined if it is None.
  at::Tensor tensor(const char* name) const {
    const c10::IValue found = value(name);
    return found.isTensor() ? found.toTensor() : at::Tensor();
  }

 private:
  const c10::FunctionSchema& schema_;
  at::ArrayRef<c10::IValue> values_;
};

bool has_values(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == c10::kStrided &&
         tensor.numel() > 0;
}

bool is_integers(const at::Tensor& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
}

void check_within(const Inputs& inputs, const char* name, const at::Tensor& tensor, int64_t least,
                  int64_t most) {
  if (!has_values(tensor) || !is_integers(tensor)) {
    return;
  }
  const auto [low, high] = at::aminmax(tensor);
  for (const int64_t value : {low.item<int64_t>(), high.item<int64_t>()}) {
    FSDP2_CHECK(value >= least && value <= most, Code::kInvalidArgument,
                "{}: {}: expected {} to {}, found {}", inputs.operator_name(), name, least, most,
                value);
  }
}

// linalg_eig checks its argument; this one hands it to LAPACK, which MKL's answers with a bad
// access.
void check_finite(const Inputs& inputs) {
  for (const c10::IValue& value : inputs.values()) {
    FSDP2_CHECK(!value.isTensor() || at::isfinite(value.toTensor()).all().item<bool>(),
                Code::kInvalidArgument, "{}: expected finite values, found an infinity or a NaN",
                inputs.operator_name());
  }
}

// Those that are read: padded targets, [records, longest], only within their lengths.
at::Tensor read_targets(const Inputs& inputs, const at::Tensor& targets) {
  if (targets.dim() != 2) {
    return targets;
  }
  const auto options = at::device(at::kCPU).dtype(at::kLong);
  const c10::IValue lengths = inputs.value("target_lengths");
  const at::Tensor read =
      lengths.isTensor() ? lengths.toTensor().cpu() : at::tensor(lengths.toIntVector(), options);
  return targets.masked_select(at::arange(targets.size(1), options).lt(read.view({-1, 1})));
}

void check_targets(const Inputs& inputs) {
  const at::Tensor log_probs = inputs.tensor("log_probs");
  const at::Tensor targets = inputs.tensor("targets");
  if (log_probs.dim() > 0 && has_values(targets)) {
    check_within(inputs, "targets", read_targets(inputs, targets), 0, log_probs.size(-1) - 1);
  }
}

void check_offsets(const Inputs& inputs) {
  check_within(inputs, "offsets", inputs.tensor("offsets"), 0, inputs.tensor("indices").numel());
}

void check_pivots(const Inputs& inputs) {
  const at::Tensor pivots = inputs.tensor("pivots");
  const at::Tensor matrix = inputs.tensor("LD");
  if (matrix.dim() > 0 && has_values(pivots)) {
    check_within(inputs, "pivots (but for their signs)", pivots.to(at::kLong).abs(), 1,
                 matrix.size(-1));
  }
}

// How many of the packed records go on at each position: ever fewer, all rows of data in the end.
void check_batch_sizes(const Inputs& inputs) {
  const at::Tensor sizes = inputs.tensor("batch_sizes");
  const at::Tensor data = inputs.tensor("data");
  FSDP2_CHECK(
      sizes.dim() == 1 && sizes.is_cpu() && sizes.scalar_type() == at::kLong && sizes.numel() > 0,
      Code::kInvalidArgument, "{}: batch_sizes: expected at least one int64 on the CPU",
      inputs.operator_name());
  FSDP2_CHECK(data.dim() > 0, Code::kInvalidArgument, "{}: data: expected rows, found a scalar",
              inputs.operator_name());
  const at::Tensor values = sizes.contiguous();
  int64_t before = data.size(0);
  int64_t left = data.size(0);
  for (int64_t i = 0; i < values.numel(); ++i) {
    const int64_t size = values.const_data_ptr<int64_t>()[i];
    FSDP2_CHECK(size >= 1 && size <= before && size <= left, Code::kInvalidArgument,
                "{}: batch_sizes: expected positive numbers that never rise and add up to {}, "
                "found {} at {}",
                inputs.operator_name(), data.size(0), size, i);
    before = size;
    left -= size;
  }
  FSDP2_CHECK(left == 0, Code::kInvalidArgument, "{}: batch_sizes: expected {} in all, found {}",
              inputs.operator_name(), data.size(0), data.size(0) - left);
}

void check_channels(const Inputs& inputs) {
  const at::Tensor input = inputs.tensor("input");
  FSDP2_CHECK(input.dim() >= 2, Code::kInvalidArgument,
              "{}: input: expected 2 dims at least, found {}", inputs.operator_name(), input.dim());
  for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
    const at::Tensor each = inputs.tensor(name);
    FSDP2_CHECK(!each.defined() || each.numel() == input.size(1), Code::kInvalidArgument,
                "{}: {}: expected an element for each of {} channels, found {}",
                inputs.operator_name(), name, input.size(1), each.numel());
  }
}

void check_normalization(const Inputs& inputs) {
  check_channels(inputs);
  const c10::IValue training = inputs.value("training");
  FSDP2_CHECK(
      (training.isBool() && training.toBool()) ||
          (inputs.tensor("running_mean").defined() && inputs.tensor("running_var").defined()),
      Code::kInvalidArgument,
      "{}: running_mean, running_var: expected both where it is not training",
      inputs.operator_name());
}

// The least number of an integer type whose quotient by -1 a processor refuses to compute.
std::optional<int64_t> indivisible(at::ScalarType dtype) {
  switch (dtype) {
    case at::kInt:
      return std::numeric_limits<int32_t>::min();
    case at::kLong:
      return std::numeric_limits<int64_t>::min();
    default:
      return std::nullopt;
  }
}

// Whether an element of the tensor, as an operator of that dtype sees it, is the number.
at::Tensor is_number(const at::Tensor& tensor, at::ScalarType dtype, int64_t number) {
  return tensor.to(dtype).eq(number);
}

void check_truncated(const Inputs& inputs) {
  const c10::IValue mode = inputs.value("rounding_mode");
  const c10::IValue other = inputs.value("other");
  const at::Tensor self = inputs.tensor("self");
  if (!mode.isString() || mode.toStringRef() != "trunc" || !has_values(self)) {
    return;
  }
  const at::Tensor divisor =
      other.isTensor() ? other.toTensor() : at::scalar_tensor(other.toScalar(), at::kCPU);
  const at::ScalarType dtype =
      other.isTensor() ? at::result_type(self, divisor) : at::result_type(self, other.toScalar());
  const auto least = indivisible(dtype);
  FSDP2_CHECK(!least || !has_values(divisor) ||
                  !at::logical_and(is_number(self, dtype, *least), is_number(divisor, dtype, -1))
                       .any()
                       .item<bool>(),
              Code::kInvalidArgument, "{}: {} / -1 is beyond its dtype", inputs.operator_name(),
              least.value_or(0));
}

void check_multiples(const Inputs& inputs) {
  const at::Tensor self = inputs.tensor("self");
  const at::Tensor other = inputs.tensor("other");
  const at::ScalarType dtype = at::result_type(self, other);
  const auto least = indivisible(dtype);
  for (const at::Tensor& each : {self, other}) {
    FSDP2_CHECK(!least || !has_values(each) || !is_number(each, dtype, *least).any().item<bool>(),
                Code::kInvalidArgument, "{}: the absolute value of {} is beyond its dtype",
                inputs.operator_name(), least.value_or(0));
  }
}

using Check = void (*)(const Inputs&);

struct Row {
  const char* name;
  const char* overload;
  Check check;
};

// Found by calling all operators with values at the edges of their types.
constexpr std::array<Row, 33> kRows = {{
    {"aten::linalg_eigvals", "", check_finite},
    {"aten::ctc_loss", "IntList", check_targets},
    {"aten::ctc_loss", "Tensor", check_targets},
    {"aten::_ctc_loss", "", check_targets},
    {"aten::_ctc_loss", "Tensor", check_targets},
    {"aten::embedding_bag", "", check_offsets},
    {"aten::embedding_bag", "padding_idx", check_offsets},
    {"aten::_embedding_bag", "", check_offsets},
    {"aten::_embedding_bag_forward_only", "", check_offsets},
    {"aten::linalg_ldl_solve", "", check_pivots},
    {"aten::lstm", "data", check_batch_sizes},
    {"aten::gru", "data", check_batch_sizes},
    {"aten::rnn_tanh", "data", check_batch_sizes},
    {"aten::rnn_relu", "data", check_batch_sizes},
    {"aten::native_batch_norm", "", check_normalization},
    {"aten::_native_batch_norm_legit", "", check_normalization},
    {"aten::_native_batch_norm_legit", "no_stats", check_channels},
    {"aten::_native_batch_norm_legit_functional", "", check_normalization},
    {"aten::_native_batch_norm_legit_no_training", "", check_normalization},
    {"aten::_batch_norm_no_update", "", check_normalization},
    {"aten::_batch_norm_with_update", "", check_channels},
    {"aten::_batch_norm_with_update_functional", "", check_channels},
    {"aten::batch_norm_update_stats", "", check_channels},
    {"aten::div", "Tensor_mode", check_truncated},
    {"aten::div", "Scalar_mode", check_truncated},
    {"aten::div_", "Tensor_mode", check_truncated},
    {"aten::div_", "Scalar_mode", check_truncated},
    {"aten::divide", "Tensor_mode", check_truncated},
    {"aten::divide", "Scalar_mode", check_truncated},
    {"aten::divide_", "Tensor_mode", check_truncated},
    {"aten::divide_", "Scalar_mode", check_truncated},
    {"aten::lcm", "", check_multiples},
    {"aten::lcm_", "", check_multiples},
}};

// A schema stays where it is; comparing its address costs a call nothing to speak of.
std::unordered_map<const c10::FunctionSchema*, Check> checks_by_schema() {
  std::unordered_map<const c10::FunctionSchema*, Check> checks;
  for (const Row& row : kRows) {
    const auto op = c10::Dispatcher::singleton().findSchema({row.name, row.overload});
    if (op) {  // not every LibTorch has all of them
      checks.emplace(&op->schema(), row.check);
    }
  }
  return checks;
}

}  // namespace

void check_arguments(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  static const auto& checks =
      *new auto(checks_by_schema());  // threads may still call while the process ends
  const auto found = checks.find(&schema);
  if (found != checks.end()) {
    found->second(Inputs(schema, stack));
  }
}

}  // namespace fsdp2::operators
