// All dialects alike, and ROLL's files: what their keys come to, and what is said about wrong ones.
#include "core/config/dialects/dialects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tests/core/config/plans.h"

namespace fsdp2::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// "a.b.c" as {a: {b: {c: value}}}, on line 2 of a file.
std::string nested(const std::string& path, const std::string& value) {
  std::string text = value;
  for (std::string rest = path; !rest.empty();) {
    const size_t dot = rest.rfind('.');
    const std::string key = dot == std::string::npos ? rest : rest.substr(dot + 1);
    text = "{" + key + ": " + text + "}";
    rest = dot == std::string::npos ? "" : rest.substr(0, dot);
  }
  return text.substr(1, text.size() - 2) + "\n";
}

// A table of keys, and where they stand in a file.
struct Table {
  std::string name;
  std::vector<Row> rows;
  std::string before;  // one line that makes the file one of the dialect
  std::string prefix;
};

std::vector<Table> tables() {
  return {{"roll", roll_rows(), "actor_train: {strategy_args: {}}\n", ""},
          {"roll role", roll_role_rows(), "", "actor_train."},
          {"mm", mm_rows(), "", ""},
          {"mm-legacy", mm_legacy_rows(), "sharding_size: auto\n", ""},
          {"simple", simple_rows(), "", ""}};
}

// A file with one key, which the dialect is still recognised by.
std::string file_with_key(const Table& table, const std::string& path, const std::string& value) {
  if (table.name == "mm") {
    const bool is_parallel = path.rfind("parallel.", 0) == 0;
    return std::string(is_parallel ? "model: {}\n" : "parallel: {}\n") + nested(path, value);
  }
  if (table.name == "simple") {
    return (path == "fsdp" ? "train_batch: 8\n" : "fsdp: true\n") + nested(path, value);
  }
  return table.before + nested(path, value);
}

std::string role_file(const std::string& path, const std::string& value) {
  const bool is_strategy = path.rfind("strategy_args.", 0) == 0;
  return "seed: 1\nactor_train:\n  " + nested(path, value) +
         (is_strategy ? "" : "  strategy_args: {strategy_name: fsdp2_train}\n");
}

std::string text_with(const Table& table, const std::string& path, const std::string& value) {
  return table.name == "roll role" ? role_file(path, value) : file_with_key(table, path, value);
}

int line_of(const Table& table) { return table.name == "roll role" ? 3 : 2; }

TEST(Dialects, AMisspeltKeyGivesTheOneThatWasMeant) {
  for (const Table& table : tables()) {
    std::set<std::string> paths;
    for (const Row& row : table.rows) {
      EXPECT_TRUE(paths.insert(row.path).second) << table.name << " has " << row.path << " twice";
      if (row.path == "sharding_size" || row.path.find('*') != std::string::npos ||
          row.path.rfind("model.", 0) == 0 || row.path.rfind("data.", 0) == 0) {
        continue;  // keys of any name are ignored beside these
      }
      EXPECT_EQ(mistake_in(text_with(table, row.path + "x", "1")),
                std::to_string(line_of(table)) + ": unknown key " + table.prefix + row.path +
                    "x; did you mean " + table.prefix + row.path + "?")
          << table.name;
    }
  }
}

TEST(Dialects, AWrongTypeGivesItsLineAndKey) {
  for (const Table& table : tables()) {
    for (const Row& row : table.rows) {
      if (row.fate == Row::Fate::kIgnored || row.path == "sharding_size" || row.path == "model.*" ||
          row.path == "tools") {
        continue;
      }
      if (row.text == "config-overrides" && row.path != "features.loss_cfg.router_aux_loss_coef") {
        EXPECT_THAT(mistake_in(text_with(table, row.path, "[1]")),
                    HasSubstr(row.path + ": expected a mapping, got a list"));
        continue;
      }
      const std::string message = mistake_in(text_with(table, row.path, "{wrong: 1}"));
      EXPECT_EQ(
          message.find(std::to_string(line_of(table)) + ": " + table.prefix + row.path + ": "), 0U)
          << table.name << " " << row.path << ": " << message;
      EXPECT_THAT(message, ::testing::AnyOf(HasSubstr("got a mapping"),
                                            HasSubstr("a mapping: not provided (")));
    }
  }
}

