// The flags of `fsdp2 train`, and what is said about wrong ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/train/flags/options.h"
#include "core/config/checks/group_rules.h"
#include "core/config/checks/option_checks.h"
#include "core/config/key_table.h"
#include "tests/cli/process.h"

namespace fsdp2::cli {
namespace {

using config::Key;
using config::LrPlan;
using config::train_keys;
using ::testing::HasSubstr;

TEST(TrainFlags, AreThereOnceWithHelp) {
  TrainOptions options;
  std::set<std::string> names;
  for (const Key& key : train_keys(&options)) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.help.empty()) << key.name;
  }
}

TEST(TrainFlags, ExplainThemselvesByANounOrAVerb) {
  const std::set<std::string> others = {"As", "By",   "For",   "How",   "In",    "Instead", "Of",
                                        "To", "What", "Where", "Which", "Whose", "With"};
  TrainOptions options;
  for (const Key& key : train_keys(&options)) {
    EXPECT_EQ(others.count(key.help.substr(0, key.help.find(' '))), 0U) << key.name;
  }
}

TEST(TrainFlags, TakeEveryNameOfATorchFileForTheFullWeights) {
  for (const std::string name : {"x.pth", "x.pt", "x.bin", "x.safetensors"}) {
    config::Plan plan;
    const Request request =
        parse_train_options({"--model", "m", "--tokens", "t", "--full-state-dict", name}, &plan);
    EXPECT_EQ(request, Request::kTrain) << name;
    EXPECT_EQ(plan.options.full_state_dict, name);
  }
}

TEST(TrainFlags, AreReadIntoOptions) {
  config::Plan plan;
  const Request request =
      parse_train_options({"--model-config", "c.json", "--text=t.txt", "--steps", "7", "--lr",
                           "1e-2", "--shuffle", "--steps", "9", "--reshard_after_forward", "false"},
                          &plan);
  EXPECT_EQ(request, Request::kTrain);
  EXPECT_EQ(plan.options.model_config, "c.json");
  EXPECT_EQ(plan.options.text, "t.txt");
  EXPECT_EQ(plan.options.steps, 9);
  EXPECT_EQ(plan.options.lr, 1e-2);
  EXPECT_TRUE(plan.options.shuffle);
  EXPECT_EQ(plan.options.reshard_after_forward, "false");
}

TEST(TrainFlags, OfGroupsAreLists) {
  EXPECT_FALSE(config::read_no_decay("").norms);
  EXPECT_FALSE(config::read_no_decay("bias").norms);
  EXPECT_TRUE(config::read_no_decay("bias").biases);
  EXPECT_TRUE(config::read_no_decay("norm,bias").norms);
  EXPECT_TRUE(config::read_no_decay("norm,bias").biases);
  EXPECT_TRUE(config::read_lr_scales("").empty());
  const auto scales = config::read_lr_scales("lm_head.*=0.1,*.bias=2");
  ASSERT_EQ(scales.size(), 2U);
  EXPECT_EQ(scales[0].pattern, "lm_head.*");
  EXPECT_EQ(scales[0].factor, 0.1);
  EXPECT_EQ(scales[1].pattern, "*.bias");
  EXPECT_EQ(scales[1].factor, 2.0);
}

TEST(TrainFlags, OfALearningRatePlanGiveANameToTheFirstThatMatches) {
  const std::vector<std::string> names = {"visual.merger.weight", "visual.blocks.0.weight",
                                          "model.visual.weight", "lm_head.weight"};
  const auto rules = LrPlan("visual\\.merger=0.5;visual\\..*\\d=0.1;.*weight$=2").rules_for(names);
  ASSERT_EQ(rules.size(), 3U);
  EXPECT_EQ(rules[0].factor, 0.5);
  EXPECT_EQ(rules[0].names, std::vector<std::string>{names[0]});
  EXPECT_EQ(rules[1].names, std::vector<std::string>{names[1]});
  EXPECT_EQ(rules[2].names, (std::vector<std::string>{names[2], names[3]}));
  EXPECT_TRUE(LrPlan("").rules_for(names).empty());
  EXPECT_EQ(LrPlan(".*=1;lm_head=2").rules_for(names).size(), 1U);
  EXPECT_THAT([&] { LrPlan("merger=0.5").rules_for(names); },
              ::testing::ThrowsMessage<UsageError>(
                  ::testing::HasSubstr("--lr-plan merger: matches the name of no parameter")));
}

