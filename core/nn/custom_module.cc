#include "core/nn/custom_module.h"

#include <c10/core/GradMode.h>

#include "core/base/error.h"
#include "core/nn/seeded_init.h"

namespace fsdp2::nn {

namespace {

// The init of the parameter at a dotted name below `root`.
const ParameterInit& find_init(const CustomModule& root, const std::string& name) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) {
    return root.init_of(name);
  }
  const auto& child =
      dynamic_cast<const CustomModule&>(*root.named_children()[name.substr(0, dot)]);
  return find_init(child, name.substr(dot + 1));
}

}  // namespace

void CustomModule::check_name(const std::string& name) const {
  FSDP2_CHECK(!name.empty() && name.find('.') == std::string::npos, Code::kInvalidArgument,
              "name: expected one without a dot, found '{}'", name);
  FSDP2_CHECK(
      !named_parameters(/*recurse=*/false).contains(name) && !named_children().contains(name),
      Code::kInvalidArgument, "name: the {} has a parameter or child '{}' already", kind(), name);
}

void CustomModule::add_parameter(const std::string& name, at::IntArrayRef shape,
                                 at::ScalarType dtype, ParameterInit init) {
  check_name(name);
  register_parameter(name, deferred_parameter(shape, dtype));
  inits_.emplace(name, init);
}

void CustomModule::add_child(const std::string& name, const std::shared_ptr<CustomModule>& child) {
  check_name(name);
  register_module(name, child);
}

void CustomInit::read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                      at::Tensor out) {
  const c10::AutoGradMode no_grad(false);
  const ParameterInit& init = find_init(*root_, name);
  switch (init.kind) {
    case ParameterInit::Kind::kZeros:
      out.zero_();
      return;
    case ParameterInit::Kind::kOnes:
      out.fill_(1);
      return;
    case ParameterInit::Kind::kNormal:
      read_normal(seed_, name, init.std, shape, first_row, out);
  }
}

}  // namespace fsdp2::nn
