#include "core/operators/operator_rules.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/text.h"

namespace fsdp2::operators {

namespace {

// They open files, replace or resize a tensor's memory, skip the checks of indices or of empty
// lists, or change whether a tensor has a gradient, which would freeze a parameter for good.
constexpr std::array<std::string_view, 10> kRefusedPrefixes = {
    "from_file",        "set_", "resize",      "_resize",        "_unsafe_",
    "_index_put_impl_", "data", "retain_grad", "requires_grad_", "align_tensors"};
// What runs although it returns nothing.
constexpr std::array<std::string_view, 4> kAssertions = {
    "_assert_scalar", "_assert_async", "sym_constrain_range", "sym_constrain_range_for_size"};
// What LibTorch's public operators choose from.
constexpr std::array<std::string_view, 8> kInternalPrefixes = {
    "_", "cudnn_", "fbgemm_", "miopen_", "mkldnn_", "mps_", "quantized_", "fused_moving_"};

// "add_" of "aten::add_"
std::string_view name_of(const c10::FunctionSchema& schema) {
  const std::string_view name = schema.name();
  const size_t colons = name.find("::");
  return colons == std::string_view::npos ? name : name.substr(colons + 2);
}

template <typename Prefixes>
bool has_prefix(std::string_view name, const Prefixes& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return starts_with(name, prefix); });
}

}  // namespace

bool only_computes(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  const std::string_view name = name_of(schema);
  const bool has_out = std::any_of(
      arguments.begin(), arguments.end(),
      [](const c10::Argument& formal) { return formal.is_out() || formal.name() == "unsafe"; });
  const bool is_assertion =
      std::find(kAssertions.begin(), kAssertions.end(), name) != kAssertions.end();
  return !has_prefix(name, kRefusedPrefixes) && !has_out && !schema.is_vararg() &&
         !schema.is_varret() && (!schema.returns().empty() || is_assertion);
}

bool checks_its_arguments(const c10::FunctionSchema& schema) {
  const std::string_view name = name_of(schema);
  return !has_prefix(name, kInternalPrefixes) && name.find("backward") == std::string_view::npos;
}

bool changes_views(const c10::OperatorHandle& op) { return op.hasTag(at::Tag::inplace_view); }

}  // namespace fsdp2::operators