// The steps of a run in epochs are known once its data are.
TEST(TrainFlags, ThatNameAStepOfARunInEpochsAreCheckedOnceItsStepsAreKnown) {
  config::Plan plan;
  EXPECT_EQ(parse_train_options({"--model", "m", "--tokens", "t", "--epochs", "3", "--memory-step",
                                 "11", "--trace", "d", "--trace-steps", "11:12"},
                                &plan),
            Request::kTrain);
  config::Plan shorter = plan;
  settle_epochs(&plan, 4);
  EXPECT_EQ(plan.options.steps, 12);
  EXPECT_THAT([&] { settle_epochs(&shorter, 3); },
              ::testing::ThrowsMessage<UsageError>("--memory-step 11 is above 8"));
}

TEST(TrainFlags, OfALearningRatePlanTakeLittleTimeWhateverTheExpression) {
  EXPECT_EQ(LrPlan("(a+)+$=2;.*=1").rules_for({"b", std::string(4000, 'a')}).size(), 2U);
}

TEST(TrainFlags, AreDecimal) {
  config::Plan plan;
  parse_train_options({"--model", "m", "--tokens", "t", "--steps", "010", "--seed",
                       "18446744073709551615", "--warmup", "000"},
                      &plan);
  EXPECT_EQ(plan.options.steps, 10);
  EXPECT_EQ(plan.options.seed, 18446744073709551615U);
  EXPECT_EQ(plan.options.warmup, 0);
}

TEST(TrainFlags, APathLikeAnotherIsAnotherPlace) {
  config::Plan plan;
  EXPECT_NO_THROW(parse_train_options({"--model", "m", "--tokens", "t", "--save-dir", "x",
                                       "--save-pretrained", "x-hf", "--metrics", "../x/m"},
                                      &plan));
  EXPECT_NO_THROW(parse_train_options(
      {"--model", "m", "--tokens", "t", "--save-dir", "x", "--save-every", "2", "--metrics", "x/m"},
      &plan));
}

// A file run.yaml with this text.
std::string yaml_file(const std::string& text) {
  const std::string path = test::empty_directory() + "/run.yaml";
  test::write_file(path, text);
  return path;
}

TEST(TrainFlags, GoBeforeTheFileAndItsAssignments) {
  const std::string file =
      yaml_file("model: m\ntokens: t\nlr: 1\nclip: 1\nsteps: 3\nshuffle: true\n");
  config::Plan plan;
  const Request request = parse_train_options(
      {"--lr", "3", file, "--set", "lr=2", "--set", "clip=2", "--shuffle=false"}, &plan);
  EXPECT_EQ(request, Request::kTrain);
  EXPECT_EQ(plan.options.model, "m");
  EXPECT_EQ(plan.options.steps, 3);
  EXPECT_EQ(plan.options.clip, 2);
  EXPECT_EQ(plan.options.lr, 3);
  EXPECT_FALSE(plan.options.shuffle);
  EXPECT_EQ(plan.origin_of("lr"), "override: --lr");
  EXPECT_EQ(plan.origin_of("clip"), "--set clip=2 clip");
  EXPECT_EQ(plan.origin_of("steps"), file + ":5 steps");
  EXPECT_EQ(plan.origin_of("warmup"), "default");
}

TEST(TrainFlags, AreNotNeededWithAFile) {
  config::Plan plan;
  const std::string file = yaml_file("model: m\ntokens: t\n");
  EXPECT_EQ(parse_train_options({file, "--print-config"}, &plan), Request::kPrintConfig);
  EXPECT_EQ(parse_train_options({"--set", "model=m", "--set", "tokens=t"}, &plan), Request::kTrain);
}

