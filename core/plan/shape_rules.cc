#include "core/plan/shape_rules.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>

namespace fsdp2::plan {

namespace {

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  std::vector<int64_t> sizes = self.sizes().vec();
  if (!sizes.empty()) {
    sizes[static_cast<size_t>(dim < 0 ? dim + self.dim() : dim)] = index.numel();
  }
  return at::empty(sizes, self.options());
}

at::Tensor embedding_dense_backward(const at::Tensor& grad, const at::Tensor& /*indices*/,
                                    int64_t num_weights, int64_t /*padding_idx*/,
                                    bool /*scale_grad_by_freq*/) {
  return at::empty({num_weights, grad.size(-1)}, grad.options());
}

at::Tensor logical_not(const at::Tensor& self) {
  return at::empty(self.sizes(), self.options().dtype(at::kBool));
}

at::Tensor logical(const at::Tensor& self, const at::Tensor& other) {
  return at::empty(at::infer_size(self.sizes(), other.sizes()), self.options().dtype(at::kBool));
}

at::Tensor max_of_all(const at::Tensor& self) { return at::empty({}, self.options()); }

at::Tensor nonzero_static(const at::Tensor& self, int64_t size, int64_t /*fill_value*/) {
  return at::empty({size, self.dim()}, self.options().dtype(at::kLong));
}

at::Tensor where(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  const auto sizes = at::infer_size(condition.sizes(), at::infer_size(self.sizes(), other.sizes()));
  return at::empty(sizes, self.options());
}

// With what it makes on the way, which is as large.
at::Tensor safe_softmax(const at::Tensor& self, int64_t /*dim*/,
                        std::optional<at::ScalarType> dtype) {
  const at::TensorOptions options = self.options().dtype(dtype.value_or(self.scalar_type()));
  const at::Tensor softmax = at::empty(self.sizes(), options);
  const at::Tensor is_masked = at::empty(self.sizes(), options.dtype(at::kBool));
  return at::empty(self.sizes(), options);
}

at::Tensor floor_divide(const at::Tensor& self, const at::Tensor& other) {
  return at::empty(at::infer_size(self.sizes(), other.sizes()), self.options());
}

// The dims before the normalised ones, each of the latter as 1.
std::vector<int64_t> sizes_of_statistics(const at::Tensor& input, at::IntArrayRef shape) {
  std::vector<int64_t> sizes = input.sizes().vec();
  for (size_t i = sizes.size() - shape.size(); i < sizes.size(); ++i) {
    sizes[i] = 1;
  }
  return sizes;
}

Three native_layer_norm(const at::Tensor& input, at::IntArrayRef shape,
                        const std::optional<at::Tensor>& /*weight*/,
                        const std::optional<at::Tensor>& /*bias*/, double /*eps*/) {
  const auto statistics = sizes_of_statistics(input, shape);
  return {at::empty(input.sizes(), input.options()), at::empty(statistics, input.options()),
          at::empty(statistics, input.options())};
}

Three native_layer_norm_backward(const at::Tensor& /*grad*/, const at::Tensor& input,
                                 at::IntArrayRef shape, const at::Tensor& /*mean*/,
                                 const at::Tensor& /*rstd*/,
                                 const std::optional<at::Tensor>& /*weight*/,
                                 const std::optional<at::Tensor>& /*bias*/,
                                 std::array<bool, 3> wanted) {
  const auto if_wanted = [&](size_t i, at::IntArrayRef sizes) {
    return wanted[i] ? at::empty(sizes, input.options()) : at::Tensor();
  };
  return {if_wanted(0, input.sizes()), if_wanted(1, shape), if_wanted(2, shape)};
}

template <typename Rule>
void add_rule(torch::Library& library, const std::string& name, Rule rule,
              const std::string& overload = "") {
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + name, overload});
  if (found && !found->hasKernelForDispatchKey(c10::DispatchKey::Meta)) {
    library.impl((overload.empty() ? name : name + "." + overload).c_str(), rule);
  }
}

}  // namespace

void install_shape_rules() {
  // Kept in memory although nobody asks for it: else it looks like a leak.
  [[gnu::used]] static torch::Library* const library = [] {
    auto* rules = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__,
                                     __LINE__);  // for as long as the process
    add_rule(*rules, "index_select", index_select);
    add_rule(*rules, "embedding_dense_backward", embedding_dense_backward);
    add_rule(*rules, "floor_divide", floor_divide);
    add_rule(*rules, "logical_not", logical_not);
    add_rule(*rules, "logical_and", logical);
    add_rule(*rules, "logical_or", logical);
    add_rule(*rules, "max", max_of_all);
    add_rule(*rules, "nonzero_static", nonzero_static);
    add_rule(*rules, "where", where, "self");
    add_rule(*rules, "_safe_softmax", safe_softmax);
    add_rule(*rules, "native_layer_norm", native_layer_norm);
    add_rule(*rules, "native_layer_norm_backward", native_layer_norm_backward);
    return rules;
  }();
}

}  // namespace fsdp2::plan
