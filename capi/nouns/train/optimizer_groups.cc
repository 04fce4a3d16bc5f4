// What an optimizer tells about itself and its groups, what of a group can be changed, and groups
// by rule.
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/train/optim/group_rules.h"
#include "core/train/optim/optimizer.h"
#include "include/fsdp2/optimizer.h"

namespace fsdp2::capi {

namespace {

int32_t algorithm_number(train::Algorithm algorithm) {
  switch (algorithm) {
    case train::Algorithm::kAdamW:
      return FSDP2_OPTIMIZER_ADAMW;
    case train::Algorithm::kSgd:
      return FSDP2_OPTIMIZER_SGD;
    case train::Algorithm::kMuon:
      return FSDP2_OPTIMIZER_MUON;
  }
  fail(Code::kInternal, "an optimizer whose algorithm has no number");
}

fsdp2_optimizer_info optimizer_info(const train::Optimizer& optimizer) {
  fsdp2_optimizer_info info{};
  info.algorithm = algorithm_number(optimizer.algorithm());
  info.n_groups = static_cast<int32_t>(optimizer.group_count());
  info.n_parameters = static_cast<int32_t>(optimizer.params().size());
  info.n_bytes = static_cast<int64_t>(optimizer.state_bytes());
  info.n_received_bytes = optimizer.received_bytes();
  info.n_full_bytes = static_cast<int64_t>(optimizer.full_state_bytes());
  return info;
}

void check_group(const train::Optimizer& optimizer, size_t group) {
  FSDP2_CHECK(group < optimizer.group_count(), Code::kInvalidArgument,
              "group: there are {} groups, found {}", optimizer.group_count(), group);
}

// The indices of a group's parameters among all of the shard's; the optimizer has its own in the
// shard's order.
std::vector<size_t> group_parameters(const train::Optimizer& optimizer, size_t group) {
  check_group(optimizer, group);
  const auto& all = optimizer.root().parameters();
  const auto& trained = optimizer.params();
  std::vector<size_t> indices;
  for (size_t index = 0, next = 0; next < trained.size(); ++index) {
    if (all[index] == trained[next]) {
      if (optimizer.group_of(next) == group) {
        indices.push_back(index);
      }
      ++next;
    }
  }
  return indices;
}

void add_hyper_parameter(const train::HyperParameter& value, fsdp2_optimizer_group_info& info) {
  using Info = fsdp2_optimizer_group_info;
  static constexpr std::pair<std::string_view, double Info::*> kNumbers[] = {
      {"lr", &Info::lr},
      {"eps", &Info::eps},
      {"weight_decay", &Info::weight_decay},
      {"momentum", &Info::momentum},
      {"matched_adamw_rms", &Info::matched_adamw_rms},
  };
  for (const auto& [name, member] : kNumbers) {
    if (value.name == name) {
      info.*member = train::number_in(value);
    }
  }
  if (value.name == "betas") {
    std::tie(info.beta1, info.beta2) = train::pair_in(value);
  } else if (value.name == "nesterov") {
    info.nesterov = train::flag_in(value) ? 1 : 0;
  } else if (value.name == "ns_steps") {
    info.newton_schulz_steps = static_cast<int64_t>(train::number_in(value));
  }
}

fsdp2_optimizer_group_info optimizer_group_info(const train::Optimizer& optimizer, size_t group) {
  fsdp2_optimizer_group_info info{};
  info.n_parameters = static_cast<int32_t>(group_parameters(optimizer, group).size());
  for (const train::HyperParameter& value : optimizer.hyper_parameters(group)) {
    add_hyper_parameter(value, info);
  }
  return info;
}

constexpr uint32_t kNoDecayFlags = FSDP2_NO_DECAY_NORMS | FSDP2_NO_DECAY_BIASES;

train::ParameterKinds read_no_decay(uint32_t flags) {
  FSDP2_CHECK((flags & ~kNoDecayFlags) == 0, Code::kInvalidArgument,
              "flags: expected FSDP2_NO_DECAY_NORMS (1) and _BIASES (2), found {}", flags);
  return {(flags & FSDP2_NO_DECAY_NORMS) != 0, (flags & FSDP2_NO_DECAY_BIASES) != 0};
}

void exempt_named(train::Optimizer& optimizer, const char* const* names, size_t n_names,
                  uint32_t flags) {
  FSDP2_CHECK((flags & ~uint32_t{FSDP2_NO_DECAY_BY_CLASS}) == 0, Code::kInvalidArgument,
              "flags: expected FSDP2_NO_DECAY_BY_CLASS (1) or 0, found {}", flags);
  const std::vector<std::string> given = read_texts(names, n_names, kMaxName, "names");
  FSDP2_CHECK(!given.empty(), Code::kInvalidArgument, "names: expected at least one, found none");
  if ((flags & FSDP2_NO_DECAY_BY_CLASS) != 0) {
    train::exempt_from_decay_by_class(optimizer, given);
  } else {
    train::exempt_from_decay_by_name(optimizer, given);
  }
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_optimizer_get_info(fsdp2_optimizer optimizer, fsdp2_optimizer_info* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    capi::check_out_struct(out, "out");
    capi::enter(call, *object->shard->module);
    capi::fill_struct(out, capi::optimizer_info(*object->optimizer));
  });
}

fsdp2_status fsdp2_optimizer_get_group_info(fsdp2_optimizer optimizer, size_t group,
                                            fsdp2_optimizer_group_info* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    capi::check_out_struct(out, "out");
    capi::enter(call, *object->shard->module);
    capi::fill_struct(out, capi::optimizer_group_info(*object->optimizer, group));
  });
}

