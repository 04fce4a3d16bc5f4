#include "include/fsdp2/optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/fields.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/fsdp/parameter_values.h"
#include "core/fsdp/tree.h"
#include "core/train/optim/adamw.h"
#include "core/train/optim/muon.h"
#include "core/train/optim/optimizer.h"
#include "core/train/optim/sgd.h"
#include "core/train/step/half_update.h"
#include "include/fsdp2/shard.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_adamw_options kAdamWDefaults = FSDP2_ADAMW_OPTIONS_INIT;
constexpr fsdp2_sgd_options kSgdDefaults = FSDP2_SGD_OPTIONS_INIT;
constexpr fsdp2_muon_options kMuonDefaults = FSDP2_MUON_OPTIONS_INIT;
constexpr NumberRange kRate = {0.0, std::numeric_limits<double>::max()};
constexpr NumberRange kFraction = {0.0, 1.0};
constexpr size_t kMaxParameterName = 4096;

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_adamw_options> = std::tuple(
    Field("coupled_decay", &fsdp2_adamw_options::coupled_decay, Flag()),
    Field("lr", &fsdp2_adamw_options::lr, kRate),
    Field("beta1", &fsdp2_adamw_options::beta1, kFraction),
    Field("beta2", &fsdp2_adamw_options::beta2, kFraction),
    Field("eps", &fsdp2_adamw_options::eps, kRate),
    Field("weight_decay", &fsdp2_adamw_options::weight_decay, kRate),
    Field("state_dtype", &fsdp2_adamw_options::state_dtype, FloatDtypeOrKeep()),
    Field("reserved", &fsdp2_adamw_options::reserved, Reserved()));

template <>
inline constexpr auto kFields<fsdp2_sgd_options> = std::tuple(
    Field("lr", &fsdp2_sgd_options::lr, kRate),
    Field("momentum", &fsdp2_sgd_options::momentum, kRate),
    Field("weight_decay", &fsdp2_sgd_options::weight_decay, kRate),
    Field("nesterov", &fsdp2_sgd_options::nesterov, Flag()));

template <>
inline constexpr auto kFields<fsdp2_muon_options> = std::tuple(
    Field("newton_schulz_steps", &fsdp2_muon_options::newton_schulz_steps, NumberRange{1, 99}),
    Field("no_nesterov", &fsdp2_muon_options::no_nesterov, Flag()),
    Field("reserved", &fsdp2_muon_options::reserved, Reserved()),
    Field("lr", &fsdp2_muon_options::lr, kRate),
    Field("weight_decay", &fsdp2_muon_options::weight_decay, kRate),
    Field("momentum", &fsdp2_muon_options::momentum, kFraction),
    Field("matched_adamw_rms", &fsdp2_muon_options::matched_adamw_rms, kRate),
    Field("beta1", &fsdp2_muon_options::beta1, kFraction),
    Field("beta2", &fsdp2_muon_options::beta2, kFraction),
    Field("eps", &fsdp2_muon_options::eps, kRate));
// clang-format on

