#include "client/objects.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/numbers.h"
#include "core/config/checks/group_rules.h"
#include "core/config/checks/require.h"

namespace fsdp2::client {

namespace {

// What AdamW takes, and Muon for what it leaves to AdamW.
template <typename Options>
void set_adamw(const config::TrainOptions& options, Options* out) {
  out->lr = options.lr;
  out->beta1 = options.beta1;
  out->beta2 = options.beta2;
  out->eps = options.eps;
  out->weight_decay = options.weight_decay;
}

void create_adamw(const config::TrainOptions& options, fsdp2_shard shard, Optimizer* out) {
  fsdp2_adamw_options adamw = FSDP2_ADAMW_OPTIONS_INIT;
  set_adamw(options, &adamw);
  adamw.coupled_decay = options.optimizer == "adam" ? 1 : 0;
  adamw.state_dtype = options.optimizer_states == "default"
                          ? FSDP2_DTYPE_KEEP
                          : dtype_number(options.optimizer_states);
  check(fsdp2_optimizer_create_adamw(shard, &adamw, out->out()));
}

void create_muon(const config::TrainOptions& options, fsdp2_shard shard, Optimizer* out) {
  fsdp2_muon_options muon = FSDP2_MUON_OPTIONS_INIT;
  set_adamw(options, &muon);
  muon.momentum = options.muon_momentum;
  muon.newton_schulz_steps = static_cast<int32_t>(options.ns_steps);
  muon.matched_adamw_rms = options.matched_adamw_rms;
  check(fsdp2_optimizer_create_muon(shard, &muon, out->out()));
}

void create_sgd(const config::TrainOptions& options, fsdp2_shard shard, Optimizer* out) {
  fsdp2_sgd_options sgd = FSDP2_SGD_OPTIONS_INIT;
  sgd.lr = options.lr;
  sgd.momentum = options.momentum;
  sgd.weight_decay = options.weight_decay;
  check(fsdp2_optimizer_create_sgd(shard, &sgd, out->out()));
}

const std::map<std::string, void (*)(const config::TrainOptions&, fsdp2_shard, Optimizer*)>
    kOptimizers = {{"adamw", create_adamw},
                   {"adam", create_adamw},
                   {"muon", create_muon},
                   {"sgd", create_sgd}};

uint32_t decay_flags(const std::string& kinds) {
  const config::NoDecay exempt = config::read_no_decay(kinds);
  uint32_t flags = 0;
  flags |= exempt.norms ? uint32_t{FSDP2_NO_DECAY_NORMS} : 0;
  flags |= exempt.biases ? uint32_t{FSDP2_NO_DECAY_BIASES} : 0;
  return flags;
}

void exempt_from_decay(const std::string& names, uint32_t flags, fsdp2_optimizer optimizer) {
  if (!names.empty()) {
    const std::vector<std::string> parts = config::parts_of(names);
    const std::vector<const char*> texts = texts_of(parts);
    check(fsdp2_optimizer_exempt_named_from_decay(optimizer, texts.data(), texts.size(), flags));
  }
}

// The name of each parameter that trains.
std::vector<std::string> names_of_trained(fsdp2_shard shard) {
  size_t count = 0;
  check(fsdp2_shard_get_parameter_count(shard, &count));
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    const auto info = info_of<fsdp2_parameter_info>(fsdp2_shard_get_parameter_info, shard, i);
    if (info.requires_grad != 0) {
      names.push_back(text_of(fsdp2_shard_get_parameter_name, shard, i, size_t{0}));
    }
  }
  return names;
}

void apply_lr_plan(const config::TrainOptions& options, fsdp2_shard shard,
                   fsdp2_optimizer optimizer) {
  if (options.lr_plan.empty()) {
    return;
  }
  for (const config::LrPlan::Rule& rule :
       config::LrPlan(options.lr_plan).rules_for(names_of_trained(shard))) {
    if (rule.factor != 1.0) {  // such a rule keeps names from later ones, or is about all the rest
      const std::vector<const char*> texts = texts_of(rule.names);
      check(fsdp2_optimizer_scale_named_lr(optimizer, texts.data(), texts.size(), rule.factor));
    }
  }
}

}  // namespace

void make_optimizer(const config::TrainOptions& options, fsdp2_shard shard, Optimizer* out) {
  kOptimizers.at(options.optimizer)(options, shard, out);
  check(fsdp2_optimizer_exempt_from_decay(out->get(), decay_flags(options.no_decay)));
  exempt_from_decay(options.no_decay_names, 0, out->get());
  exempt_from_decay(options.no_decay_classes, FSDP2_NO_DECAY_BY_CLASS, out->get());
  apply_lr_plan(options, shard, out->get());
  for (const config::LrScale& scale : config::read_lr_scales(options.lr_scale)) {
    check(fsdp2_optimizer_scale_lr(out->get(), scale.pattern.c_str(), scale.factor));
  }
}

}  // namespace fsdp2::client