TEST(Dialects, EveryRowSaysWhatItSetsOrWhyNot) {
  TrainOptions options;
  std::set<std::string> keys;
  for (const Key& key : train_keys(&options)) {
    keys.insert(key.name);
  }
  for (const Table& table : tables()) {
    for (const Row& row : table.rows) {
      if (row.fate != Row::Fate::kSets) {
        EXPECT_FALSE(row.text.empty()) << table.name << " " << row.path;
        continue;
      }
      const std::string key = row.text.substr(0, row.text.find_first_of(",; ("));
      EXPECT_TRUE(key.empty() || key == "not" || keys.count(key) > 0)
          << table.name << " " << row.path << ": " << key;
    }
  }
}

constexpr char kRoll[] =
    "seed: 42\nmax_grad_norm: 1.0\nrollout_batch_size: 8\neval_steps: 1000\n"
    "resume_from_checkpoint: true\noutput_dir: OUT\n"
    "actor_train:\n"
    "  model_args: {model_name_or_path: DIR, disable_gradient_checkpointing: false,\n"
    "               ulysses_size: 1, freeze_module_prefix: 'model.embed,lm_head'}\n"
    "  training_args: {learning_rate: 1.0e-6, weight_decay: 0, per_device_train_batch_size: 1,\n"
    "                  gradient_accumulation_steps: 32, warmup_steps: 20, max_steps: 1000}\n"
    "  strategy_args:\n"
    "    strategy_name: fsdp2_train\n"
    "    strategy_config:\n"
    "      fsdp_size: 8\n      param_dtype: bf16\n      reduce_dtype: float32\n"
    "      reshard_after_forward: true\n      offload_policy: false\n"
    "      wrap_policy: {transformer_layer_cls_to_wrap: [Qwen3DecoderLayer],\n"
    "                    wrap_embeddings: true, wrap_lm_output: true}\n"
    "  device_mapping: list(range(0,8))\n"
    "  infer_batch_size: 4\n"
    "reference:\n  strategy_args: {strategy_name: hf_infer, strategy_config: ~}\n";

TEST(RollFile, AsItsUsersHaveItIsLowered) {
  const Plan plan = plan_from(kRoll);
  const TrainOptions& o = plan.options;
  EXPECT_EQ(o.model, "DIR");
  EXPECT_EQ(o.seed, 42U);
  EXPECT_EQ(o.fsdp_size, 8);
  EXPECT_EQ(o.world_size, 8);
  EXPECT_EQ(o.dtype, "fp32");
  EXPECT_EQ(o.param_dtype, "bf16");
  EXPECT_EQ(o.reduce_dtype, "fp32");
  EXPECT_EQ(o.wrap, "Qwen3DecoderLayer");
  EXPECT_EQ(o.wrap_embeddings, "yes");
  EXPECT_TRUE(o.wrap_head);
  EXPECT_EQ(o.freeze, "model.embed*,lm_head*");
  EXPECT_EQ(o.micro_batch, 1);
  EXPECT_EQ(o.grad_accum, 32);
  EXPECT_EQ(o.steps, 1000);
  EXPECT_EQ(o.warmup, 20);
  EXPECT_EQ(o.lr, 1e-6);
  EXPECT_EQ(o.lr_schedule, "linear");
  EXPECT_TRUE(o.activation_checkpointing);
  EXPECT_EQ(o.resume, "auto");
  EXPECT_EQ(o.save_dir, "OUT");
  EXPECT_EQ(o.save_every, 50);
  EXPECT_THAT(plan.origin_of("lr"),
              HasSubstr("run.yaml:10 actor_train.training_args.learning_rate"));
  EXPECT_EQ(plan.origin_of("save-every"), "default of ROLL");
  ASSERT_EQ(plan.notes.size(), 3U);
  EXPECT_EQ(plan.notes[0],
            "ignored: rollout_batch_size (rollouts, rewards and policy gradients); reference "
            "(another role)");
  EXPECT_EQ(
      plan.notes[1],
      "ignored: actor_train.infer_batch_size (rollouts, and data, which libfsdp2's tokens, text "
      "or records name)");
  EXPECT_EQ(plan.notes[2], "eval_steps is not used without libfsdp2.eval_data");
}

