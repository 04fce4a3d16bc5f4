// `fsdp2 train FILE.yaml`: the examples of every dialect, as they stand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string example(const std::string& name) { return "examples/yaml/" + name + ".yaml"; }

double first_loss(const Training& training) { return training.steps.front().at("loss"); }
double last_loss(const Training& training) { return training.steps.back().at("loss"); }

// For what is the same with any model: a smaller one, which takes less time.
std::vector<std::string> of_small_model(const std::vector<std::string>& arguments) {
  return joined(arguments, {"--model-config", small_llama(), "--product-engine", "mkl"});
}

class YamlExample : public ::testing::TestWithParam<std::string> {};

TEST_P(YamlExample, TrainsOnTwoRanks) {
  const Training training = train(2, {example(GetParam())});
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  EXPECT_EQ(training.summary.at("steps"), 6);
  EXPECT_EQ(training.summary.at("world_size"), 2);
  EXPECT_EQ(training.steps.size(), GetParam() == "roll" ? 3U : 6U);  // logging_steps: 2
  EXPECT_LT(last_loss(training), first_loss(training));
}

TEST_P(YamlExample, PrintsItsConfigurationOnce) {
  const Training training = train(2, {example(GetParam()), "--print-config", "--steps", "9"});
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  const std::vector<std::string> lines = lines_of(training.outcome.out);
  std::set<std::string> keys;
  for (const std::string& line : lines) {
    EXPECT_TRUE(keys.insert(line.substr(0, line.find(':'))).second) << line;
    EXPECT_THAT(line, HasSubstr("  # "));
  }
  EXPECT_THAT(training.outcome.out, HasSubstr("# override: --steps\n"));
  EXPECT_THAT(training.outcome.out, HasSubstr("# " + example(GetParam()) + ":"));
  EXPECT_THAT(training.outcome.out, HasSubstr("# default\n"));
}

TEST_P(YamlExample, TrainsTheSameFromWhatItPrints) {
  const std::vector<std::string> as_it_stands = {example(GetParam())};
  const std::vector<std::string> example_run =
      GetParam() == "vision" ? as_it_stands : of_small_model(as_it_stands);  // it needs images
  const Training printed = train(2, joined(example_run, {"--print-config"}));
  ASSERT_EQ(printed.outcome.exit_code, 0) << printed.outcome.err;
  const std::string file = empty_directory() + "/printed.yaml";
  write_file(file, printed.outcome.out);
  const Training first = train(2, joined(example_run, {"--log-every", "1"}));
  const Training second = train(2, {file, "--log-every", "1"});
  ASSERT_EQ(second.outcome.exit_code, 0) << second.outcome.err;
  expect_same_steps(second.steps, as_lists(first.steps), {1e-6, 1e-6});
}

INSTANTIATE_TEST_SUITE_P(All, YamlExample,
                         ::testing::Values("plain", "roll", "mm", "mm_legacy", "vision"),
                         [](const auto& info) { return info.param; });

TEST(FineTuning, OfTheExamplesLowersTheLossOfText) {
  for (const std::string name : {"qwen3", "moe"}) {
    const Training training = train(2, {example(name), "--steps", "3"});
    ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    ASSERT_EQ(training.steps.size(), 3U);
    EXPECT_LT(last_loss(training), first_loss(training) - 0.5) << name;
  }
}