TEST(TrainFlags, ThatRanksMustShareAreCompared) {
  TrainOptions options;
  options.steps = 12;
  options.lr = 0.1;
  const std::string text = config::shared_text(options);
  EXPECT_THAT(text, HasSubstr("--steps=12\n"));
  EXPECT_THAT(text, HasSubstr("--lr=0.1\n"));
  EXPECT_THAT(text, HasSubstr("--shuffle=false\n"));
  for (const char* own : {"--quiet", "--metrics", "--metrics-csv", "--tensorboard", "--threads",
                          "--product-engine"}) {
    EXPECT_EQ(text.find(own), std::string::npos) << own;
  }
}

struct Mistake {
  std::vector<std::string> arguments;
  std::string message;
};

std::string message_of(const std::vector<std::string>& arguments) {
  config::Plan plan;
  try {
    parse_train_options(arguments, &plan);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainMistakes, AreNamed) {
  const std::vector<Mistake> mistakes = {
      {{"--stepz", "3"}, "unknown flag --stepz; did you mean --steps?"},
      {{"--batch", "3"}, "unknown flag --batch; did you mean --global-batch?"},
      {{"--zzzzzzzz"}, "unknown flag --zzzzzzzz (see --help)"},
      {{"stray"}, "unexpected argument 'stray' (see --help)"},
      {{"--strategy", "fullshard"},
       "--strategy fullshard: expected full_shard, shard_grad_op, no_shard, hybrid_shard, "
       "hybrid_shard_zero2; did you mean full_shard?"},
      {{"--device", ""}, "--device '': expected auto, cpu, cuda"},
      {{"--steps", "many"}, "--steps many: expected a whole number (see --help)"},
      {{"--steps", "2", "--steps", "1e3"}, "--steps 1e3: expected a whole number"},
      {{"--steps", ""}, "--steps '': expected a whole number"},
      {{"--model", "m", "--tokens", "t", "--no-decay", "norms"},
       "--no-decay norms: expected norm, bias, or norm,bias"},
      {{"--model", "m", "--tokens", "t", "--no-decay", "norm,"},
       "--no-decay norm,: expected norm, bias, or norm,bias"},
      {{"--model", "m", "--tokens", "t", "--lr-scale", "lm_head.*=0.1,x"},
       "--lr-scale x: expected PATTERN=FACTOR"},
      {{"--model", "m", "--tokens", "t", "--lr-plan", "visual"},
       "--lr-plan visual: expected EXPRESSION=FACTOR"},
      {{"--model", "m", "--tokens", "t", "--lr-plan", "(=2"},
       "--lr-plan (: expected a regular expression"},
      {{"--model", "m", "--tokens", "t", "--lr-plan", "(a)\\1=2"},
       "--lr-plan (a)\\1: expected a regular expression without back-references"},
      {{"--model", "m", "--tokens", "t", "--ns-steps", "100"}, "--ns-steps"},
      {{"--model", "m", "--tokens", "t", "--muon-momentum", "1"}, "--muon-momentum must lie"},
      {{"--model", "m", "--tokens", "t", "--lr-scale", "x=2,"},
       "--lr-scale : expected PATTERN=FACTOR"},
      {{"--model", "m", "--tokens", "t", "--lr-scale", "x=-1"},
       "--lr-scale x=-1: expected PATTERN=FACTOR"},
      {{"--steps", "9223372036854775808"}, "--steps 9223372036854775808: expected -9223372036"},
      {{"--steps", "9223372036854775807"}, "--steps 9223372036854775807 is above"},
      {{"--seed", "-1"}, "--seed -1: expected 0 to 18446744073709551615"},
      {{"--seed", "1e23"}, "--seed 1e23: expected a whole number"},
      {{"--seed", "18446744073709551616"}, "--seed 18446744073709551616: expected 0 to"},
      {{"--lr", "fast"}, "--lr fast: expected a number (see --help)"},
      {{"--min-lr-ratio", "2"}, "--min-lr-ratio must lie in [0, 1]"},
      {{"--start-lr-ratio", "nan"}, "--start-lr-ratio must lie in [0, 1]"},
      {{"--lr-decay-ratio", "0"}, "--lr-decay-ratio must lie in (0, 1]"},
      {{"--grad-accum", "4294967297"}, "--grad-accum 4294967297 is above 16777216"},
      {{"--global-batch", "4294967296"}, "--global-batch 4294967296 is above 2147483648"},
      {{"--seq-len", "4294967296"}, "--seq-len 4294967296 is above 2147483648"},
      {{"--sample", "99999999"}, "--sample 99999999 is above 16777216"},
      {{"--threads", "9999999"}, "--threads 9999999 is above " + std::to_string(most_threads())},
      {{"--fsdp-size", "-1"}, "--fsdp-size -1 is below 0"},
      {{"--steps"}, "--steps needs a value"},
      {{"--steps", "0"}, "--steps 0 is below 1"},
      {{"--optimizer", "lion"}, "--optimizer"},
      {{"--reshard-budget-gb", "-1"}, "--reshard-budget-gb: expected 0 to 1e9"},
      {{"--reshard-budget-gb", "1", "--reshard-after-forward", "false"},
       "--reshard-budget-gb and --reshard-after-forward false exclude each other"},
      {{"--reshard-budget-gb", "1", "--strategy", "no_shard"},
       "--reshard-budget-gb needs --strategy full_shard or hybrid_shard, found no_shard"},
      {{"--optimizer-states", "fp8"}, "--optimizer-states"},
      {{"--optimizer-states", "bf16", "--optimizer", "muon"},
       "--optimizer-states bf16 needs --optimizer adamw or adam, found muon"},
      {{"--optimizer-states", "bf16", "--dtype", "bf16"},
       "--optimizer-states bf16 needs parameters in fp32, found --dtype bf16"},
      {{"--model-config", "x"}, "--model and --model-config exclude each other"},
      {{"--text", "x"}, "--tokens and --text exclude each other"},
      {{"--records", "x"}, "--tokens and --records exclude each other"},
      {{"--tokenizer", "model"}, "--tokenizer model: there is no m/tokenizer.json"},
      {{"--data-weights", "1,2"},
       "--data-weights: expected one number for each file of t, 1 in all, found 2"},
      {{"--data-weights", "nan"}, "--data-weights: 'nan': expected a positive number"},
      {{"--drop-last"}, "--drop-last needs --shuffle"},
      {{"--epochs", "-1"}, "--epochs -1 is below 0"},
      {{"--read-ahead", "1025"}, "--read-ahead 1025 is above 1024"},
      {{"--beta1", "1"}, "--beta1 must lie in [0, 1)"},
      {{"--lr", "-1"}, "--lr must be a number of at least 0"},
      {{"--timeout-s", "0"}, "--timeout-s must be more than 0"},
      {{"--timeout-s", "1e300"}, "--timeout-s must be at most a year"},
      {{"--resume", "auto"}, "--resume auto needs --save-dir"},
      {{"--save-dir", "x", "--save-pretrained", "./x/"},
       "--save-dir and --save-pretrained ./x/ are the same place"},
      {{"--save-dir", "x", "--metrics", "x/m.jsonl"}, "--metrics x/m.jsonl lies in --save-dir x"},
      {{"--save-dir", "x", "--tensorboard", "x/tb"}, "--tensorboard x/tb lies in --save-dir x"},
      {{"--save-every", "2"}, "--save-every needs --save-dir"},
      {{"--keep-last", "2", "--save-dir", "x"}, "--keep-last needs --save-every"},
      {{"--full-state-dict", "x.gguf"}, "--full-state-dict x.gguf: expected FILE.pth"},
      {{"--prompt", "1 2"}, "--prompt needs --sample"},
      {{"--recompute-every", "2"}, "--recompute-every needs --activation-checkpointing"},
      {{"--recompute", "A"}, "--recompute needs --activation-checkpointing"},
      {{"--recompute-names", "a.b"}, "--recompute-names needs --activation-checkpointing"},
      {{"--recompute-every", "0"}, "--recompute-every 0 is below 1"},
      {{"--save-weights", "full"}, "--save-weights needs --save-every"},
      {{"--ckpt-format", "zarr"}, "--ckpt-format zarr"},
      {{"--chunked-loss", "-1"}, "--chunked-loss -1 is below 0"},
      {{"--eval-every", "2"}, "--eval-every needs --eval-data"},
      {{"--eval-data", "x", "--eval-size", "0"}, "--eval-size 0 is below 1"},
      {{"--reshard-after-forward", "1"},
       "--reshard-after-forward 1: expected default, true, false"},
      {{"--reshard-after-forward", "maybe"},
       "--reshard-after-forward maybe: expected default, true, false"},
      {{"--strategy", "no_shard", "--fsdp-size", "2"},
       "--strategy no_shard and --fsdp-size 2 contradict each other"},
      {{"--strategy", "hybrid_shard"}, "--strategy hybrid_shard needs --fsdp-size"},
      {{"--wrap", ""}, "--wrap '': expected default, none, or names of classes"},
      {{"--wrap", "A,,B"}, "--wrap A,,B: expected names with one comma between them"},
      {{"--wrap-names", "a,"}, "--wrap-names a,: expected names with one comma between them"},
      {{"--vocab-size", "-1"}, "--vocab-size -1 is below 0"},
      {{"--strategy", "shard_grad_op", "--reshard-after-forward", "true"},
       "--strategy shard_grad_op and --reshard-after-forward true contradict each other"},
  };
  for (const Mistake& mistake : mistakes) {
    std::vector<std::string> arguments = {"--model", "m", "--tokens", "t"};
    arguments.insert(arguments.end(), mistake.arguments.begin(), mistake.arguments.end());
    const std::string message = message_of(arguments);
    EXPECT_THAT(message, HasSubstr(mistake.message)) << mistake.arguments.front();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_THAT(message_of({"--tokens", "t"}),
              HasSubstr("--model (a directory, a .pt2 or a .pt file) or --model-config"));
  EXPECT_THAT(message_of({"--model", "m"}), HasSubstr("--tokens, --text or --records"));
  EXPECT_THAT(message_of({"--model-config", "m", "--text", "t", "--no-initialization"}),
              HasSubstr("--no-initialization needs --model or --resume"));
}

TEST(TrainMistakes, InAFileAreNamedWithTheirPlace) {
  const std::string file = yaml_file("model: m\ntokens: t\nsteps: 0\nsave_every: 2\n");
  EXPECT_EQ(message_of({file}), "--steps 0 is below 1 (--steps is " + file + ":3 steps)");
  EXPECT_EQ(message_of({file, "--steps", "1"}),
            "--save-every needs --save-dir (--save-every is " + file + ":4 save_every)");
  EXPECT_EQ(message_of({file, "--set", "stepz=1"}),
            "--set stepz=1: unknown key stepz; did you mean steps?");
  EXPECT_EQ(message_of({file, file}), "unexpected argument '" + file + "' (see --help)");
  EXPECT_EQ(message_of({"nothing.yaml"}), "nothing.yaml: No such file or directory");
}

TEST(TrainFlags, TakeMindSpeedsNameForTheirFile) {
  const std::string file = yaml_file("model: m\ntokens: t\nsteps: 7\n");
  config::Plan plan;
  EXPECT_EQ(parse_train_options({"--fsdp2-config-path", file}, &plan), Request::kTrain);
  EXPECT_EQ(plan.options.steps, 7);
  EXPECT_EQ(message_of({"--fsdp2-config-path", file, file}),
            "--fsdp2-config-path " + file + " and " + file + " exclude each other");
}

TEST(TrainMistakes, WithAnExportedProgramAreNamed) {
  const std::vector<std::string> text = {"--model", "m.pt2", "--text", "t"};
  EXPECT_EQ(message_of(text), "");
  EXPECT_EQ(message_of({"--model", "m.pt2", "--tokens", "t", "--vocab-size", "300"}), "");
  EXPECT_EQ(message_of({"--model", "m.pt2", "--tokens", "t"}),
            "--model m.pt2 needs --vocab-size, of the --tokens: a program does not tell its own");
  EXPECT_EQ(message_of({"--model", "m.pt2", "--plain-operators", "--text", "t"}), "");
  EXPECT_EQ(message_of({"--model", "m", "--plain-operators", "--text", "t"}),
            "--plain-operators: --model m is not an exported program, so it has no operators that "
            "others could replace");
  EXPECT_EQ(message_of({"--model", "m.pt2", "--text", "t", "--sample", "9"}),
            "--sample: --model m.pt2 gives its loss alone, and cannot write text");
  EXPECT_EQ(message_of({"--model", "m.pt2", "--text", "t", "--reshard-budget-gb", "9"}),
            "--reshard-budget-gb: --model m.pt2 is a program, whose activations cannot be planned");
  EXPECT_EQ(message_of({"--model", "m.pt2", "--text", "t", "--chunked-loss", "9"}),
            "--chunked-loss: --model m.pt2 computes its loss as it was exported");
  EXPECT_EQ(message_of({"--model", "m.pt2", "--text", "t", "--eval-data", "x"}),
            "--eval-data: --model m.pt2 does not tell which labels its loss counts, and cannot be "
            "evaluated");
  EXPECT_EQ(message_of({"--model", "m.pt2", "--text", "t", "--save-pretrained", "x"}),
            "--save-pretrained: --model m.pt2 has no config.json; --full-state-dict writes its "
            "weights");
}

std::string message_for_world(const TrainOptions& options, int64_t world_size) {
  try {
    check_options_for_world(options, world_size);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(TrainMistakes, ThatDependOnTheWorldAreNamed) {
  TrainOptions options;
  options.grad_accum = 2;
  EXPECT_EQ(message_for_world(options, 4), "");
  EXPECT_EQ(message_for_world(options, 3),
            "--global-batch 8 is not a multiple of ranks x --grad-accum = 3 x 2");
  options.fsdp_size = 3;
  EXPECT_EQ(message_for_world(options, 4),
            "--fsdp-size 3 does not divide the 4 ranks: expected 0 for all of them, 2");
  options.fsdp_size = 2;
  options.reshard_after_forward = "4";
  EXPECT_EQ(message_for_world(options, 4),
            "--reshard-after-forward 4 does not divide the shard group's 2 ranks");
  options.fsdp_size = 0;
  EXPECT_EQ(message_for_world(options, 4), "");
  options.reshard_after_forward = "default";
  options.ulysses_size = 3;
  EXPECT_EQ(message_for_world(options, 4), "--ulysses-size 3 does not divide the 4 ranks");
  options.fsdp_size = 2;
  options.ulysses_size = 4;
  EXPECT_EQ(message_for_world(options, 4),
            "--ulysses-size 4 does not divide --fsdp-size 2: ranks that share sequences are of one "
            "shard group");
  options.fsdp_size = 0;
  options.global_batch = 7;
  EXPECT_EQ(message_for_world(options, 4),
            "--global-batch 7 is not a multiple of ranks / --ulysses-size x --grad-accum = 1 x 2");
  options = TrainOptions();
  options.reshard_after_forward = "4";
  options.strategy = "no_shard";
  EXPECT_EQ(message_for_world(options, 4),
            "--reshard-after-forward 4 does not divide the shard group's 1 rank");
}

TEST(TrainMistakes, ThatDependOnTheModelAreNamed) {
  TrainOptions options;
  options.seq_len = 129;
  EXPECT_NO_THROW(check_options_for_model(options, 129));
  EXPECT_NO_THROW(check_options_for_model(options, 0));
  try {
    check_options_for_model(options, 128);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "--seq-len 129 is beyond the model's 128 positions");
  }
}

}  // namespace
}  // namespace fsdp2::cli