TEST(RollFile, EvaluatesEveryFewStepsIfItHasOtherData) {
  const std::string own = "libfsdp2: {eval-data: other.txt}\n";
  EXPECT_EQ(plan_from(kRoll + own).options.eval_every, 1000);
  EXPECT_EQ(plan_from(kRoll).options.eval_every, 0);
}

TEST(RollFile, AnAssignmentNamesAKeyOfIt) {
  const Plan plan =
      plan_from(kRoll, "", {"actor_train.training_args.learning_rate=2e-6", "seed=1"});
  EXPECT_EQ(plan.options.lr, 2e-6);
  EXPECT_EQ(plan.options.seed, 1U);
}

TEST(RollFile, RoleIsChosen) {
  const std::string two =
      std::string(kRoll) + "critic: {strategy_args: {strategy_name: fsdp2_train}}\n";
  EXPECT_THAT(mistake_in(two),
              HasSubstr("expected one role with strategy_name fsdp2_train; the roles are "));
  EXPECT_EQ(plan_from(two, "critic").options.micro_batch, 8);
  EXPECT_THAT(mistake_in(two, "critik"), HasSubstr("there is no role critik"));
  EXPECT_THAT(mistake_in(two, "critik"), HasSubstr("did you mean critic?"));
  EXPECT_THAT(mistake_in(kRoll, "reference"),
              HasSubstr("reference.strategy_args.strategy_name: hf_infer: not provided"));
  EXPECT_THAT(mistake_in("steps: 1\n", "critic"), HasSubstr("--role critic: "));
}

TEST(RollFile, SharesSequencesByUlysses) {
  EXPECT_EQ(plan_from(role_file("model_args.ulysses_size", "2")).options.ulysses_size, 2);
  EXPECT_EQ(plan_from(role_file("model_args.ulysses_size", "1")).options.ulysses_size, 1);
}

TEST(RollFile, SavesTheModelAloneIfItSavesAndSaysSo) {
  const std::string role =
      "actor_train: {strategy_args: {strategy_config: {save_only_model: true}}}\n";
  EXPECT_TRUE(plan_from("output_dir: OUT\n" + role).options.save_only_model);
  EXPECT_FALSE(plan_from(role).options.save_only_model);
}

TEST(RollFile, CutsParametersAlongTheDimThatItNames) {
  const std::string path = "strategy_args.strategy_config.shard_dim";
  EXPECT_EQ(plan_from(role_file(path, "auto")).options.shard_dim, "auto");
  EXPECT_EQ(plan_from(role_file(path, "0")).options.shard_dim, "0");
  EXPECT_THAT(mistake_in(role_file(path, "1")), HasSubstr("3: actor_train." + path + ": "));
}

std::string role_mistake(const std::string& path, const std::string& value) {
  return mistake_in(role_file(path, value));
}

TEST(RollFile, WhatIsNotProvidedIsAnErrorAtItsKey) {
  const std::string config = "strategy_args.strategy_config.";
  for (const std::string key : {"ep_size", "efsdp_size"}) {
    EXPECT_THAT(role_mistake(config + key, "2"), HasSubstr(config + key)) << key;
    EXPECT_THAT(role_mistake(config + key, "2"), HasSubstr("not provided")) << key;
    EXPECT_EQ(role_mistake(config + key, "1"), "") << key;
    EXPECT_EQ(role_mistake(config + key, "~"), "") << key;
  }
  EXPECT_THAT(role_mistake("model_args.model_name_or_path", "'${pretrain}'"),
              HasSubstr("interpolations are not provided"));
}

TEST(RollFile, MayAskForGroupedExpertsOrNot) {
  for (const std::string value : {"true", "false"}) {
    EXPECT_EQ(role_mistake("strategy_args.strategy_config.moe_use_grouped_mm", value), "");
  }
}

