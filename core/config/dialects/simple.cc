#include <algorithm>

#include "core/config/dialects/dialects.h"
#include "core/config/dialects/shared_rows.h"
#include "core/config/locale_free.h"
#include "core/config/model_presets.h"

namespace fsdp2::config {

namespace {

constexpr char kSimpleDefault[] = "default of simple files";

void read_fsdp(const Value& value, Plan* plan) {
  if (!value.as_bool()) {
    plan->set("strategy", "no_shard", origin_text(value));
  }
}

// Without FSDP there is nothing to choose. In the file either may come first.
void read_simple_strategy(const Value& value, Plan* plan) {
  const std::string strategy = value.as_text();
  std::string name = lower_case(strategy);
  name = name.substr(std::min(name.find_first_not_of('_'), name.size()));  // _HYBRID_SHARD_ZERO2
  const std::vector<std::string> known = strategy_names();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    value.refuse_type("FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2");
  }
  if (plan->options.strategy != "no_shard") {
    plan->set("strategy", name, origin_text(value));
  }
}

void read_simple_model(const Value& value, Plan* plan) {
  const bool is_preset = is_model_preset(value.as_text());
  plan->set(is_preset ? "model-config" : "model", value.as_text(), origin_text(value));
}

void read_simple_data(const Value& value, Plan* plan) {
  const std::string path = value.as_text();
  const std::string ending = ".bin";
  const bool has_tokens = path.size() > ending.size() &&
                          path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
  plan->set(has_tokens ? "tokens" : "text", path, origin_text(value));
}

}  // namespace

std::vector<Row> simple_rows() {
  return {
      reads("fsdp", "strategy (false: no_shard)", read_fsdp),
      reads("sharding_strategy", "strategy", read_simple_strategy),
      sets("world_size", "world-size"),
      not_provided("compile", {"false"}, "compilation of the model"),
      reads("model", "model-config for a preset, else model", read_simple_model),
      reads("data", "tokens for FILE.bin, else text", read_simple_data),
      sets("train_batch", "global-batch"),
      sets("steps", "steps"),
      sets("learning_rate", "lr"),
      sets("resume_from", "resume"),
      sets("out_dir", "save-dir"),
      sets("save_every", "save-every"),
      reads_choice("full_state_dict", "save-weights", "full", "per-rank"),
  };
}

bool is_simple(const Node& root) {
  return root.find("fsdp") != nullptr || root.find("sharding_strategy") != nullptr ||
         root.find("train_batch") != nullptr;
}

void apply_simple(const Node& root, Plan* plan) {
  apply(simple_rows(), root.without({kOwnSection}), "", plan);
  if (plan->options.save_dir.empty() && plan->options.save_weights != "no") {
    plan->note("full_state_dict is not used without out_dir");
    plan->set("save-weights", "no", kSimpleDefault);
  }
  if (!plan->options.save_dir.empty() && plan->options.save_every == 0) {
    plan->set("save-every", plan->options.steps, kSimpleDefault);  // at the end alone
  }
}

}  // namespace fsdp2::config