namespace {

train::AdamWOptions adamw_options(const fsdp2_adamw_options* given) {
  const fsdp2_adamw_options options = read_options(given, kAdamWDefaults);
  train::AdamWOptions adamw;
  adamw.lr = options.lr;
  adamw.beta1 = options.beta1;
  adamw.beta2 = options.beta2;
  adamw.eps = options.eps;
  adamw.weight_decay = options.weight_decay;
  adamw.decoupled_weight_decay = options.coupled_decay == 0;
  adamw.state_dtype = read_float_dtype_or_keep(options.state_dtype, "options.state_dtype");
  return adamw;
}

train::SgdOptions sgd_options(const fsdp2_sgd_options* given) {
  const fsdp2_sgd_options options = read_options(given, kSgdDefaults);
  return {options.lr, options.momentum, options.weight_decay, options.nesterov != 0};
}

train::MuonOptions muon_options(const fsdp2_muon_options* given) {
  const fsdp2_muon_options options = read_options(given, kMuonDefaults);
  train::MuonOptions muon;
  muon.lr = options.lr;
  muon.weight_decay = options.weight_decay;
  muon.momentum = options.momentum;
  muon.nesterov = options.no_nesterov == 0;
  muon.newton_schulz_steps = options.newton_schulz_steps;
  muon.matched_adamw_rms = options.matched_adamw_rms;
  muon.beta1 = options.beta1;
  muon.beta2 = options.beta2;
  muon.eps = options.eps;
  return muon;
}

template <typename Options>
void add_group(Call& call, fsdp2_optimizer optimizer, const char* const* names, size_t n_names,
               const Options& options) {
  const auto object = pin(optimizer);
  enter(call, *object->shard->module);
  train::add_group(*object->optimizer, read_texts(names, n_names, kMaxParameterName, "names"),
                   options);
}

const train::OptimizerState& find_state(const std::vector<train::OptimizerState>& states,
                                        const std::string& name) {
  std::vector<std::string> names;
  for (const train::OptimizerState& state : states) {
    if (state.name == name) {
      return state;
    }
    names.push_back(state.name);
  }
  fail(Code::kNotFound, "name: expected one of [{}], found {}", fmt::join(names, ", "), name);
}

struct NamedState {
  const fsdp::ShardedParam* param = nullptr;
  train::OptimizerState state;
};

NamedState find_state_of(OptimizerObject& object, size_t parameter, const char* name) {
  const auto& all = object.shard->root->parameters();
  FSDP2_CHECK(parameter < all.size(), Code::kInvalidArgument,
              "parameter: expected an index below {}, found {}", all.size(), parameter);
  const auto& trained = object.optimizer->params();
  const auto found = std::find(trained.begin(), trained.end(), all[parameter]);
  FSDP2_CHECK(found != trained.end(), Code::kNotFound, "parameter: {} is frozen, it has no state",
              all[parameter]->name());
  const auto states = object.optimizer->state(static_cast<size_t>(found - trained.begin()));
  return {*found, find_state(states, read_text(name, kMaxParameterName, "name"))};
}

fsdp2_tensor full_state(Call& call, OptimizerObject& object, size_t parameter, const char* name,
                        const fsdp2_tensor* out) {
  enter_collective(call, *object.shard->module);
  NamedState found;
  check_on_all_ranks(call, *object.shard->module, [&] {
    check_not_null(out, "out");
    found = find_state_of(object, parameter, name);
  });
  call.share_failure();
  return give_tensor(found.state.is_sharded
                         ? fsdp::full_value(*object.shard->root, *found.param, found.state.tensor)
                         : found.state.tensor.clone());
}

fsdp2_tensor optimizer_state(Call& call, OptimizerObject& object, size_t parameter,
                             const char* name, int32_t which, const fsdp2_tensor* out) {
  if (which == FSDP2_PARAMETER_FULL) {
    return full_state(call, object, parameter, name, out);
  }
  FSDP2_CHECK(which == FSDP2_PARAMETER_LOCAL, Code::kInvalidArgument,
              "which: expected FSDP2_PARAMETER_LOCAL (0) or _FULL (2), found {}", which);
  check_not_null(out, "out");
  enter(call, *object.shard->module);
  return give_tensor(find_state_of(object, parameter, name).state.tensor);
}

// Make: root -> optimizer.
template <typename Make>
uint64_t give_optimizer(Call& call, fsdp2_shard shard, const Make& make) {
  auto object = std::make_shared<OptimizerObject>();
  object->shard = pin(shard);
  enter(call, *object->shard->module);
  object->optimizer = make(object->shard->root);
  return give(Kind::kOptimizer, std::move(object));
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_adamw_options_init(fsdp2_adamw_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kAdamWDefaults, "options");
  });
}

