// MindSpeed-MM's files, new and old.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/core/config/plans.h"

namespace fsdp2::config {
namespace {

using ::testing::HasSubstr;

TEST(MmFile, AsItsUsersHaveItIsLowered) {
  const Plan plan = plan_from(
      "parallel:\n  tensor_parallel_size: 1\n  fully_shard_parallel_size: auto\n"
      "  fsdp_plan:\n    apply_modules: [model.embed_tokens, 'model.layers.{*}', lm_head]\n"
      "    ignored_modules: ['visual.blocks.{0-3}']\n"
      "    param_dtype: bf16\n    num_to_forward_prefetch: 2\n    num_to_backward_prefetch: 2\n"
      "  ep_plan: {apply_modules: [x]}\n"
      "model: {model_id: qwen3, model_name_or_path: &DIR d, freeze: ['model.embed_tokens']}\n"
      "data: {dataset_param: {preprocess_parameters: {model_name_or_path: *DIR}}}\n"
      "training: {lr: 2.0e-5, lr_min: 1.0e-5, train_iters: 5, load: CKPT, load_strict: false}\n"
      "tools: {profile: {enable: false}}\n");
  const TrainOptions& o = plan.options;
  EXPECT_EQ(o.fsdp_size, 0);
  EXPECT_EQ(o.strategy, "full_shard");
  EXPECT_EQ(o.wrap, "none");
  EXPECT_EQ(o.wrap_names, "model.embed_tokens,model.layers.{*},lm_head");
  EXPECT_EQ(o.ignored_modules, "visual.blocks.{0-3}");
  EXPECT_EQ(o.prefetch, 2);
  EXPECT_EQ(o.model, "d");
  EXPECT_EQ(o.freeze, "model.embed_tokens");
  EXPECT_EQ(o.min_lr_ratio, 0.5);
  EXPECT_EQ(o.resume, "CKPT");
  EXPECT_TRUE(o.resume_partial);
  EXPECT_EQ(o.save_every, 0);
  EXPECT_THAT(plan.notes.front(), HasSubstr("model.model_id"));
}

TEST(MmFile, CutsWindowsWhereTheDataAreCut) {
  const std::string cut =
      "parallel: {}\ndata: {dataset_param: {basic_parameters: {cutoff_len: 1024}}}\n";
  EXPECT_EQ(plan_from(cut).options.seq_len, 1024);
  EXPECT_EQ(plan_from(cut + "libfsdp2: {seq_len: 64}\n").options.seq_len, 64);
  EXPECT_EQ(mistake_in("parallel: {}\n"
                       "data: {dataset_param: {basic_parameters: {cutoff_len: long}}}\n"),
            "2: data.dataset_param.basic_parameters.cutoff_len: expected a whole number, got "
            "the text 'long'");
}

TEST(MmFile, IgnoresDataOfAnyKind) {
  for (const std::string data : {"./data.json", "{dataset_param: [{attr: 1}, {attr: 2}]}",
                                 "{dataset_param: {basic_parameters: default}}"}) {
    const Plan plan = plan_from("parallel: {}\ndata: " + data + "\n");
    EXPECT_THAT(plan.notes, ::testing::Contains(HasSubstr("ignored: data"))) << data;
  }
  EXPECT_THAT(mistake_in("parallel: {}\nmodel: ./model\n"), HasSubstr("expected a mapping"));
}

TEST(MmFile, CountsRanksThatShareSequencesAsOne) {
  const Plan plan = plan_from("parallel: {data_parallel_size: 3, ulysses_parallel_size: 2}\n");
  EXPECT_EQ(plan.options.ulysses_size, 2);
  EXPECT_EQ(plan.options.world_size, 6);
  EXPECT_THAT(plan.origin_of("world-size"),
              HasSubstr("data_parallel_size x ulysses_parallel_size"));
  EXPECT_THAT(mistake_in("parallel: {ring_attention_size: 2}\n"), HasSubstr("not provided"));
}

TEST(MmFile, RecomputesWhatItsPlanNamesIfItRecomputes) {
  const std::string plan = "recompute_plan: {apply_modules: ['model.layers.{0-3}', lm_head]}";
  const TrainOptions on = plan_from("parallel: {recompute: true, " + plan + "}\n").options;
  EXPECT_TRUE(on.activation_checkpointing);
  EXPECT_EQ(on.recompute_names, "model.layers.{0-3},lm_head");
  for (const std::string& text : {"parallel: {recompute: false, " + plan + "}\n",
                                  "parallel: {}\nfeatures: {" + plan + "}\n"}) {
    const TrainOptions off = plan_from(text).options;
    EXPECT_FALSE(off.activation_checkpointing) << text;
    EXPECT_EQ(off.recompute_names, "") << text;
  }
  EXPECT_THAT(mistake_in("parallel: {recompute: true, " + plan +
                         "}\nfeatures: {recompute_plan: {apply_modules: [lm_head]}}\n"),
              HasSubstr("2: features.recompute_plan.apply_modules: lm_head contradicts "));
}

TEST(MmFile, ChunksItsLossIfItSaysSo) {
  const auto chunk = [](const std::string& features) {
    return plan_from("parallel: {}\nfeatures: {" + features + "}\n").options.chunked_loss;
  };
  EXPECT_EQ(chunk("enable_chunk_loss: true"), 1024);
  EXPECT_EQ(chunk("enable_chunk_loss: true, chunkloss_plan: {chunk_size: 64}"), 64);
  EXPECT_EQ(chunk("enable_chunk_loss: false, chunkloss_plan: {chunk_size: 64}"), 0);
  EXPECT_THAT(mistake_in("parallel: {}\nfeatures: {chunkloss_plan: {apply_module: head}}\n"),
              HasSubstr("2: features.chunkloss_plan.apply_module: head: not provided"));
}

TEST(MmFile, WeighsTheLossOfRoutersByAFieldOfTheModel) {
  const auto fields = [](const std::string& factor) {
    return plan_from("parallel: {}\nfeatures: {loss_cfg: {router_aux_loss_coef: " + factor + "}}\n")
        .options.config_overrides;
  };
  EXPECT_EQ(fields("0.01"), R"({"output_router_logits":true,"router_aux_loss_coef":0.01})");
  EXPECT_EQ(fields("0.0"), "");
  EXPECT_THAT(mistake_in("parallel: {}\nfeatures: {loss_cfg: {router_aux_loss_coef: -1}}\n"),
              HasSubstr("2: features.loss_cfg.router_aux_loss_coef: -1 is below 0"));
}

TEST(MmFile, TrainsByMuonIfItSaysSo) {
  const TrainOptions o = plan_from(
                             "parallel: {}\ntraining: {optimizer: muon, muon_momentum: 0.9, "
                             "ns_steps: 4, matched_adamw_rms: 0.3}\n")
                             .options;
  EXPECT_EQ(o.optimizer, "muon");
  EXPECT_EQ(o.muon_momentum, 0.9);
  EXPECT_EQ(o.ns_steps, 4);
  EXPECT_EQ(o.matched_adamw_rms, 0.3);
  EXPECT_EQ(plan_from("parallel: {}\n").options.optimizer, "adamw");
  EXPECT_THAT(mistake_in("parallel: {}\ntraining: {optimizer: adamw_swap}\n"),
              HasSubstr("2: training.optimizer: "));
}

TEST(MmFile, GroupsItsParameters) {
  const TrainOptions o =
      plan_from(
          "parallel: {}\ntraining:\n  no_decay_modules: [Qwen3RMSNorm]\n"
          "  no_decay_params: [bias, embed]\n"
          "  lr_scaling_plan: [{match: 'visual\\.', scale: 0.1}, {match: '.*'}]\n")
          .options;
  EXPECT_EQ(o.no_decay_classes, "Qwen3RMSNorm");
  EXPECT_EQ(o.no_decay_names, "*bias*,*embed*");
  EXPECT_EQ(o.lr_plan, "visual\\.=0.1;.*=1");
  const TrainOptions none =
      plan_from("parallel: {}\ntraining: {no_decay_params: [], lr_scaling_plan: []}\n").options;
  EXPECT_EQ(none.no_decay_names, "");
  EXPECT_EQ(none.lr_plan, "");
  for (const auto& [plan, what] : std::vector<std::pair<std::string, std::string>>{
           {"{match: a}", "expected a list of {match: EXPRESSION, scale: FACTOR}, got "},
           {"[{scale: 1}]", "expected {match: EXPRESSION, scale: FACTOR}, got "},
           {"[{match: a, scala: 1}]", "expected {match: EXPRESSION, scale: FACTOR}, got "},
           {"[{match: a, scale: b}]", "lr_scaling_plan.scale: expected a number"},
           {"['a=1']", "expected {match: EXPRESSION, scale: FACTOR}, got "},
           {"[{match: 'a;b'}]", "expected an expression without ;"}}) {
    EXPECT_THAT(mistake_in("parallel: {}\ntraining: {lr_scaling_plan: " + plan + "}\n"),
                HasSubstr(what))
        << plan;
  }
}

TEST(MmFile, BeginsWithANewOptimizerIfItLoadsAndSaysSo) {
  const auto begins = [](const std::string& training) {
    return plan_from("parallel: {}\ntraining: {" + training + "}\n")
        .options.resume_without_optimizer;
  };
  EXPECT_TRUE(begins("no_load_optim: true, load: DIR"));
  EXPECT_FALSE(begins("no_load_optim: false, load: DIR"));
  EXPECT_FALSE(begins("no_load_optim: true"));
}

TEST(MmFile, LeavesPartsOutOfItsCheckpoints) {
  const std::string parts = "no_load_rng: true, no_save_optim: true, no_save_rng: true";
  const auto options = [&](const std::string& places) {
    return plan_from("parallel: {}\ntraining: {" + parts + places + "}\n").options;
  };
  const TrainOptions with = options(", load: A, save: B");
  EXPECT_TRUE(with.resume_without_rng);
  EXPECT_TRUE(with.save_without_optimizer);
  EXPECT_TRUE(with.save_without_rng);
  const TrainOptions without = options("");  // nothing is loaded or saved
  EXPECT_FALSE(without.resume_without_rng);
  EXPECT_FALSE(without.save_without_optimizer);
  EXPECT_FALSE(without.save_without_rng);
}

TEST(MmFile, ExportsWeightsInTheDtypeOfItsCheckpoints) {
  EXPECT_EQ(plan_from("parallel: {}\ntraining: {save_ckpt_dtype: BF16}\n").options.export_dtype,
            "bf16");
  EXPECT_THAT(mistake_in("parallel: {}\ntraining: {save_ckpt_dtype: int8}\n"),
              HasSubstr("2: training.save_ckpt_dtype: expected a dtype"));
}

TEST(MmFile, GathersAllUnitsAheadInEitherPlace) {
  EXPECT_TRUE(plan_from("parallel: {pregather: true}\n").options.pregather);
  EXPECT_TRUE(plan_from("parallel: {fsdp_plan: {pregather: true}}\n").options.pregather);
  EXPECT_FALSE(plan_from("parallel: {}\n").options.pregather);
  EXPECT_THAT(mistake_in("parallel:\n  pregather: true\n  fsdp_plan: {pregather: false}\n"),
              HasSubstr("3: parallel.fsdp_plan.pregather: false contradicts "));
}

TEST(MmFile, IsDeterministicIfEitherKeyAsksForIt) {
  const auto is_so = [](const std::string& keys) {
    return plan_from("parallel: {}\ntraining: {" + keys + "}\n").options.deterministic;
  };
  EXPECT_TRUE(is_so("use_deter_comp: true, enable_full_determinism: false"));
  EXPECT_TRUE(is_so("use_deter_comp: false, enable_full_determinism: true"));
  EXPECT_FALSE(is_so("use_deter_comp: false, enable_full_determinism: false"));
  EXPECT_FALSE(is_so(""));
}

TEST(MmFile, WarmsUpAndDecaysAsItSays) {
  const TrainOptions o =
      plan_from(
          "parallel: {}\ntraining: {lr_start: 1.0e-6, lr: 4.0e-6, lr_min: 2.0e-6,\n"
          "  lr_decay_style: cosine, lr_warmup_ratio: 0.1, lr_decay_ratio: 0.5}\n")
          .options;
  EXPECT_EQ(o.start_lr_ratio, 0.25);
  EXPECT_EQ(o.min_lr_ratio, 0.5);
  EXPECT_EQ(o.lr_decay_ratio, 0.5);
  const TrainOptions usual = plan_from("parallel: {}\ntraining: {lr_start: 0}\n").options;
  EXPECT_EQ(usual.start_lr_ratio, 0);
  EXPECT_EQ(usual.lr_decay_ratio, 1);
}

TEST(MmFile, EvaluatesEveryFewSteps) {
  EXPECT_EQ(plan_from("parallel: {}\ntraining: {val_interval: 5}\n").options.eval_every, 5);
}

TEST(MmFile, MistakesAreSaidInOneLine) {
  EXPECT_THAT(mistake_in("parallel: {recompute: true}\nfeatures: {recompute: false}\n"),
              HasSubstr("2: features.recompute: false contradicts "));
  EXPECT_THAT(mistake_in("parallel: {fsdp_plan: {num_to_forward_prefetch: 2,\n"
                         " num_to_backward_prefetch: 3}}\n"),
              HasSubstr("2: parallel.fsdp_plan.num_to_backward_prefetch: 3: not provided"));
  EXPECT_THAT(mistake_in("parallel: {}\ntools: {profile: {enable: true}}\n"),
              HasSubstr("2: tools: not provided"));
  EXPECT_THAT(mistake_in("parallel: {}\ntraining: {lr: 1, lr_min: 2}\n"),
              HasSubstr("2: training.lr_min: is above the learning rate"));
  EXPECT_THAT(mistake_in("parallel: {}\ntraining: {lr: 1, lr_start: 2}\n"),
              HasSubstr("2: training.lr_start: is above the learning rate"));
}

TEST(MmLegacyFile, AsItsUsersHaveItIsLowered) {
  const Plan plan = plan_from(
      "sharding_size: auto\nsub_modules_to_wrap:\n  - \"lm_head\"\n"
      "  - \"model.layers.{0-20,22}\"\n"
      "param_dtype: \"bf16\"\nreduce_dtype: \"fp32\"\ncast_forward_inputs: True\n"
      "ignored_modules:\n  - \"image_encoder\"\n"
      "recompute_modules:\n  - \"model.layers.{*}\"\n"
      "num_to_forward_prefetch: 2\nnum_to_backward_prefetch: 2\noffload_to_cpu: False\n");
  EXPECT_EQ(plan.options.wrap_names, "lm_head,model.layers.{0-20},model.layers.{22}");
  EXPECT_EQ(plan.options.wrap, "none");
  EXPECT_EQ(plan.options.ignored_modules, "image_encoder");
  EXPECT_TRUE(plan.options.activation_checkpointing);
  EXPECT_EQ(plan.options.recompute_names, "model.layers.{*}");
  EXPECT_EQ(plan.options.recompute, "default");
  EXPECT_EQ(plan.options.prefetch, 2);
  EXPECT_EQ(plan.options.reshard_after_forward, "true");
}

TEST(MmLegacyFile, RangesThatAreEmptyStay) {
  const std::string file = "sharding_size: auto\nignored_modules: ";
  EXPECT_EQ(plan_from(file + "['l.{}']\n").options.ignored_modules, "l.{}");
  EXPECT_EQ(plan_from(file + "['l.{1,}']\n").options.ignored_modules, "l.{1},l.{}");
}

TEST(MmLegacyFile, SizesAndClasses) {
  EXPECT_EQ(plan_from("sharding_size: 1\n").options.strategy, "no_shard");
  EXPECT_EQ(plan_from("sharding_size: 4\n").options.fsdp_size, 4);
  EXPECT_THAT(mistake_in("sharding_size: ~\n"), HasSubstr("expected auto or a number of ranks"));
  EXPECT_THAT(mistake_in("sharding_size: 0\n"), HasSubstr("0 is below 1"));
  EXPECT_THAT(mistake_in("sharding_size: all\n"), HasSubstr("expected auto or a number"));
  const Plan plan = plan_from("sharding_size: 2\nsub_modules_to_wrap: [a.b.LlamaDecoderLayer]\n");
  EXPECT_EQ(plan.options.wrap, "LlamaDecoderLayer");
  EXPECT_EQ(plan_from("sharding_size: 2\nreshard_after_forward: 1\n").options.reshard_after_forward,
            "false");
  const TrainOptions o =
      plan_from("sharding_size: 2\nrecompute_modules: [a.LlamaMLP, 'model.layers.{0-2,5}']\n")
          .options;
  EXPECT_TRUE(o.activation_checkpointing);
  EXPECT_EQ(o.recompute, "LlamaMLP");
  EXPECT_EQ(o.recompute_names, "model.layers.{0-2},model.layers.{5}");
  EXPECT_FALSE(
      plan_from("sharding_size: 2\nrecompute_modules: []\n").options.activation_checkpointing);
}

}  // namespace
}  // namespace fsdp2::config
