#include "core/train/optim/optimizer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/train/optim/option_checks.h"

namespace fsdp2::train {

Optimizer::Optimizer(std::shared_ptr<fsdp::Unit> root, double lr) : root_(std::move(root)), lr_(0) {
  set_lr(lr);
  for (fsdp::ShardedParam* param : root_->parameters()) {
    if (param->requires_grad()) {
      params_.push_back(param);
    }
  }
  FSDP2_CHECK(!params_.empty(), Code::kInvalidArgument,
              "the optimizer has nothing to train: every parameter is frozen");
  group_of_.assign(params_.size(), 0);
}

// The index of a parameter of group 0.
size_t Optimizer::movable(const std::string& name) const {
  const auto has_name = [&](const fsdp::ShardedParam* param) {
    const std::vector<std::string>& names = param->names();
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto found = std::find_if(params_.begin(), params_.end(), has_name);
  if (found == params_.end()) {
    const auto& all = root_->parameters();
    FSDP2_CHECK(std::any_of(all.begin(), all.end(), has_name), Code::kNotFound,
                "parameter group: the model has no parameter {}", name);
    fail(Code::kInvalidArgument, "parameter group: {} is frozen, the optimizer does not have it",
         name);
  }
  const auto index = static_cast<size_t>(found - params_.begin());
  FSDP2_CHECK(group_of_[index] == 0, Code::kInvalidArgument,
              "parameter group: {} is in group {} already", name, group_of_[index]);
  return index;
}

void Optimizer::check_has_ratios() const {
  FSDP2_CHECK(lr_ > 0.0, Code::kWrongState,
              "parameter group: its rate follows the optimizer's in a fixed ratio, expected the "
              "optimizer's to be above 0 now");
}

void Optimizer::make_group(const std::vector<std::string>& names, double lr) {
  check_rate("learning rate", lr);
  check_has_ratios();
  FSDP2_CHECK(!names.empty(), Code::kInvalidArgument,
              "parameter group: expected names, found none");
  std::set<size_t> indices;
  for (const std::string& name : names) {
    indices.insert(movable(name));
  }
  FSDP2_CHECK(indices.size() < group_size(0), Code::kInvalidArgument,
              "parameter group: would leave no parameter in the first group; give that these "
              "options instead");
  for (const size_t index : indices) {
    group_of_[index] = group_count();
  }
  lr_ratios_.push_back(lr / lr_);
}

size_t Optimizer::group_size(size_t group) const {
  return static_cast<size_t>(std::count(group_of_.begin(), group_of_.end(), group));
}

size_t Optimizer::split_group(size_t group, const std::vector<size_t>& indices) {
  if (indices.size() == group_size(group)) {
    return group;
  }
  const size_t made = group_count();
  copy_options(group);
  lr_ratios_.push_back(lr_ratios_[group]);
  for (const size_t index : indices) {
    group_of_[index] = made;
  }
  return made;
}

size_t Optimizer::full_state_bytes() const {
  size_t bytes = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    bytes += full_state_bytes_of(i);
  }
  return bytes;
}

void Optimizer::set_hyper_parameters(size_t group, const std::vector<HyperParameter>& values) {
  std::optional<double> lr;
  std::optional<double> initial_lr;
  for (const HyperParameter& value : values) {
    if (value.name == "lr" || value.name == "initial_lr") {
      (value.name == "lr" ? lr : initial_lr) = number_in(value);
      check_rate(value.name.c_str(), number_in(value));
    }
  }
  set_options(group, values);
  if (lr) {
    set_lr_of(group, *lr, initial_lr);
  }
}

Optimizer::Settings Optimizer::settings() const {
  Settings settings{{}, lr_, lr_ratios_};
  for (size_t group = 0; group < group_count(); ++group) {
    settings.groups.push_back(hyper_parameters(group));
  }
  return settings;
}

void Optimizer::restore(const Settings& settings) {
  for (size_t group = 0; group < group_count(); ++group) {
    set_options(group, settings.groups[group]);
  }
  lr_ = settings.lr;
  lr_ratios_ = settings.lr_ratios;
}

// A ratio that gives the rate already stays as it is, to the bit.
void Optimizer::set_lr_of(size_t group, double lr, std::optional<double> initial_lr) {
  if (group == 0) {
    set_lr(lr);
    initial_lr_ = initial_lr;
  } else if (lr_ > 0.0 && lr_of(group) != lr) {
    lr_ratios_[group] = lr / lr_;
  } else if (lr_ == 0.0 && initial_lr && initial_lr_ && *initial_lr_ > 0.0) {
    lr_ratios_[group] = *initial_lr / *initial_lr_;
  }
}

double number_in(const HyperParameter& value) {
  const double* number = std::get_if<double>(&value.value);
  FSDP2_CHECK(number != nullptr, Code::kInvalidArgument, "{}: expected a number", value.name);
  return *number;
}

bool flag_in(const HyperParameter& value) {
  const bool* flag = std::get_if<bool>(&value.value);
  FSDP2_CHECK(flag != nullptr || std::holds_alternative<std::monostate>(value.value),
              Code::kInvalidArgument, "{}: expected true or false", value.name);
  return flag != nullptr && *flag;
}

std::pair<double, double> pair_in(const HyperParameter& value) {
  const auto* pair = std::get_if<std::pair<double, double>>(&value.value);
  FSDP2_CHECK(pair != nullptr, Code::kInvalidArgument, "{}: expected two numbers", value.name);
  return *pair;
}

void check_provided(const HyperParameter& value, bool provided) {
  FSDP2_CHECK(flag_in(value) == provided, Code::kUnsupported,
              "{} is {}, which this optimizer does not provide", value.name, flag_in(value));
}

void Optimizer::zero_grad() { root_->zero_grad(); }

void Optimizer::set_lr(double lr) {
  check_rate("learning rate", lr);
  lr_ = lr;
}

void Optimizer::set_group_lr(size_t group, double lr) {
  if (group == 0) {
    set_lr(lr);
    return;
  }
  check_rate("learning rate", lr);
  check_has_ratios();
  set_lr_of(group, lr, std::nullopt);
}

}  // namespace fsdp2::train