fsdp2_status fsdp2_optimizer_get_group_parameters(fsdp2_optimizer optimizer, size_t group,
                                                  size_t* parameters, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    capi::enter(call, *object->shard->module);
    capi::write_numbers(capi::group_parameters(*object->optimizer, group), "parameters", parameters,
                        cap, needed);
  });
}

fsdp2_status fsdp2_optimizer_set_group_lr(fsdp2_optimizer optimizer, size_t group, double lr) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    capi::enter(call, *object->shard->module);
    capi::check_group(*object->optimizer, group);
    object->optimizer->set_group_lr(group, lr);
  });
}

fsdp2_status fsdp2_optimizer_set_group_weight_decay(fsdp2_optimizer optimizer, size_t group,
                                                    double weight_decay) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    capi::enter(call, *object->shard->module);
    capi::check_group(*object->optimizer, group);
    object->optimizer->set_hyper_parameters(group, {{"weight_decay", weight_decay}});
  });
}

fsdp2_status fsdp2_optimizer_exempt_from_decay(fsdp2_optimizer optimizer, uint32_t flags) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    capi::enter(call, *object->shard->module);
    fsdp2::train::exempt_from_decay(*object->optimizer, capi::read_no_decay(flags));
  });
}

fsdp2_status fsdp2_optimizer_scale_lr(fsdp2_optimizer optimizer, const char* pattern,
                                      double factor) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    capi::enter(call, *object->shard->module);
    fsdp2::train::scale_lr(*object->optimizer,
                           {capi::read_text(pattern, capi::kMaxName, "pattern")}, factor);
  });
}

fsdp2_status fsdp2_optimizer_exempt_named_from_decay(fsdp2_optimizer optimizer,
                                                     const char* const* names, size_t n_names,
                                                     uint32_t flags) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    capi::enter(call, *object->shard->module);
    capi::exempt_named(*object->optimizer, names, n_names, flags);
  });
}

fsdp2_status fsdp2_optimizer_scale_named_lr(fsdp2_optimizer optimizer, const char* const* patterns,
                                            size_t n_patterns, double factor) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    capi::enter(call, *object->shard->module);
    fsdp2::train::scale_lr(*object->optimizer,
                           capi::read_texts(patterns, n_patterns, capi::kMaxName, "patterns"),
                           factor);
  });
}
