#include "core/nn/custom_module.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/base/error.h"
#include "core/nn/random/row_keys.h"
#include "core/nn/seeded_init.h"

namespace fsdp2::nn {

namespace {

// A parameter's module, and its name there.
struct Place {
  CustomModule& module;
  std::string name;
};

// Finds the parameter at a dotted name below `root`.
Place find_place(CustomModule& root, const std::string& path) {
  CustomModule* module = &root;
  size_t begin = 0;
  for (size_t dot = path.find('.'); module != nullptr && dot != std::string::npos;
       dot = path.find('.', begin)) {
    const auto children = module->named_children();
    const std::shared_ptr<torch::nn::Module>* child =
        children.find(path.substr(begin, dot - begin));
    module = child == nullptr ? nullptr : dynamic_cast<CustomModule*>(child->get());
    begin = dot + 1;
  }
  std::string name = path.substr(begin);
  FSDP2_CHECK(module != nullptr && module->named_parameters(/*recurse=*/false).contains(name),
              Code::kNotFound, "the {} has no parameter '{}'", root.kind(), path);
  return {*module, std::move(name)};
}

// Undefined if the first tensor has none.
at::Tensor rows_of_first(const Values& inputs) {
  for (const c10::IValue& input : inputs) {
    if (input.isTensor()) {
      const at::Tensor& batch = input.toTensor();
      return batch.dim() >= 1 && batch.numel() > 0 ? hash_rows(batch) : at::Tensor();
    }
  }
  return {};
}

}  // namespace

CustomModule::CustomModule(std::string kind, CustomModuleOptions options, Forward forward)
    : Module(std::move(kind)),
      options_(std::move(options)),
      forward_(std::move(forward)),
      random_(std::make_shared<RandomState>()) {
  random_->generator = at::detail::createCPUGenerator(options_.seed);
}

c10::IValue CustomModule::forward(Values inputs) {
  check_parameters_have_memory();
  if (is_part_ || !random_->is_drawn_from) {
    return forward_(*this, std::move(inputs));
  }
  const ForwardOfRows these_rows(this, rows_of_first(inputs));
  return forward_(*this, std::move(inputs));
}

void CustomModule::check_parameters_have_memory() const {
  for (const auto& parameter : parameters_) {
    FSDP2_CHECK(!has_no_memory(parameter.value()), Code::kWrongState,
                "forward of {}: {} is freed: expected a call inside the forward of the module that "
                "the unit is",
                kind(), options_.title_of_parameter(parameter.value()));
  }
}

void CustomModule::draw_random_numbers() {
  draws_ = true;
  random_->is_drawn_from = true;
}

std::optional<at::Generator> CustomModule::own_generator() const {
  if (draws_) {
    return random_->generator;
  }
  for (const auto& child : children()) {
    if (auto own = dynamic_cast<const CustomModule&>(*child).own_generator()) {
      return own;
    }
  }
  return std::nullopt;
}

void CustomModule::become_part(const CustomModule& parent) {
  parent.random_->is_drawn_from = parent.random_->is_drawn_from || random_->is_drawn_from;
  random_ = parent.random_;
  is_part_ = true;
  for (const auto& child : children()) {
    dynamic_cast<CustomModule&>(*child).become_part(*this);
  }
}

std::vector<at::Tensor> CustomModule::own_buffers() const {
  return has_buffers_ ? buffers(/*recurse=*/false) : std::vector<at::Tensor>();
}

at::Tensor CustomModule::own_parameter(const std::string& name) const {
  const at::Tensor* found = parameters_.find(name);
  return found == nullptr ? at::Tensor() : *found;
}

void CustomModule::check_name(const std::string& name) const {
  FSDP2_CHECK(!name.empty() && name.find('.') == std::string::npos, Code::kInvalidArgument,
              "name: expected one without a dot, found '{}'", name);
  const bool is_taken = named_parameters(/*recurse=*/false).contains(name) ||
                        named_buffers(/*recurse=*/false).contains(name) ||
                        named_children().contains(name);
  FSDP2_CHECK(!is_taken, Code::kInvalidArgument,
              "name: the {} has a parameter, buffer or child '{}' already", kind(), name);
}

void CustomModule::add_parameter(const std::string& name, at::IntArrayRef shape,
                                 at::ScalarType dtype, ParameterInit init) {
  check_name(name);
  register_parameter(name, deferred_parameter(shape, dtype));
  inits_.emplace(name, init);
}

void CustomModule::add_buffer(const std::string& name, const at::Tensor& tensor,
                              bool is_persistent) {
  check_name(name);
  register_buffer(name, tensor);
  has_buffers_ = true;
  if (!is_persistent) {
    transient_.insert(name);
  }
}

void CustomModule::add_child(const std::string& name, const std::shared_ptr<CustomModule>& child) {
  check_name(name);
  register_module(name, child);
  child->become_part(*this);
}

void CustomModule::tie_parameter(const std::string& name, const std::string& other) {
  const Place place = find_place(*this, name);
  const Place to = find_place(*this, other);
  at::Tensor& tensor = place.module.parameters_[place.name];
  const at::Tensor& shared = to.module.parameters_[to.name];
  FSDP2_CHECK(tensor.sizes() == shared.sizes() && tensor.scalar_type() == shared.scalar_type(),
              Code::kInvalidArgument,
              "a tie needs one shape and dtype, found '{}' [{}] {} and '{}' [{}] {}", name,
              fmt::join(tensor.sizes(), ", "), c10::toString(tensor.scalar_type()), other,
              fmt::join(shared.sizes(), ", "), c10::toString(shared.scalar_type()));
  tensor = shared;
  place.module.inits_[place.name] = to.module.inits_.at(to.name);
}

std::string CustomInit::mark_of(const std::string& /*name*/) const {
  return fmt::format("seed {}", seed_);
}

void CustomInit::read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                      at::Tensor out) {
  const c10::AutoGradMode no_grad(false);
  const Place place = find_place(*root_, name);
  const ParameterInit& init = place.module.init_of(place.name);
  switch (init.kind) {
    case ParameterInit::Kind::kZeros:
      out.zero_();
      break;
    case ParameterInit::Kind::kOnes:
      out.fill_(1);
      break;
    case ParameterInit::Kind::kNormal:
      read_normal(seed_, name, init.std, shape, first_row, out);
      break;
    case ParameterInit::Kind::kUniform:
      read_uniform(seed_, name, init.bound, shape, first_row, out);
      break;
  }
  if (init.zero_row >= first_row && init.zero_row < first_row + out.size(0)) {
    out[init.zero_row - first_row].zero_();
  }
}

}  // namespace fsdp2::nn
