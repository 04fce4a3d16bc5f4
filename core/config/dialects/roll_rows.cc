#include <sstream>
#include <utility>

#include "core/config/dialects/device_list.h"
#include "core/config/dialects/dialects.h"
#include "core/config/dialects/roll_strategy.h"
#include "core/config/dialects/shared_rows.h"

namespace fsdp2::config {

namespace {

void read_positive_steps(const Value& value, Plan* plan) {
  if (value.as_whole() > 0) {
    plan->read("steps", value);
  }
}

void read_resume(const Value& value, Plan* plan) {
  const bool is_bool = value.node.kind == Node::Kind::kBool;
  const std::string path = is_bool ? (value.as_bool() ? "auto" : "") : value.as_text();
  plan->set("resume", path, origin_text(value));
}

void read_schedule(const Value& value, Plan* plan) {
  const std::string name =
      value.as_one_of({"linear", "cosine", "constant", "constant_with_warmup"});
  plan->set("lr-schedule", name.substr(0, name.find('_')), origin_text(value));
}

void read_freeze(const Value& value, Plan* plan) {
  std::vector<std::string> patterns;
  for (const std::string& text : value.as_texts()) {
    std::istringstream prefixes(text);
    for (std::string prefix; std::getline(prefixes, prefix, ',');) {
      patterns.push_back(prefix + "*");
    }
  }
  plan->set("freeze", with_commas(patterns), origin_text(value));
}

void read_strategy_name(const Value& value, Plan* plan) {
  const std::string name = value.as_text();
  const bool infers = plan->purpose == Purpose::kInfer;
  if (name == "fsdp2_train" || (name == "fsdp2_infer" && infers)) {
    return;
  }
  value.refuse(name == "fsdp2_infer"
                   ? "fsdp2_infer: not provided by fsdp2 train, which trains; fsdp2 score takes it"
                   : name + ": not provided by libfsdp2; expected fsdp2_train" +
                         (infers ? " or fsdp2_infer" : ""));
}

void read_storage(const Value& value, Plan* plan) {
  if (value.node.kind != Node::Kind::kText || value.node.text != "param") {
    plan->read("dtype", value);
  }
}

void read_param_dtype(const Value& value, Plan* plan) {
  plan->read("param-dtype", value);
  const std::string& dtype = plan->options.param_dtype;
  if (dtype == "fp16") {
    plan->set("loss-scale", 65536.0, origin_text(value));
  }
  if (dtype == "fp16" || dtype == "auto") {  // which may become fp16
    plan->set("loss-scale-interval", int64_t{400}, origin_text(value));
  }
}

void read_devices(const Value& value, Plan* plan) {
  plan->set("world-size", count_devices(value), origin_text(value));
}

void read_timeout(const Value& value, Plan* plan) {
  constexpr double kSecondsPerMinute = 60;
  plan->set("timeout-s", value.as_number() * kSecondsPerMinute, origin_text(value));
}

// A row for a key that means something only together with others: see finish.
Row reads_later(const std::string& path, const std::string& keys, Row::Read check) {
  return reads(path, keys, std::move(check));
}

void check_bool(const Value& value, Plan* /*plan*/) { value.as_bool(); }
void check_whole(const Value& value, Plan* /*plan*/) { value.as_whole(); }
void check_positive(const Value& value, Plan* /*plan*/) {
  if (value.as_whole() < 1) {
    value.refuse(value.node.text + " is below 1");
  }
}
// The models whose MLPs ROLL can tile. The library tiles whichever gated MLPs a model has.
void check_tiled_model(const Value& value, Plan* /*plan*/) {
  value.as_one_of({"llama", "qwen2", "qwen2_5", "qwen3", "qwen3_moe"});
}
void check_number(const Value& value, Plan* /*plan*/) { value.as_number(); }
void check_text(const Value& value, Plan* /*plan*/) { value.as_text(); }
void check_texts(const Value& value, Plan* /*plan*/) { value.as_texts(); }

void add_ignored(std::vector<Row>* rows, const std::string& section,
                 const std::vector<std::string>& keys, const std::string& why) {
  for (const std::string& key : keys) {
    rows->push_back(ignored(section + key, why));
  }
}

}  // namespace

std::vector<Row> roll_rows() {
  std::vector<Row> rows = {
      sets("seed", "seed"),
      sets("max_grad_norm", "clip"),
      sets("pretrain", "model"),
      sets("student_pretrain", "model"),
      sets("sequence_length", "seq-len"),
      sets("logging_steps", "log-every"),
      reads("max_steps", "steps", read_positive_steps),
      reads("resume_from_checkpoint", "resume (true: auto)", read_resume),
      reads_later("output_dir", "save-dir", check_text),
      reads_later("eval_steps", "eval-every, with libfsdp2.eval_data", check_whole),
      reads_later("save_steps", "save-every, with output_dir", check_whole),
      reads_later("max_ckpt_to_keep", "keep-last, with output_dir", check_whole),
      reads_later("prompt_length", "seq-len, with response_length", check_whole),
      reads_later("response_length", "seq-len, with prompt_length", check_whole),
      ignored("checkpoint_config", "copies of checkpoints elsewhere are not made"),
      not_provided("is_offload_optimizer_states_in_train_step", {"false"},
                   "moving optimizer states within a step; offload_policy keeps them there"),
  };
  add_ignored(
      &rows, "",
      {"hydra", "defaults", "exp_name", "logging_dir", "base_dir", "rollout_dump_dir", "track_with",
       "tracker_kwargs", "system_envs", "rpc_timeout", "num_nodes", "num_gpus_per_node",
       "local_rank", "model_download_type", "profiler_timeline", "profiler_memory",
       "profiler_output_dir", "length_profiler_dir", "report_length_and_rewards"},
      "ROLL's own process and its logs");
  add_ignored(&rows, "",
              {"validation", "val_batch_size", "val_prompt_length", "val_sequence_length",
               "prompt_key", "question_key", "response_key", "query_key", "global_template"},
              "libfsdp2's tokens, text or records name the data");
  add_ignored(&rows, "",
              {"rollout_batch_size",
               "generate_opt_level",
               "is_num_return_sequences_expand",
               "max_running_requests",
               "is_use_additional_prompts",
               "max_additional_running_prompts",
               "user_defined_rollout_loop_cls",
               "num_return_sequences_in_group",
               "rollout_mock",
               "reward_pretrain",
               "rewards",
               "reward_filter_mean_threshold",
               "ppo_epochs",
               "adv_estimator",
               "init_kl_coef",
               "kl_penalty",
               "kl_horizon",
               "target_kl",
               "value_clip",
               "reward_clip",
               "advantage_clip",
               "dual_clip_loss",
               "norm_mean_type",
               "norm_std_type",
               "reward_norm",
               "reward_shift",
               "reward_scale",
               "max_len_mask",
               "difficulty_mask",
               "difficulty_low_threshold",
               "difficulty_high_threshold",
               "error_max_len_clip",
               "difficulty_loss_weight",
               "length_loss_weight",
               "add_token_level_kl",
               "whiten_advantages",
               "whiten_rewards",
               "use_kl_loss",
               "kl_loss_coef",
               "kl_loss_type",
               "entropy_loss_coef",
               "loss_agg_mode",
               "vf_coef",
               "gamma",
               "lambd",
               "pg_clip",
               "pg_clip_low",
               "pg_clip_high",
               "use_pg_clip_range",
               "importance_sampling",
               "use_reward_scaling",
               "use_reward_norm",
               "async_generation_ratio",
               "pg_variant",
               "render_save_dir",
               "reward_normalization",
               "actor_infer",
               "max_tokens_per_step",
               "custom_envs",
               "train_env_manager",
               "val_env_manager",
               "model_update_buffer_size_mb",
               "is_offload_states"},
              "rollouts, rewards and policy gradients");
  add_ignored(&rows, "",
              {"teacher_pretrain", "distill_loss_weight", "distill_on_prompt", "kd_objective",
               "logits_topk", "logits_transfer_backend"},
              "distillation");
  add_ignored(&rows, "", {"lora_rank", "lora_alpha", "lora_target"},
              "roles have LoRA, and these are for ${...}");
  return rows;
}

std::vector<Row> roll_role_rows() {
  std::vector<Row> rows = {
      sets("model_args.model_name_or_path", "model"),
      reads_opposite("model_args.disable_gradient_checkpointing", "activation-checkpointing"),
      reads("model_args.freeze_module_prefix", "freeze", read_freeze),
      sets("model_args.ulysses_size", "ulysses-size"),
      sets("model_args.model_config_kwargs", "config-overrides"),
      not_provided("model_args.model_type", {}, "reward and value heads"),
      not_provided("model_args.lora_target", {}, "LoRA"),
      not_provided("model_args.adapter_name_or_path", {}, "LoRA"),
      sets("training_args.learning_rate", "lr"),
      sets("training_args.weight_decay", "weight-decay"),
      sets("training_args.max_grad_norm", "clip"),
      sets("training_args.adam_beta1", "beta1"),
      sets("training_args.adam_beta2", "beta2"),
      sets("training_args.adam_epsilon", "eps"),
      reads("training_args.lr_scheduler_type", "lr-schedule", read_schedule),
      reads_later("training_args.warmup_steps", "warmup", check_whole),
      reads_later("training_args.warmup_ratio", "warmup-ratio", check_number),
      sets("training_args.per_device_train_batch_size", "micro-batch"),
      sets("training_args.gradient_accumulation_steps", "grad-accum"),
      reads_later("training_args.max_steps", "steps", check_whole),
      reads_later("training_args.num_train_epochs", "epochs, without a max_steps above 0",
                  check_number),
      reads("strategy_args.strategy_name", "", read_strategy_name),
      sets(roll_strategy("fsdp_size"), "fsdp-size"),
      reads(roll_strategy("param_dtype"), "param-dtype; fp16: loss-scale too", read_param_dtype),
      sets(roll_strategy("reduce_dtype"), "reduce-dtype"),
      sets(roll_strategy("output_dtype"), "output-dtype"),
      reads(roll_strategy("storage_dtype"), "dtype (param: that of param_dtype)", read_storage),
      reads(roll_strategy("cast_forward_inputs"), "cast-forward-inputs (auto: false)",
            [](const Value& value, Plan* plan) {
              const std::string word = value.as_one_of({"auto", "true", "false"});
              plan->set("cast-forward-inputs", word == "auto" ? "false" : word.c_str(),
                        origin_text(value));
            }),
      reads_reshard(roll_strategy("reshard_after_forward")),
      sets(roll_strategy("offload_policy"), "cpu-offload"),
      reads_choice(roll_strategy("wrap_policy.wrap_embeddings"), "wrap-embeddings", "yes",
                   "untied"),
      sets(roll_strategy("wrap_policy.wrap_lm_output"), "wrap-head"),
      sets(roll_strategy("wrap_policy.transformer_layer_cls_to_wrap"), "wrap"),
      reads_later(roll_strategy("wrap_policy.moe_experts"), "wrap, with apply_expert_patch",
                  check_texts),
      reads_later(roll_strategy("apply_expert_patch"), "wrap, with wrap_policy.moe_experts",
                  check_bool),
      reads_choice(roll_strategy("reduce_scatter_during_grad_accumulation"), "accum-sync", "every",
                   "last"),
      reads_opposite(roll_strategy("async_save_ckpt"), "sync-save"),
      sets(roll_strategy("max_consecutive_skips"), "max-skips-in-row"),
      reads(roll_strategy("load"), "load-from-rank0",
            [](const Value& value, Plan* plan) {
              const std::string word = value.as_one_of({"slices", "broadcast"});
              plan->set("load-from-rank0", word == "broadcast", origin_text(value));
            }),
      sets(roll_strategy("save_only_model"), "save-only-model"),
      not_provided(roll_strategy("ep_size"), {"1"}, "expert parallelism"),
      not_provided(roll_strategy("efsdp_size"), {"1"}, "expert parallelism"),
      ignored(roll_strategy("moe_use_grouped_mm"), "experts run in groups wherever it is faster"),
      reads_later(roll_strategy("apply_tiled_mlp"), "mlp-tiles, with tiled_num_shards", check_bool),
      reads_later(roll_strategy("tiled_num_shards"), "mlp-tiles, with apply_tiled_mlp",
                  check_positive),
      reads(roll_strategy("model_type"), "", check_tiled_model),
      sets(roll_strategy("shard_dim"), "shard-dim"),
      reads_later(roll_strategy("compat"), "dtype, shard-dim and resume-partial, as ROLL has them",
                  [](const Value& value, Plan*) { value.as_one_of({"strict-source"}); }),
      ignored(roll_strategy("forward_prefetch"), "units are gathered one ahead of use"),
      ignored(roll_strategy("use_batched_model_update"), "updates of rollout workers"),
      reads("device_mapping", "world-size", read_devices),
      reads("backend_timeout", "timeout-s, in minutes", read_timeout),
      reads_choice("apply_loss_scale", "loss-mean", "labels", "micro-batches"),
      ignored("logits_in_fp32", "logits are always cast to fp32 for the loss"),
      ignored("use_sequence_packing", "records are packed into windows in either case"),
      not_provided("use_dynamic_batching_in_train", {"false"}, "batches by length"),
      ignored("checkpoint_config", "copies of checkpoints elsewhere are not made"),
  };
  add_ignored(&rows, "model_args.", {"dtype"}, "storage_dtype says it");
  add_ignored(&rows, "model_args.",
              {"attn_implementation", "flash_attn", "gradient_checkpointing_use_reentrant",
               "moe_aux_loss_coef", "freeze_vision_tower", "min_pixels", "max_pixels"},
              "the library chooses");
  add_ignored(&rows, "model_args.",
              {"lora_rank", "lora_r", "lora_alpha", "lora_dropout", "additional_target"},
              "LoRA is off");
  add_ignored(&rows, "training_args.", {"seed", "logging_steps", "save_steps", "eval_steps"},
              "the file's own keys say it");
  add_ignored(&rows, "",
              {"data_args", "generating_args", "infer_batch_size", "worker_cls", "system_envs",
               "name", "pg_variant", "num_gpus_per_worker", "use_remove_padding", "offload_nccl",
               "max_concurrency", "model_update_frequency", "max_tokens_per_microbatch_in_train",
               "sequence_length_round_in_train", "use_dynamic_batching_in_infer",
               "max_tokens_per_microbatch_in_infer", "sequence_length_round_in_infer"},
              "rollouts, and data, which libfsdp2's tokens, text or records name");
  return rows;
}

}  // namespace fsdp2::config
