#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/config/dialects/dialects.h"
#include "core/config/dialects/shared_rows.h"

namespace fsdp2::config {

namespace {

constexpr char kMmDefault[] = "default of MindSpeed-MM";
constexpr char kOwnData[] = "libfsdp2's tokens, text or records name the data";

void read_units(const Value& value, Plan* plan) {
  plan->read("wrap-names", value);
  plan->set("wrap", "none", origin_text(value));
}

// Two places mean the same, and must not differ.
void read_same_flag(const Value& value, const std::string& key, bool known, Plan* plan) {
  const bool flag = value.as_bool();
  if (plan->origins.count(key) > 0 && known != flag) {
    value.refuse(value.node.text + " contradicts " + plan->origin_of(key));
  }
  plan->set(key, flag, origin_text(value));
}

void read_recompute_flag(const Value& value, Plan* plan) {
  read_same_flag(value, "activation-checkpointing", plan->options.activation_checkpointing, plan);
}

void read_pregather(const Value& value, Plan* plan) {
  read_same_flag(value, "pregather", plan->options.pregather, plan);
}

// Which modules; whether at all, `recompute` says. These two places must not differ either.
void read_recompute_plan(const Value& value, Plan* plan) {
  const std::string known = plan->options.recompute_names;
  const std::string where = plan->origin_of("recompute-names");
  plan->read("recompute-names", value);
  if (!known.empty() && plan->options.recompute_names != known) {
    value.refuse(plan->options.recompute_names + " contradicts " + where);
  }
}

void leave_out_unused_recompute(Plan* plan) {
  if (!plan->options.activation_checkpointing && !plan->options.recompute_names.empty()) {
    plan->set("recompute-names", "", plan->origin_of("activation-checkpointing"));
  }
}

void check_flag(const Value& value, Plan* /*plan*/) { value.as_bool(); }

void check_chunk(const Value& value, Plan* /*plan*/) {
  if (value.as_whole() < 1) {
    value.refuse(value.node.text + " is below 1");
  }
}

void check_head(const Value& value, Plan* /*plan*/) {
  if (value.as_text() != "lm_head") {
    value.refuse(value.node.text + ": not provided (the loss is that of lm_head)");
  }
}

// Whether at all and how many tokens at a time stand in two places.
void set_chunked_loss(const Node& root, Plan* plan) {
  constexpr int64_t kUsual = 1024;
  const Node* features = root.find("features");
  const Node* flag = features == nullptr ? nullptr : features->find("enable_chunk_loss");
  if (flag == nullptr || flag->kind == Node::Kind::kNull ||
      !Value{*flag, "features.enable_chunk_loss"}.as_bool()) {
    return;
  }
  const Node* chunks = features->find("chunkloss_plan");
  const Node* size = chunks == nullptr ? nullptr : chunks->find("chunk_size");
  if (size == nullptr || size->kind == Node::Kind::kNull) {
    plan->set("chunked-loss", kUsual, origin_text({*flag, "features.enable_chunk_loss"}));
  } else {
    plan->read("chunked-loss", {*size, "features.chunkloss_plan.chunk_size"});
  }
}

// The loss of the routers, which config.json turns on and weighs; 0 leaves that to it.
void read_router_loss(const Value& value, Plan* plan) {
  const double factor = value.as_number();
  if (factor < 0) {
    value.refuse(value.node.text + " is below 0");
  }
  if (factor > 0) {
    const nlohmann::json fields = {{"output_router_logits", true},
                                   {"router_aux_loss_coef", factor}};
    plan->set("config-overrides", fields.dump(), origin_text(value));
  }
}

void read_format(const Value& value, Plan* /*plan*/) {
  const std::string format = value.as_one_of({"auto", "hf", "dcp"});
  if (format == "hf" && value.path == "training.save_format") {
    value.refuse(
        "hf: not provided (checkpoints are DCP; --save-pretrained writes the model at the "
        "end)");
  }
}

void read_optimizer(const Value& value, Plan* plan) {
  plan->set("optimizer", value.as_one_of({"adamw", "muon"}), origin_text(value));
}

// Either of two keys asks for it.
void read_deterministic(const Value& value, Plan* plan) {
  if (value.as_bool() || plan->origins.count("deterministic") == 0) {
    plan->set("deterministic", value.as_bool(), origin_text(value));
  }
}

// Parts of names there, patterns of whole names here.
void read_no_decay_params(const Value& value, Plan* plan) {
  std::vector<std::string> patterns;
  for (const std::string& part : value.as_texts()) {
    patterns.push_back("*" + part + "*");
  }
  plan->set("no-decay-names", with_commas(patterns), origin_text(value));
}

// A list of {match, scale}.
void read_lr_plan(const Value& value, Plan* plan) {
  if (value.node.kind != Node::Kind::kList) {
    value.refuse_type("a list of {match: EXPRESSION, scale: FACTOR}");
  }
  std::string text;
  for (const Node& item : value.node.items) {
    const Node* match = item.find("match");
    const Node* scale = item.find("scale");
    if (match == nullptr || item.entries.size() != (scale == nullptr ? 1 : 2)) {
      Value{item, value.path}.refuse_type("{match: EXPRESSION, scale: FACTOR}");
    }
    const Value expression{*match, value.path + ".match"};
    if (expression.as_text().find(';') != std::string::npos) {
      expression.refuse(expression.as_text() + ": expected an expression without ;");
    }
    if (scale != nullptr) {
      Value{*scale, value.path + ".scale"}.as_number();
    }
    text += (text.empty() ? "" : ";") + expression.as_text() + "=" +
            (scale == nullptr ? "1" : scale->text);
  }
  plan->set("lr-plan", text, origin_text(value));
}

void read_part_of_lr(const Value& value, Plan* /*plan*/) { value.as_number(); }

// A learning rate as a fraction of the peak, which may come after it in the file.
void set_part_of_lr(const Node& root, const std::string& name, const std::string& key, Plan* plan) {
  const Node* training = root.find("training");
  const Node* part = training == nullptr ? nullptr : training->find(name);
  if (part == nullptr || part->kind == Node::Kind::kNull) {
    return;
  }
  const Value value{*part, "training." + name};
  const double lr = value.as_number();
  if (lr > plan->options.lr) {
    value.refuse("is above the learning rate");
  }
  plan->set(key, lr > 0 ? lr / plan->options.lr : 0.0, origin_text(value));
}

// Keys about loads and saves mean something where there is a place for them.
void set_places(const Node& root, Plan* plan) {
  if (plan->options.resume.empty()) {
    plan->set("resume-partial", false, kMmDefault);  // load_strict is about `load`
    plan->set("resume-without-optimizer", false, kMmDefault);
    plan->set("resume-without-rng", false, kMmDefault);
  }
  if (plan->options.save_dir.empty()) {
    plan->set("save-without-optimizer", false, kMmDefault);
    plan->set("save-without-rng", false, kMmDefault);
    return;
  }
  if (plan->origins.count("sync-save") == 0) {
    plan->set("sync-save", true, kMmDefault);
  }
  const Node* every = root.find("training")->find("save_interval");
  if (every == nullptr || every->kind == Node::Kind::kNull) {
    plan->set("save-every", int64_t{1}, kMmDefault);
  } else {
    plan->read("save-every", {*every, "training.save_interval"});
  }
}

bool has_enabled(const Node& node) {
  const Node* enable = node.find("enable");
  return (enable != nullptr && enable->kind == Node::Kind::kBool && enable->text[0] != 'f' &&
          enable->text[0] != 'F') ||
         std::any_of(node.entries.begin(), node.entries.end(),
                     [](const Node::Entry& entry) { return has_enabled(entry.second); });
}

void check_tool(const Value& value, Plan* /*plan*/) {
  if (has_enabled(value.node)) {
    value.refuse("not provided (traces and memory records)");
  }
}

void note_unused_steps(Plan* plan) {
  const bool has_steps = plan->origin_of("steps") != kMmDefault;
  if (plan->options.epochs > 0 && has_steps) {
    plan->note("training.train_iters is not used beside training.train_epochs");
  }
}

// The ranks that share sequences count as one in data_parallel_size.
void count_sequence_ranks(Plan* plan) {
  const TrainOptions& o = plan->options;
  constexpr int64_t kMostRanks = int64_t{1} << 31;
  const bool is_possible = o.world_size <= kMostRanks && o.ulysses_size <= kMostRanks;
  if (o.world_size > 0 && o.ulysses_size > 1 && is_possible) {
    plan->set("world-size", o.world_size * o.ulysses_size,
              plan->origin_of("world-size") + " x ulysses_parallel_size");
  }
}

}  // namespace

std::vector<Row> mm_rows() {
  const std::string plan = "parallel.fsdp_plan.";
  return {
      reads("parallel.data_parallel_size", "world-size, with ulysses_parallel_size",
            [](const Value& value, Plan* plan) { plan->read("world-size", value); }),
      reads_shard_size("parallel.fully_shard_parallel_size"),
      not_provided("parallel.tensor_parallel_size", {"1"}, "tensor parallelism"),
      not_provided("parallel.ring_attention_size", {"1"}, "attention around a ring of ranks"),
      sets("parallel.ulysses_parallel_size", "ulysses-size"),
      not_provided("parallel.context_parallel_size", {"1"}, "context parallelism"),
      reads("parallel.pregather", "pregather", read_pregather),
      not_provided("parallel.expert_parallel_size", {"1"}, "expert parallelism"),
      not_provided("parallel.expert_fully_shard_parallel_size", {"1"}, "expert parallelism"),
      reads(plan + "apply_modules", "wrap-names", read_units),
      sets(plan + "ignored_modules", "ignored-modules"),
      sets(plan + "param_dtype", "param-dtype"),
      sets(plan + "reduce_dtype", "reduce-dtype"),
      sets(plan + "output_dtype", "output-dtype"),
      reads_flag(plan + "cast_forward_inputs", "cast-forward-inputs"),
      reads_reshard(plan + "reshard_after_forward"),
      sets(plan + "cpu_offload", "cpu-offload"),
      reads_prefetch(plan + "num_to_forward_prefetch"),
      reads_prefetch(plan + "num_to_backward_prefetch"),
      reads(plan + "pregather", "pregather", read_pregather),
      not_provided(plan + "hook_modules", {}, "a unit's hooks on a module around it"),
      reads("parallel.recompute", "activation-checkpointing", read_recompute_flag),
      reads("parallel.recompute_plan.apply_modules", "recompute-names, with recompute",
            read_recompute_plan),
      ignored("parallel.recompute_plan.use_reentrant",
              "recomputation is of the other kind, with the same results"),
      ignored("parallel.ep_plan", "there is no expert parallelism"),
      ignored("parallel.tp_plan", "there is no tensor parallelism"),
      reads("features.recompute", "activation-checkpointing", read_recompute_flag),
      reads("features.recompute_plan.apply_modules", "recompute-names, with recompute",
            read_recompute_plan),
      ignored("features.recompute_plan.use_reentrant",
              "recomputation is of the other kind, with the same results"),
      reads("features.enable_chunk_loss", "chunked-loss, with chunkloss_plan", check_flag),
      reads("features.chunkloss_plan.chunk_size", "chunked-loss, with enable_chunk_loss",
            check_chunk),
      reads("features.chunkloss_plan.apply_module", "", check_head),
      ignored("features.chunkloss_plan.total_chunk_size", "chunk_size says it"),
      not_provided("features.enable_activation_offload", {"false"}, "offload of activations"),
      not_provided("features.enable_chunk_mbs", {"false"}, "micro batches in chunks"),
      not_provided("features.enable_ep_balance", {"false"}, "expert parallelism"),
      not_provided("features.loss_cfg.loss_type", {"default"}, "other losses"),
      reads("features.loss_cfg.router_aux_loss_coef", "config-overrides", read_router_loss),
      ignored("features.activation_offload_plan", "activations are not moved"),
      ignored("features.chunkmbs_plan", "micro batches are whole"),
      ignored("features.ep_balance_plan", "there is no expert parallelism"),
      sets("training.lr", "lr"),
      reads("training.lr_min", "min-lr-ratio", read_part_of_lr),
      reads("training.lr_start", "start-lr-ratio", read_part_of_lr),
      sets("training.lr_decay_style", "lr-schedule"),
      sets("training.lr_warmup_ratio", "warmup-ratio"),
      sets("training.lr_decay_ratio", "lr-decay-ratio"),
      sets("training.weight_decay", "weight-decay"),
      sets("training.no_decay_modules", "no-decay-classes"),
      reads("training.no_decay_params", "no-decay-names", read_no_decay_params),
      reads("training.optimizer", "optimizer", read_optimizer),
      sets("training.adam_beta1", "beta1"),
      sets("training.adam_beta2", "beta2"),
      sets("training.adam_eps", "eps"),
      ignored("training.adam_fused", "there is one implementation"),
      sets("training.muon_momentum", "muon-momentum"),
      sets("training.ns_steps", "ns-steps"),
      sets("training.matched_adamw_rms", "matched-adamw-rms"),
      sets("training.clip_grad", "clip"),
      ignored("training.clip_grad_foreach", "there is one implementation"),
      sets("training.micro_batch_size", "micro-batch"),
      sets("training.gradient_accumulation_steps", "grad-accum"),
      sets("training.seed", "seed"),
      sets("training.train_iters", "steps"),
      reads("training.train_epochs", "epochs, which go before train_iters",
            [](const Value& value, Plan* plan) {
              plan->set("epochs", epochs_in(value), origin_text(value));
            }),
      sets("training.log_interval", "log-every"),
      sets("training.val_interval", "eval-every"),
      ignored("training.init_model_with_meta_device", "models always begin without memory"),
      sets("training.load", "resume"),
      sets("training.save", "save-dir"),
      reads("training.save_interval", "save-every, with save",
            [](const Value& value, Plan*) { value.as_whole(); }),
      reads_opposite("training.save_async", "sync-save"),
      reads("training.load_format", "", read_format),
      reads("training.save_format", "", read_format),
      reads_opposite("training.load_strict", "resume-partial"),
      sets("training.load_rank0_and_broadcast", "load-from-rank0"),
      sets("training.no_load_optim", "resume-without-optimizer"),
      sets("training.no_load_rng", "resume-without-rng"),
      sets("training.no_save_optim", "save-without-optimizer"),
      sets("training.no_save_rng", "save-without-rng"),
      sets("training.save_ckpt_dtype", "export-dtype"),
      reads("training.use_deter_comp", "deterministic", read_deterministic),
      ignored("training.manual_gc_interval", "there is no garbage to collect"),
      reads("training.lr_scaling_plan", "lr-plan", read_lr_plan),
      not_provided("training.quantization_plan", {}, "quantization"),
      not_provided("training.lora", {}, "LoRA"),
      reads("training.enable_full_determinism", "deterministic", read_deterministic),
      ignored("training.val_micro_batch_size",
              "evaluation has micro batches as large as those of training"),
      ignored("training.allow_hf32", "a setting of another device"),
      ignored("training.plugin", "modules of Python"),
      sets("model.model_name_or_path", "model"),
      sets("model.freeze", "freeze"),
      ignored("model.attn_implementation", "the library chooses"),
      ignored("model.*", "the model's config.json says it"),
      sets("data.dataset_param.basic_parameters.cutoff_len", "seq-len"),
      ignored("data.dataset_param.basic_parameters", kOwnData),
      ignored("data.dataset_param.basic_parameters.*", kOwnData),
      ignored("data.dataset_param", kOwnData),
      ignored("data.dataset_param.*", kOwnData),
      ignored("data", kOwnData),
      ignored("data.*", kOwnData),
      reads("tools", "", check_tool),
  };
}

bool is_mm(const Node& root) { return root.find("parallel") != nullptr; }

void apply_mm(const Node& root, Plan* plan) {
  plan->set("seed", uint64_t{42}, kMmDefault);
  plan->set("lr", 5e-5, kMmDefault);
  plan->set("weight-decay", 0.0, kMmDefault);
  plan->set("beta2", 0.999, kMmDefault);
  plan->set("clip", 1.0, kMmDefault);
  plan->set("micro-batch", int64_t{1}, kMmDefault);
  plan->set("steps", int64_t{10000}, kMmDefault);
  plan->set("wrap", "none", kMmDefault);
  plan->set("reshard-after-forward", "true", kMmDefault);
  apply(mm_rows(), root.without({kOwnSection}), "", plan);
  note_unused_steps(plan);
  count_sequence_ranks(plan);
  leave_out_unused_recompute(plan);
  set_chunked_loss(root, plan);
  set_part_of_lr(root, "lr_min", "min-lr-ratio", plan);
  set_part_of_lr(root, "lr_start", "start-lr-ratio", plan);
  set_places(root, plan);
}

}  // namespace fsdp2::config