TEST(RollFile, ChangesFieldsOfTheModel) {
  const auto fields = [](const std::string& value) {
    return plan_from(role_file("model_args.model_config_kwargs", value)).options.config_overrides;
  };
  EXPECT_EQ(fields("{num_hidden_layers: 2, use_cache: False, rope_scaling: {factor: 2.5, t: [a]}}"),
            R"({"num_hidden_layers":2,"rope_scaling":{"factor":2.5,"t":["a"]},"use_cache":false})");
  EXPECT_EQ(fields("{}"), "");
  EXPECT_EQ(fields("~"), "");
  EXPECT_EQ(plan_from("config_overrides: {a: ~}\n").options.config_overrides, R"({"a":null})");
  EXPECT_EQ(plan_from("config_overrides: '{\"a\": 1}'\n").options.config_overrides, R"({"a": 1})");
  EXPECT_THAT(mistake_in("seed: 1\nconfig_overrides: 'a: 1'\n"),
              HasSubstr("2: config_overrides: expected a mapping, or the text of a JSON object"));
}

TEST(RollFile, IsItsSourceToTheLetterIfItSaysSo) {
  const std::string config = "strategy_args.strategy_config";
  const auto options = [&](const std::string& keys) {
    const std::string resume = "resume_from_checkpoint: DIR\n";
    return plan_from(resume + role_file(config, "{compat: strict-source" + keys + "}")).options;
  };
  const TrainOptions all = options("");
  EXPECT_EQ(all.dtype, "bf16");  // ROLL's param_dtype
  EXPECT_EQ(all.shard_dim, "0");
  EXPECT_TRUE(all.resume_partial);
  const TrainOptions some = options(", fsdp_size: 2, param_dtype: fp16, shard_dim: auto");
  EXPECT_EQ(some.dtype, "fp16");
  EXPECT_EQ(some.shard_dim, "auto");
  EXPECT_FALSE(plan_from(role_file(config, "{compat: strict-source}")).options.resume_partial);
  EXPECT_THAT(role_mistake(config, "{compat: strict-source, storage_dtype: fp32}"),
              AllOf(HasSubstr("compat: strict-source (storage_dtype: bf16) contradicts "),
                    HasSubstr("run.yaml:3 actor_train.strategy_args.strategy_config.storage_")));
  EXPECT_THAT(role_mistake(config, "{compat: strict-source, shard_dim: auto}"),
              AllOf(HasSubstr("compat: strict-source (shard_dim: 0) contradicts "),
                    HasSubstr("run.yaml:3 actor_train.strategy_args.strategy_config.shard_dim")));
  EXPECT_THAT(role_mistake(config, "{compat: strict}"), HasSubstr("did you mean strict-source?"));
}

TEST(RollFile, MlpsRunInTilesIfItSaysSo) {
  const std::string config = "strategy_args.strategy_config";
  const auto tiles_of = [&](const std::string& keys) {
    return plan_from(role_file(config, "{" + keys + "}")).options.mlp_tiles;
  };
  EXPECT_EQ(tiles_of("apply_tiled_mlp: true"), 4);
  EXPECT_EQ(tiles_of("apply_tiled_mlp: true, tiled_num_shards: 8, model_type: qwen2_5"), 8);
  EXPECT_EQ(tiles_of("apply_tiled_mlp: false, tiled_num_shards: 8"), 0);
  EXPECT_EQ(tiles_of("tiled_num_shards: 8"), 0);
  EXPECT_THAT(role_mistake(config, "{tiled_num_shards: 0}"), HasSubstr("0 is below 1"));
  EXPECT_THAT(role_mistake(config, "{apply_tiled_mlp: 4}"), HasSubstr("expected true or false"));
  EXPECT_THAT(role_mistake(config, "{model_type: gpt2}"), HasSubstr("qwen3_moe"));
}

TEST(RollFile, ExpertsAreUnitsWithTheirPatchAlone) {
  const std::string config = "strategy_args.strategy_config";
  const std::string units =
      "wrap_policy: {moe_experts: [Qwen3MoeMLP], transformer_layer_cls_to_wrap: [Block]}";
  const Plan without = plan_from(role_file(config, "{" + units + "}"));
  EXPECT_EQ(without.options.wrap, "Block");
  EXPECT_THAT(without.notes.back(), HasSubstr("is not used without apply_expert_patch"));
  const Plan with = plan_from(role_file(config, "{apply_expert_patch: true, " + units + "}"));
  EXPECT_EQ(with.options.wrap, "Block,Qwen3MoeMLP");
}