// Before the other role has trained it, the model knows nothing of bytes.
TEST(InferenceRole, OfTheExampleScoresItsModel) {
  const Outcome outcome = run(launched(
      2, {fsdp2_program(), "score", example("qwen3"), "--role", "reference", "--batches", "2"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json line = Json::parse(lines_of(outcome.out).back());
  EXPECT_EQ(line.at("n_labels"), 2 * 2 * 4 * 64);
  EXPECT_NEAR(line.at("loss").get<double>(), std::log(384), 1);
}

// The losses of examples/c/configured, by step.
std::vector<double> losses_in_c(int ranks, const std::vector<std::string>& arguments) {
  const auto command = joined({repository_file("examples/c/configured")}, arguments);
  const Outcome outcome =
      run(ranks == 1 ? command : launched(ranks, command), with_variable("OMP_NUM_THREADS", "1"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::vector<double> losses;
  for (const std::string& line : lines_of(outcome.out)) {
    losses.push_back(std::stod(line.substr(line.rfind(' '))));
  }
  return losses;
}

// Plain keys stand in a section of their own in the other dialects.
std::vector<std::string> plain_sets(const std::string& name, const std::vector<std::string>& sets) {
  std::vector<std::string> all;
  for (const std::string& set : sets) {
    all.push_back((name == "plain" ? "" : "libfsdp2.") + set);
  }
  return all;
}

class YamlInC : public ::testing::TestWithParam<std::string> {};

TEST_P(YamlInC, TrainsAsTheToolDoesToTheBit) {
  const auto sets = plain_sets(GetParam(), {"model_config=" + small_llama(), "product_engine=mkl"});
  std::vector<std::string> flags = {example(GetParam()), "--log-every", "1"};
  for (const std::string& set : sets) {
    flags = joined(flags, {"--set", set});
  }
  for (const int ranks : GetParam() == "plain" ? std::vector<int>{1, 2} : std::vector<int>{2}) {
    const Training tool = train(ranks, flags);
    ASSERT_EQ(tool.outcome.exit_code, 0) << tool.outcome.err;
    std::vector<double> expected;
    for (const Json& step : tool.steps) {
      expected.push_back(step.at("loss"));
    }
    EXPECT_EQ(expected.size(), 6U);
    EXPECT_EQ(losses_in_c(ranks, joined({example(GetParam())}, sets)), expected) << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(All, YamlInC, ::testing::Values("plain", "roll", "mm", "mm_legacy"),
                         [](const auto& info) { return info.param; });

// The simple files, with a small model of the same kind in place of the preset.
std::vector<std::string> simple_run(const std::string& name, const std::string& out) {
  const std::vector<std::string> sets = {
      "model=" + repository_file("tests/parity/golden/models/tiny-gpt2"),
      "out_dir=" + out,
      "train_batch=4",
      "steps=6",
      "save_every=2",
      "libfsdp2.seq_len=32"};
  std::vector<std::string> arguments = {example(name), "--product-engine", "mkl"};
  for (const std::string& set : sets) {
    arguments = joined(arguments, {"--set", set});
  }
  return arguments;
}

TEST(SimpleYaml, NamesItsPreset) {
  for (const std::string size : {"90", "300"}) {
    const Training training = train(2, {example("train" + size + "M_fsdp"), "--print-config"});
    ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    EXPECT_THAT(training.outcome.out, HasSubstr("model_config: \"gpt-" + size + "m\""));
  }
}

TEST(SimpleYaml, TrainsAndLeavesTheWeightsOfEachSave) {
  const std::string out = empty_directory() + "/out";
  const Training training = train(2, simple_run("train90M_fsdp", out));
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  EXPECT_LT(last_loss(training), first_loss(training));
  for (const std::string step : {"2", "4", "6"}) {
    EXPECT_TRUE(fs::exists(out + "/step-0000000" + step));
    EXPECT_TRUE(fs::exists(out + "/fsdp_cpt" + step + ".pth"));
  }
  const Training again =
      train(1, joined(simple_run("train90M_fsdp", out + "2"),
                      {"--set", "world_size=1", "--set", "resume_from=" + out + "/fsdp_cpt6.pth"}));
  ASSERT_EQ(again.outcome.exit_code, 0) << again.outcome.err;
  EXPECT_LT(first_loss(again), first_loss(training));
}

TEST(SimpleYaml, ResumesWhereItStopped) {
  const std::string folder = empty_directory();
  const Training whole = train(2, simple_run("train300M_fsdp", folder + "/whole"));
  ASSERT_EQ(whole.outcome.exit_code, 0) << whole.outcome.err;
  ASSERT_EQ(whole.steps.size(), 6U);
  const auto parts = simple_run("train300M_fsdp", folder + "/parts");
  ASSERT_EQ(train(2, joined(parts, {"--stop-step", "3"})).outcome.exit_code, 0);
  EXPECT_TRUE(fs::exists(folder + "/parts/fsdp_sharded_cpt2_rank1.pth"));
  const Training rest = train(2, parts);
  ASSERT_EQ(rest.outcome.exit_code, 0) << rest.outcome.err;
  ASSERT_EQ(rest.steps.size(), 3U);
  for (size_t i = 0; i < rest.steps.size(); ++i) {
    EXPECT_EQ(rest.steps[i].at("loss"), whole.steps[i + 3].at("loss"));
  }
}

TEST(SimpleYaml, TrainsInCAsTheToolDoes) {
  const std::string out = empty_directory() + "/out";
  const std::vector<std::string> flags = simple_run("train90M_fsdp", out);
  std::vector<std::string> arguments = {flags.front(), "libfsdp2.product_engine=mkl"};
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == "--set") {
      arguments.push_back(flags[i + 1]);
    }
  }
  const std::vector<double> losses = losses_in_c(2, arguments);
  const Training tool = train(2, flags);
  ASSERT_EQ(tool.steps.size(), losses.size()) << tool.outcome.err;
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_EQ(tool.steps[i].at("loss"), losses[i]) << i;
  }
}

TEST(ModelConfigKwargs, ChangeTheModelAndWhatIsExported) {
  const std::string folder = empty_directory() + "/model";
  const std::string key = "actor_train.model_args.model_config_kwargs";
  const auto run = of_small_model({example("roll")});
  const Training two = train(
      2, joined(run, {"--set", key + "={num_hidden_layers: 2}", "--save-pretrained", folder}));
  ASSERT_EQ(two.outcome.exit_code, 0) << two.outcome.err;
  EXPECT_EQ(Json::parse(read_file(folder + "/config.json")).at("num_hidden_layers"), 2);
  const Training misspelt = train(2, joined(run, {"--set", key + "={num_hiden_layers: 2}"}));
  EXPECT_EQ(misspelt.outcome.exit_code, 1);
  EXPECT_THAT(misspelt.outcome.err, HasSubstr("--config-overrides (--set " + key));
  EXPECT_THAT(misspelt.outcome.err, HasSubstr("unknown field \"num_hiden_layers\""));
  EXPECT_THAT(misspelt.outcome.err, HasSubstr("did you mean num_hidden_layers?"));
}

TEST(Determinism, GivesTheSameBitsInEveryRun) {
  const std::string folder = empty_directory();
  const auto run = [&](const std::string& model, const std::string& weights) {
    write_file(folder + "/run.yaml",
               "parallel: {}\ntraining: {train_iters: 4, use_deter_comp: true}\n"
               "libfsdp2: {threads: 2, full_state_dict: " +
                   weights + "}\n");
    return train(2, joined({folder + "/run.yaml", "--micro-batch", "2"}, golden_inputs(model)));
  };
  for (const std::string model : {"tiny-llama", "tiny-qwen3-moe", "tiny-gpt2"}) {
    const std::string a = folder + "/a.safetensors", b = folder + "/b.safetensors";
    const Training first = run(model, a);
    ASSERT_EQ(first.outcome.exit_code, 0) << first.outcome.err;
    EXPECT_EQ(as_lists(run(model, b).steps), as_lists(first.steps)) << model;
    EXPECT_TRUE(read_file(a) == read_file(b)) << model;
  }
}

TEST(RouterLoss, IsWeighedByTheFile) {
  const std::string file = empty_directory() + "/run.yaml";
  const auto run = [&](const std::string& model, const std::string& factor) {
    write_file(file, "parallel: {}\nfeatures: {loss_cfg: {router_aux_loss_coef: " + factor +
                         "}}\ntraining: {train_iters: 1}\n");
    return train(1, joined({file}, golden_inputs(model)));
  };
  const Training without = run("tiny-qwen3-moe", "0");
  const Training with = run("tiny-qwen3-moe", "0.5");
  ASSERT_EQ(with.outcome.exit_code, 0) << with.outcome.err;
  EXPECT_GT(first_loss(with), first_loss(without) + 0.1);
  const Training dense = run("tiny-llama", "0.5");
  EXPECT_EQ(dense.outcome.exit_code, 1);
  EXPECT_THAT(dense.outcome.err, HasSubstr("run.yaml:2 features.loss_cfg.router_aux_loss_coef): "));
  EXPECT_THAT(dense.outcome.err, HasSubstr("unknown field \"output_router_logits\""));
}

// MindSpeed-MM's older files go with flags of Megatron's, as a launch script has them.
TEST(MindSpeed, CompanionFlagsAreTaken) {
  const std::string folder = empty_directory();
  const auto flags =
      of_small_model({"--fsdp2-config-path", example("mm_legacy"), "--ckpt-format", "torch_dcp",
                      "--init-model-with-meta-device", "--untie-embeddings-and-output-weights"});
  const Training first =
      train(2, joined(flags, {"--save-dir", folder + "/c", "--save-every", "3"}));
  ASSERT_EQ(first.outcome.exit_code, 0) << first.outcome.err;
  const std::vector<std::string> resume = {"--ckpt-format", "torch_dist", "--resume",
                                           folder + "/c/step-00000003", "--no-initialization"};
  const Training second = train(2, joined(flags, resume));
  ASSERT_EQ(second.outcome.exit_code, 0) << second.outcome.err;
  ASSERT_EQ(second.steps.size(), 3U);
  EXPECT_EQ(last_loss(second), last_loss(first));
}

TEST(MindSpeed, TiedWeightsAreUntiedOrRefused) {
  const std::string models = "tests/parity/golden/models/";
  const std::string tied = repository_file(models + "tiny-gpt2");
  const std::vector<std::string> flags = {"--untie-embeddings-and-output-weights", "--text",
                                          "examples/data/opticks.txt", "--steps", "1"};
  const Training refused = train(1, joined(flags, {"--model", tied}));
  EXPECT_EQ(refused.outcome.exit_code, 2);
  EXPECT_THAT(refused.outcome.err, HasSubstr("shares weights between embeddings and head"));
  const auto parameters = [&](const std::vector<std::string>& more) {
    const Training training = train(1, joined({"--model-config", tied + "/config.json", "--text",
                                               "examples/data/opticks.txt", "--steps", "1"},
                                              more));
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    return training.summary.at("parameters").get<int64_t>();
  };
  constexpr int64_t kHead = 384 * 64;
  EXPECT_EQ(parameters({"--untie-embeddings-and-output-weights"}), parameters({}) + kHead);
}

TEST(Yaml, IgnoredKeysAreToldOnce) {
  const Training training = train(2, of_small_model({example("roll")}));
  EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  EXPECT_EQ(training.outcome.err_lines_with("ignored").size(), 2U);  // of the file, of the role
  EXPECT_THAT(training.outcome.err, HasSubstr("rollout_batch_size"));
}

TEST(Yaml, MistakesAreToldOnceBeforeAnyRankStarts) {
  const Training unknown = train(2, {example("plain"), "--set", "stepz=1"});
  EXPECT_EQ(unknown.outcome.exit_code, 2);
  EXPECT_EQ(unknown.outcome.err,
            "fsdp2 train: --set stepz=1: unknown key stepz; did you mean steps?\n");
  const Training ranks = train(3, {example("roll")});
  EXPECT_EQ(ranks.outcome.exit_code, 2);
  EXPECT_THAT(ranks.outcome.err, HasSubstr("the configuration is for 2 ranks (" + example("roll")));
}

// Whether the key says how ranks are laid out, or not.
TEST(Yaml, RanksWhoseFilesDifferAreToldTheKeyAndBothPlaces) {
  const std::string folder = empty_directory();
  const auto differ_by = [&](const std::string& first_line) {
    const std::string text = read_file(example("plain"));
    write_file(folder + "/rank0.yaml", "timeout_s: 60\n" + text);
    write_file(folder + "/rank1.yaml", first_line + "\n" + text);
    return run(launched(
        2, {"sh", "-c", "exec " + fsdp2_program() + " train " + folder + "/rank$RANK.yaml"}));
  };
  const Outcome rates = differ_by("beta1: 0.8");
  EXPECT_EQ(rates.exit_code, 1);
  EXPECT_EQ(rates
                .err_lines_with("options: the ranks differ in --beta1: rank 0 has 0.9 (default), "
                                "rank 1 has 0.8 (" +
                                folder + "/rank1.yaml:1 beta1)")
                .size(),
            2U)
      << rates.err;
  EXPECT_THAT(differ_by("fsdp_size: 2").err,
              HasSubstr("the ranks differ in --fsdp-size: rank 0 has 0 (default), rank 1 has 2 (" +
                        folder + "/rank1.yaml:1 fsdp_size)"));
}

TEST(Yaml, RecomputesByClassByPathAndEveryKthWithTheSameLosses) {
  const auto usual = of_small_model({example("plain")});
  const Training all = train(2, usual);
  ASSERT_EQ(all.outcome.exit_code, 0) << all.outcome.err;
  const std::vector<std::vector<std::string>> choices = {
      {"--set", "recompute=[LlamaMLP, LlamaAttention]", "--set", "recompute_every=3"},
      {"--set", "recompute_names=['model.layers.{1-2}', lm_head]"},
      {"--set", "activation_checkpointing=false"}};
  for (const std::vector<std::string>& choice : choices) {
    const Training some = train(2, joined(usual, choice));
    ASSERT_EQ(some.outcome.exit_code, 0) << some.outcome.err;
    expect_same_steps(some.steps, as_lists(all.steps), {1e-6, 1e-6});
  }
  const Training wrong = train(1, joined(usual, {"--set", "recompute=[LlamaMPL]"}));
  EXPECT_EQ(wrong.outcome.exit_code, 1);
  EXPECT_THAT(wrong.outcome.err, HasSubstr("no module of class LlamaMPL"));
}

TEST(Yaml, PatternsMustMatch) {
  const Training training =
      train(1, {example("mm"), "--set", "parallel.fsdp_plan.apply_modules=['model.layerz.{*}']"});
  EXPECT_EQ(training.outcome.exit_code, 2);
  EXPECT_THAT(training.outcome.err,
              HasSubstr("--wrap-names: nothing is called model.layerz.{*}; did you mean "
                        "model.layers.0?"));
  const Training recomputed = train(1, {example("mm"), "--recompute-names", "model.layerz.{*}"});
  EXPECT_THAT(recomputed.outcome.err,
              HasSubstr("--recompute-names: nothing is called model.layerz"));
  const Training frozen = train(1, {example("mm"), "--freeze", "model.x"});
  EXPECT_THAT(frozen.outcome.err, HasSubstr("--freeze: nothing is called model.x"));
}

TEST(Yaml, ALearningRatePlanMayEndWithAllOthers) {
  const Training training = train(
      1, of_small_model({example("plain"), "--steps", "1", "--lr-plan", "lm_head.*=0.5;.*=1"}));
  EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
}

// In one precision: what is ignored computes in the dtype that it has.
TEST(Yaml, FreezeAndIgnoreLeaveParametersAlone) {
  const auto usual = of_small_model(
      {example("plain"), "--wrap-head=false", "--param-dtype", "none", "--reduce-dtype", "none"});
  const Training all = train(2, usual);
  ASSERT_EQ(all.outcome.exit_code, 0) << all.outcome.err;
  for (const std::string flag : {"--freeze", "--ignored-modules"}) {
    const Training fewer = train(2, joined(usual, {flag, "model.layers.{0-3}"}));
    ASSERT_EQ(fewer.outcome.exit_code, 0) << flag << fewer.outcome.err;
    EXPECT_NEAR(first_loss(fewer), first_loss(all), 1e-6) << flag;
    EXPECT_GT(last_loss(fewer), last_loss(all)) << flag;
    EXPECT_LT(fewer.steps.front().at("grad_norm"), all.steps.front().at("grad_norm")) << flag;
  }
}

}  // namespace
}  // namespace fsdp2::test