fsdp2_status fsdp2_optimizer_create_adamw(fsdp2_shard shard, const fsdp2_adamw_options* options,
                                          fsdp2_optimizer* out) {
  return guard(__func__, [&](Call& call) {
    capi::check_not_null(out, "out");
    out->id = capi::give_optimizer(call, shard, [&](std::shared_ptr<fsdp2::fsdp::Unit> root) {
      return fsdp2::train::make_adamw(std::move(root), capi::adamw_options(options));
    });
  });
}

fsdp2_status fsdp2_sgd_options_init(fsdp2_sgd_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kSgdDefaults, "options");
  });
}

fsdp2_status fsdp2_optimizer_create_sgd(fsdp2_shard shard, const fsdp2_sgd_options* options,
                                        fsdp2_optimizer* out) {
  return guard(__func__, [&](Call& call) {
    capi::check_not_null(out, "out");
    out->id = capi::give_optimizer(call, shard, [&](std::shared_ptr<fsdp2::fsdp::Unit> root) {
      return fsdp2::train::make_sgd(std::move(root), capi::sgd_options(options));
    });
  });
}

fsdp2_status fsdp2_muon_options_init(fsdp2_muon_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kMuonDefaults, "options");
  });
}

fsdp2_status fsdp2_optimizer_create_muon(fsdp2_shard shard, const fsdp2_muon_options* options,
                                         fsdp2_optimizer* out) {
  return guard(__func__, [&](Call& call) {
    capi::check_not_null(out, "out");
    out->id = capi::give_optimizer(call, shard, [&](std::shared_ptr<fsdp2::fsdp::Unit> root) {
      return fsdp2::train::make_muon(std::move(root), capi::muon_options(options));
    });
  });
}

fsdp2_status fsdp2_optimizer_add_adamw_group(fsdp2_optimizer optimizer, const char* const* names,
                                             size_t n_names, const fsdp2_adamw_options* options) {
  return guard(__func__, [&](Call& call) {
    capi::add_group(call, optimizer, names, n_names, capi::adamw_options(options));
  });
}

fsdp2_status fsdp2_optimizer_add_sgd_group(fsdp2_optimizer optimizer, const char* const* names,
                                           size_t n_names, const fsdp2_sgd_options* options) {
  return guard(__func__, [&](Call& call) {
    capi::add_group(call, optimizer, names, n_names, capi::sgd_options(options));
  });
}

fsdp2_status fsdp2_optimizer_get_state(fsdp2_optimizer optimizer, size_t parameter,
                                       const char* name, int32_t which, fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    *out = capi::optimizer_state(call, *object, parameter, name, which, out);
  });
}

fsdp2_status fsdp2_optimizer_set_lr(fsdp2_optimizer optimizer, double lr) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    capi::enter(call, *object->shard->module);
    object->optimizer->set_lr(capi::check_number(lr, capi::kRate.low, capi::kRate.high, "lr"));
  });
}

fsdp2_status fsdp2_optimizer_get_lr(fsdp2_optimizer optimizer, double* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    capi::check_not_null(out, "out");
    capi::enter(call, *object->shard->module);
    *out = object->optimizer->lr();
  });
}

fsdp2_status fsdp2_optimizer_run(fsdp2_optimizer optimizer) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(optimizer);
    if (object->optimizer->communicates()) {
      capi::enter_collective(call, *object->shard->module);
      call.share_failure();
    } else {
      capi::enter(call, *object->shard->module);
    }
    fsdp2::train::check_not_half_updated(object->optimizer->root(), object->optimizer.get());
    object->optimizer->step();
    fsdp2::fsdp::Tree& tree = object->optimizer->root().tree();
    if (tree.cause_of_bad_values().empty()) {
      tree.set_cause_of_bad_values("an update whose gradients nobody has looked at");
    }
  });
}

fsdp2_status fsdp2_optimizer_destroy(fsdp2_optimizer optimizer) {
  return capi::destroy(__func__, capi::Kind::kOptimizer, optimizer.id);
}

fsdp2_status fsdp2_optimizer_duplicate(fsdp2_optimizer optimizer, fsdp2_optimizer* out) {
  return capi::duplicate(__func__, capi::Kind::kOptimizer, optimizer, out);
}