TEST(RollFile, ReferencesToItsOwnKeysAreFilledIn) {
  const std::string file =
      "pretrain: ${output_dir}\noutput_dir: OUT\nsave_steps: 7\nlogging_steps: ${save_steps}\n"
      "exp_name: ${exp_name}\n"
      "actor_train:\n  model_args: {model_name_or_path: '${pretrain}'}\n"
      "  strategy_args: {strategy_config: {param_dtype: '${oc.env:DTYPE}'}}\n";
  EXPECT_THAT(mistake_in(file), HasSubstr("param_dtype: ${oc.env:DTYPE}: interpolations are"));
  const Plan plan =
      plan_from(file, "", {"actor_train.strategy_args.strategy_config.param_dtype=bf16"});
  EXPECT_EQ(plan.options.model, "OUT");
  EXPECT_EQ(plan.options.log_every, 7);
  EXPECT_THAT(plan.origin_of("log-every"), HasSubstr("run.yaml:4 logging_steps"));
}

TEST(RollFile, LengthsOfPromptAndResponseAreAdded) {
  const std::string role = "actor_train: {strategy_args: {}}\n";
  EXPECT_EQ(plan_from("prompt_length: 100\nresponse_length: 28\n" + role).options.seq_len, 128);
  EXPECT_EQ(plan_from("response_length: 28\n" + role).options.seq_len, 1024 + 28);
  EXPECT_THAT(mistake_in("prompt_length: 9223372036854775807\nresponse_length: 1\n" + role),
              HasSubstr("1: prompt_length: 9223372036854775807 is above 2147483648 tokens"));
  EXPECT_THAT(mistake_in("prompt_length: 100\nresponse_length: -1\n" + role),
              HasSubstr("2: response_length: expected a whole number of at least 0"));
}

TEST(RollFile, Fp16ScalesTheLoss) {
  const Plan plan = plan_from(role_file("strategy_args.strategy_config.param_dtype", "fp16"));
  EXPECT_EQ(plan.options.loss_scale, 65536);
  EXPECT_EQ(plan.options.loss_scale_interval, 400);
}

TEST(Dialects, LeaveTheDtypeToTheDevices) {
  const std::string config = "strategy_args.strategy_config";
  const TrainOptions roll = plan_from(role_file(config + ".param_dtype", "auto")).options;
  EXPECT_EQ(roll.param_dtype, "auto");
  EXPECT_EQ(roll.dtype, "fp32");
  EXPECT_EQ(roll.loss_scale, 0);  // unless it becomes fp16
  EXPECT_EQ(roll.loss_scale_interval, 400);
  for (const std::string file :
       {"parallel: {fsdp_plan: {param_dtype: auto}}\n", "sharding_size: auto\nparam_dtype: auto\n",
        "param_dtype: auto\n"}) {
    EXPECT_EQ(plan_from(file).options.param_dtype, "auto") << file;
  }
  EXPECT_THAT(role_mistake(config, "{param_dtype: auto, storage_dtype: param}"),
              HasSubstr("storage_dtype: parameters are stored in param_dtype, which is auto ("));
  EXPECT_THAT(mistake_in("reduce_dtype: auto\n"), HasSubstr("reduce_dtype: expected a dtype"));
}

TEST(RollFile, DevicesAreCountedWithoutRunningCode) {
  const auto count = [](const std::string& mapping) {
    return plan_from(role_file("device_mapping", mapping)).options.world_size;
  };
  EXPECT_EQ(count("[0, 1, 5]"), 3);
  EXPECT_EQ(count("list(range(0,8))"), 8);
  EXPECT_EQ(count("'range(2, 8)'"), 6);
  EXPECT_EQ(count("'list(range(0,8,3)) + [20,21]'"), 5);
  EXPECT_EQ(count("~"), 0);
  for (const std::string wrong : {"'list(range(0,8)'", "'range(0,8))'", "'__import__(1)'",
                                  "'[0] +'", "''", "'[-1]'", "8", "'range(0,9999999)'"}) {
    EXPECT_THAT(role_mistake("device_mapping", wrong), HasSubstr("expected a list of devices"))
        << wrong;
  }
  EXPECT_THAT(role_mistake("device_mapping", "[0, 0]"), HasSubstr("device 0 is given twice"));
  EXPECT_THAT(role_mistake("device_mapping", "[]"), HasSubstr("names no device"));
}

}  // namespace
}  // namespace fsdp2::config
