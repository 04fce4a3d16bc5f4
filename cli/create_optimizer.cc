#include "cli/create_optimizer.h"

#include <map>
#include <string>

#include "cli/sharding.h"

namespace fsdp2::cli {

namespace {

using config::TrainOptions;

// What AdamW takes, and Muon for what it leaves to AdamW.
template <typename Options>
void set_adamw(const TrainOptions& options, Options* out) {
  out->lr = options.lr;
  out->beta1 = options.beta1;
  out->beta2 = options.beta2;
  out->eps = options.eps;
  out->weight_decay = options.weight_decay;
}

void create_adamw(const TrainOptions& options, const Shard& shard, Optimizer* out) {
  fsdp2_adamw_options adamw = FSDP2_ADAMW_OPTIONS_INIT;
  set_adamw(options, &adamw);
  adamw.coupled_decay = options.optimizer == "adam" ? 1 : 0;
  adamw.state_dtype = options.optimizer_states == "default"
                          ? FSDP2_DTYPE_KEEP
                          : dtype_number(options.optimizer_states);
  check(fsdp2_optimizer_create_adamw(shard.get(), &adamw, out->out()));
}

void create_muon(const TrainOptions& options, const Shard& shard, Optimizer* out) {
  fsdp2_muon_options muon = FSDP2_MUON_OPTIONS_INIT;
  set_adamw(options, &muon);
  muon.momentum = options.muon_momentum;
  muon.newton_schulz_steps = static_cast<int32_t>(options.ns_steps);
  muon.matched_adamw_rms = options.matched_adamw_rms;
  check(fsdp2_optimizer_create_muon(shard.get(), &muon, out->out()));
}

void create_sgd(const TrainOptions& options, const Shard& shard, Optimizer* out) {
  fsdp2_sgd_options sgd = FSDP2_SGD_OPTIONS_INIT;
  sgd.lr = options.lr;
  sgd.momentum = options.momentum;
  sgd.weight_decay = options.weight_decay;
  check(fsdp2_optimizer_create_sgd(shard.get(), &sgd, out->out()));
}

const std::map<std::string, void (*)(const TrainOptions&, const Shard&, Optimizer*)> kOptimizers = {
    {"adamw", create_adamw}, {"adam", create_adamw}, {"muon", create_muon}, {"sgd", create_sgd}};

}  // namespace

void create_optimizer(const TrainOptions& options, const Shard& shard, Optimizer* out) {
  kOptimizers.at(options.optimizer)(options, shard, out);
}

}  // namespace fsdp2::cli
