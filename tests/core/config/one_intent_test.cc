// One intent in the words of each dialect is one plan, and so one text for ranks to compare.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/config/dialects/dialects.h"
#include "core/config/key_table.h"
#include "core/config/resolve.h"
#include "tests/core/config/plans.h"

namespace fsdp2::config {
namespace {

// A file and its dialect's rows. What another dialect says and this one cannot stands under
// libfsdp2.
struct Wording {
  std::string name;
  std::vector<Row> rows;
  std::string text;
};

std::vector<Row> all_roll_rows() {
  std::vector<Row> rows = roll_rows();
  const std::vector<Row> of_roles = roll_role_rows();
  rows.insert(rows.end(), of_roles.begin(), of_roles.end());
  return rows;
}

// No value is a default of the library. in_epochs: the length of the run, which is in steps else.
std::vector<Wording> wordings(bool in_epochs) {
  const std::string roll_length = in_epochs ? "num_train_epochs: 2" : "max_steps: 20";
  const std::string mm_length = in_epochs ? "train_epochs: 2" : "train_iters: 20";
  const std::string own_length = in_epochs ? "epochs: 2" : "steps: 20";
  return {
      {"roll", all_roll_rows(),
       "seed: 7\nmax_grad_norm: 0.5\npretrain: DIR\nsequence_length: 64\noutput_dir: OUT\n"
       "save_steps: 10\nlogging_steps: 2\neval_steps: 5\nresume_from_checkpoint: OLD\n"
       "actor_train:\n"
       "  device_mapping: 'list(range(0,4))'\n"
       "  model_args: {disable_gradient_checkpointing: false, ulysses_size: 2,\n"
       "    freeze_module_prefix: visual, model_config_kwargs: {output_router_logits: true,\n"
       "      router_aux_loss_coef: 0.5}}\n"
       "  training_args: {learning_rate: 1.0e-3, per_device_train_batch_size: 2,\n"
       "    weight_decay: 0.2, gradient_accumulation_steps: 3, warmup_ratio: 0.25,\n"
       "    adam_beta1: 0.8, adam_beta2: 0.75, adam_epsilon: 1.0e-6, lr_scheduler_type: cosine,\n  "
       "  " +
           roll_length +
           "}\n"
           "  strategy_args:\n"
           "    strategy_name: fsdp2_train\n"
           "    strategy_config: {fsdp_size: 2, param_dtype: bf16, reduce_dtype: bfloat16,\n"
           "      output_dtype: float32, reshard_after_forward: 2, cast_forward_inputs: false,\n"
           "      offload_policy: true, async_save_ckpt: false, load: broadcast}\n"
           "  apply_loss_scale: false\n"
           "libfsdp2: {tokens: t.bin, wrap: none, wrap_names: 'model.layers.{*}',\n"
           "  not_finite: error, wrap_embeddings: no, recompute_names: 'model.layers.{*}',\n"
           "  max_skips_in_row: 100, timeout_s: 600, eval_data: e.bin, prefetch: 2,\n"
           "  ignored_modules: merger}\n"},
      {"mm", mm_rows(),
       "parallel:\n"
       "  data_parallel_size: 2\n  ulysses_parallel_size: 2\n  fully_shard_parallel_size: 2\n"
       "  fsdp_plan: {apply_modules: ['model.layers.{*}'], param_dtype: bf16,\n"
       "    reduce_dtype: bf16, output_dtype: fp32, cast_forward_inputs: false,\n"
       "    reshard_after_forward: 2, cpu_offload: true, num_to_forward_prefetch: 2,\n"
       "    num_to_backward_prefetch: 2, ignored_modules: [merger]}\n"
       "  recompute: true\n"
       "  recompute_plan: {apply_modules: ['model.layers.{*}']}\n"
       "features: {loss_cfg: {router_aux_loss_coef: 0.5}}\n"
       "model: {model_name_or_path: DIR, freeze: 'visual*'}\n"
       "data: {dataset_param: {basic_parameters: {cutoff_len: 64}}}\n"
       "training: {lr: 1.0e-3, lr_decay_style: cosine, lr_warmup_ratio: 0.25, weight_decay: 0.2,\n"
       "  clip_grad: 0.5, micro_batch_size: 2, gradient_accumulation_steps: 3, seed: 7,\n"
       "  adam_beta1: 0.8, adam_beta2: 0.75, adam_eps: 1.0e-6, log_interval: 2, val_interval: 5,\n"
       "  load: OLD, load_strict: true, load_rank0_and_broadcast: true, save: OUT,\n"
       "  save_interval: 10, save_async: false, " +
           mm_length + "}\nlibfsdp2: {tokens: t.bin, eval_data: e.bin}\n"},
      {"mm-legacy", mm_legacy_rows(),
       "sharding_size: 2\n"
       "sub_modules_to_wrap: ['model.layers.{*}']\n"
       "param_dtype: \"bf16\"\nreduce_dtype: \"bf16\"\noutput_dtype: \"fp32\"\n"
       "cast_forward_inputs: false\nreshard_after_forward: 2\noffload_to_cpu: true\n"
       "num_to_forward_prefetch: 2\nnum_to_backward_prefetch: 2\nignored_modules: [merger]\n"
       "recompute_modules: ['model.layers.{*}']\n"
       "libfsdp2: {model: DIR, tokens: t.bin, seq_len: 64, lr: 1.0e-3, lr_schedule: cosine,\n"
       "  warmup_ratio: 0.25, weight_decay: 0.2, clip: 0.5, micro_batch: 2, grad_accum: 3,\n"
       "  seed: 7, beta1: 0.8, beta2: 0.75, eps: 1.0e-6, log_every: 2, eval_every: 5,\n"
       "  eval_data: e.bin, resume: OLD, load_from_rank0: true, save_dir: OUT, save_every: 10,\n"
       "  sync_save: true, world_size: 4, ulysses_size: 2, freeze: 'visual*',\n"
       "  config_overrides: {output_router_logits: true, router_aux_loss_coef: 0.5}, " +
           own_length + "}\n"}};
}

// The keys that a dialect's rows set, as far as the beginning of their texts names them.
std::set<std::string> keys_of(const Wording& wording) {
  std::set<std::string> keys;
  for (const Row& row : wording.rows) {
    const std::string text = row.text.rfind("not ", 0) == 0 ? row.text.substr(4) : row.text;
    if (row.fate == Row::Fate::kSets) {
      keys.insert(text.substr(0, text.find_first_of(",; (")));
    }
  }
  return keys;
}

std::string value_of(const Plan& plan, const std::string& key) {
  TrainOptions options = plan.options;
  for (const Key& known : train_keys(&options)) {
    if (known.name == key) {
      return known.value_text();
    }
  }
  return "";
}

// Whether the plan has the key from the dialect's own words.
bool says(const Plan& plan, const std::string& key) {
  const std::string origin = plan.origin_of(key);
  return origin.rfind("default", 0) != 0 && origin.find("libfsdp2.") == std::string::npos;
}

// The length of a run is said in one of two ways.
bool is_other_length(const std::string& key, bool in_epochs) {
  return key == (in_epochs ? "steps" : "epochs");
}

// What ranks compare once the number of steps is known, which dialects have other defaults of.
std::string compared_text(Plan plan) {
  constexpr int64_t kStepsPerEpoch = 10;
  resolve_epochs(&plan, kStepsPerEpoch);
  return shared_text(plan.options);
}

TEST(OneIntent, IsOnePlanInEveryDialect) {
  for (const bool in_epochs : {false, true}) {
    const std::vector<Wording> all = wordings(in_epochs);
    const std::string first = compared_text(plan_from(all.front().text));
    for (const Wording& wording : all) {
      const Plan plan = plan_from(wording.text);
      EXPECT_EQ(compared_text(plan), first) << wording.name;
      EXPECT_EQ(compared_text(plan_from(plan.text())), first) << wording.name;
    }
  }
}

TEST(OneIntent, HasEachKeyThatTwoDialectsHaveInTheWordsOfBoth) {
  const Plan usual;
  for (const bool in_epochs : {false, true}) {
    const std::vector<Wording> all = wordings(in_epochs);
    for (const Wording& one : all) {
      const Plan plan = plan_from(one.text);
      const std::set<std::string> own = keys_of(one);
      for (const Wording& other : all) {
        for (const std::string& key : keys_of(other)) {
          if (&one == &other || own.count(key) == 0 || key.empty() ||
              is_other_length(key, in_epochs)) {
            continue;
          }
          EXPECT_TRUE(says(plan, key)) << one.name << " " << key << ": " << plan.origin_of(key);
          EXPECT_NE(value_of(plan, key), value_of(usual, key)) << one.name << " " << key;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fsdp2::config
