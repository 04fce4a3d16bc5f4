#include "core/train/step/doubtful_update.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "core/fsdp/group/sharded_param.h"

namespace fsdp2::train {

namespace {

// A value that moves less overflows after many steps alone, whose losses tell.
constexpr double kHugeMove = 1e6;
constexpr double kHugeMoveOfHalf = 1e2;  // fp16 ends at 65,504
// The squares that an optimizer keeps end at about 3e38.
constexpr double kHugeNorm = 1e18;
// Decay multiplies by 1 - rate * decay, which grows beyond this.
constexpr double kMostDecay = 2.0;

double value_of(const std::vector<HyperParameter>& group, const char* name, double otherwise) {
  const auto found = std::find_if(group.begin(), group.end(),
                                  [&](const HyperParameter& each) { return each.name == name; });
  const double* const value = found == group.end() ? nullptr : std::get_if<double>(&found->value);
  return value == nullptr ? otherwise : *value;
}

bool has_half(const Optimizer& optimizer) {
  const auto& params = optimizer.params();
  return std::any_of(params.begin(), params.end(),
                     [](const fsdp::ShardedParam* param) { return param->dtype() == at::kHalf; });
}

std::string doubt_of_group(const std::vector<HyperParameter>& group, double grad_norm,
                           double huge_move) {
  const double lr = value_of(group, "lr", 0.0);
  const double decay = value_of(group, "weight_decay", 0.0);
  if (lr * std::max(1.0, grad_norm) >= huge_move) {
    return fmt::format("learning rate is {:g}", lr);
  }
  if (static_cast<float>(value_of(group, "eps", 1.0)) == 0.0F) {
    return "eps is 0, by which it divides where gradients are 0";
  }
  if (lr * decay > kMostDecay) {
    return fmt::format("weight decay is {:g}", decay);
  }
  return value_of(group, "momentum", 0.0) > 1.0 ? "momentum is above 1" : "";
}

}  // namespace

std::string doubt_of_update(const Optimizer& optimizer, double grad_norm) {
  if (grad_norm >= kHugeNorm) {
    return fmt::format("gradient norm is {:g}", grad_norm);
  }
  const double huge_move = has_half(optimizer) ? kHugeMoveOfHalf : kHugeMove;
  std::string doubt;
  for (size_t group = 0; doubt.empty() && group < optimizer.group_count(); ++group) {
    doubt = doubt_of_group(optimizer.hyper_parameters(group), grad_norm, huge_move);
  }
  return doubt;
}

}  // namespace fsdp2::train
