// `fsdp2 plan`: one process works out what a job of any size would hold and move.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Texts = std::vector<std::string>;

Outcome plan(const Texts& arguments) { return run(joined({fsdp2_program(), "plan"}, arguments)); }

std::string tiny_llama() { return repository_file("tests/parity/golden/models/tiny-llama"); }

// First, so that no other child has used more memory before.
TEST(Plan, OfASeventyBillionModelIsQuickAndSmall) {
  const std::string config = empty_directory() + "/config.json";
  write_file(config, R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "hidden_act": "silu", "tie_word_embeddings": false, "attention_bias": false,
    "mlp_bias": false, "torch_dtype": "bfloat16"})");
  const Outcome outcome = plan({"--model", config, "--world-size", "1024", "--rank", "1000",
                                "--param-dtype", "bf16", "--reduce-dtype", "fp32"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("70553706496 elements over Mesh(fsdp=1024) rank 1000"),
                                 HasSubstr("model.layers.0 to model.layers.79")));
  rusage used{};
  ASSERT_EQ(getrusage(RUSAGE_CHILDREN, &used), 0);
  const double megabytes = static_cast<double>(used.ru_maxrss) / 1000;
  RecordProperty("seconds", std::to_string(outcome.seconds));
  RecordProperty("megabytes", std::to_string(megabytes));
  std::printf("%.2f s, %.0f MB\n", outcome.seconds, megabytes);
  EXPECT_LT(outcome.seconds, 30);
  EXPECT_LT(megabytes, 1000);
}

TEST(Plan, KnowsModelPresetsByName) {
  const Outcome outcome = plan({"--model", "gpt-90m", "--world-size", "2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("91933440 elements"));
}

// 2 layers of 4 heads of 16 and as many of keys and values, 2 windows of 50 tokens: 25 positions of
// (12 + 4) * 16 elements, twice, of which a rank receives half.
TEST(Plan, CountsWhatRanksThatShareSequencesExchange) {
  const Outcome outcome = plan({"--model", tiny_llama(), "--world-size", "4", "--ulysses-size", "2",
                                "--micro-batch", "2", "--seq-len", "50"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("elements over Mesh(dp_cp=4)"));
  EXPECT_THAT(outcome.out, testing::ContainsRegex("all-to-all +2 +8 +102.40 kB +102400"));
}

TEST(Plan, ShowsUnitsMemoryTrafficAndOrder) {
  const Outcome outcome =
      plan({"--model", tiny_llama(), "--world-size", "8", "--fsdp-size", "4", "--rank", "5"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* part : {"149824 elements over Mesh(ddp=2, fsdp=4) rank 5 at (1, 1)", "(root)",
                           "memory of this rank", "optimizer", "all-gather", "reduce-scatter",
                           "all-reduce", "forward", "backward"}) {
    EXPECT_THAT(outcome.out, HasSubstr(part));
  }
}

TEST(Plan, TellsProgramsTheBytesOfAStep) {
  const Texts step = {"--model", tiny_llama(), "--world-size", "2", "--seq-len", "64"};
  const Outcome outcome = plan(joined(step, {"--json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json line = Json::parse(outcome.out);
  EXPECT_EQ(line.at("peak_bytes").get<int64_t>(), line.at("model_bytes").get<int64_t>() +
                                                      line.at("optimizer_bytes").get<int64_t>() +
                                                      line.at("activation_bytes").get<int64_t>());
  EXPECT_GT(line.at("activation_bytes").get<int64_t>(), 0);
  EXPECT_THAT(plan({"--model", tiny_llama(), "--json"}).err, HasSubstr("--json needs --seq-len"));
}

TEST(Plan, SaysWhichDimsParametersAreCutAlong) {
  const Texts eleven = {"--model", tiny_llama(), "--world-size", "11"};  // of MLPs 176 wide
  EXPECT_THAT(plan(eleven).out, Not(HasSubstr("0 and 1")));
  const Outcome even = plan(joined(eleven, {"--shard-dim", "auto"}));
  ASSERT_EQ(even.exit_code, 0) << even.err;
  EXPECT_THAT(even.out, HasSubstr("0 and 1"));
  EXPECT_THAT(plan(joined(eleven, {"--shard-dim", "1"})).err, HasSubstr("--shard-dim"));
}

TEST(Plan, OfAModelThatCannotBeReadNamesIt) {
  const Outcome outcome = plan({"--model", "/nowhere"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "fsdp2 plan: --model /nowhere: No such file or directory\n");
  EXPECT_EQ(outcome.out, "");
}

// What `fsdp2 plan` makes of a number of ranks and a --fsdp-size: its mesh, or its error.
std::string mesh_planned(int world_size, int fsdp_size) {
  const Outcome outcome = plan({"--model", tiny_llama(), "--world-size", std::to_string(world_size),
                                "--fsdp-size", std::to_string(fsdp_size)});
  const std::string& out = outcome.out;
  const size_t begin = out.find("over Mesh(") + 10;
  return outcome.exit_code != 0 ? outcome.err : out.substr(begin, out.find(')', begin) - begin);
}

TEST(Plan, SizesOfShardGroupsGiveTheirMeshOrTheirError) {
  const auto refusal = [](int size, int ranks, const std::string& others) {
    return "fsdp2 plan: --fsdp-size " + std::to_string(size) + " does not divide the " +
           std::to_string(ranks) + " ranks: expected 0 for all of them" + others + "\n";
  };
  const std::vector<int> sizes = {0, 1, 2, 3, 4, 8, 64};
  const std::vector<std::pair<int, Texts>> expected = {
      {1, Texts(7, "fsdp=1")},
      {2, Texts(7, "fsdp=2")},
      {3, {"fsdp=3", "fsdp=3", refusal(2, 3, ""), "fsdp=3", "fsdp=3", "fsdp=3", "fsdp=3"}},
      {4,
       {"fsdp=4", "fsdp=4", "ddp=2, fsdp=2", refusal(3, 4, ", 2"), "fsdp=4", "fsdp=4", "fsdp=4"}},
      {6,
       {"fsdp=6", "fsdp=6", "ddp=3, fsdp=2", "ddp=2, fsdp=3", refusal(4, 6, ", 2, 3"), "fsdp=6",
        "fsdp=6"}},
      {8,
       {"fsdp=8", "fsdp=8", "ddp=4, fsdp=2", refusal(3, 8, ", 2, 4"), "ddp=2, fsdp=4", "fsdp=8",
        "fsdp=8"}}};
  for (const auto& [ranks, meshes] : expected) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(mesh_planned(ranks, sizes[i]), meshes[i]) << ranks << " ranks, size " << sizes[i];
    }
  }
}

TEST(Plan, StrategiesDiffer) {
  const Texts base = {"--model", tiny_llama(), "--world-size", "8"};
  const std::string full = plan(base).out;
  for (const Texts& strategy :
       std::vector<Texts>{{"--strategy", "shard_grad_op"},
                          {"--strategy", "no_shard"},
                          {"--strategy", "hybrid_shard", "--fsdp-size", "4"},
                          {"--reshard-after-forward", "true"},
                          {"--reshard-after-forward", "4"},
                          {"--wrap", "none"},
                          {"--wrap", "LlamaMLP,LlamaAttention"},
                          {"--wrap-names", "lm_head"},
                          {"--optimizer", "sgd"},
                          {"--optimizer", "sgd", "--momentum", "0"},
                          {"--optimizer", "muon"},
                          {"--optimizer-states", "bf16"},
                          {"--prefetch", "0"}}) {
    const Outcome outcome = plan(joined(base, strategy));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out, full) << strategy.back();
  }
}

std::string kilobytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f kB", static_cast<double>(bytes) / 1000);
  return bytes == 0 ? "0 B" : text;
}

// What `fsdp2 train` holds of each form, it counts itself.
TEST(Plan, CountsTheStatesThatTrainingMakes) {
  for (const Texts& form : std::vector<Texts>{{},
                                              {"--optimizer", "adam"},
                                              {"--optimizer-states", "bf16"},
                                              {"--optimizer", "sgd"},
                                              {"--optimizer", "sgd", "--momentum", "0"},
                                              {"--optimizer", "muon"}}) {
    SCOPED_TRACE(testing::PrintToString(form));
    const Training training = train(
        2,
        joined(joined(golden_inputs("tiny-llama"), {"--steps", "2", "--memory-step", "1"}), form));
    ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    const Json memory = event_of(training, "memory");
    const auto held = memory.at("live").at("optimizer").get<int64_t>();
    EXPECT_EQ(memory.at("plan").at("optimizer"), held);
    const Outcome outcome = plan(joined({"--model", tiny_llama(), "--world-size", "2"}, form));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, testing::ContainsRegex("optimizer +" + kilobytes(held) + "\n"));
  }
}

TEST(Plan, TakesTheFileOfATrainingRun) {
  const std::string file = empty_directory() + "/run.yaml";
  write_file(file,
             "model: " + tiny_llama() +
                 "\noptimizer: muon\nworld_size: 4\nglobal_batch: 8\nseq_len: 16\n"
                 "mlp_tiles: 2\npregather: true\nepochs: 2\nwarmup: 100\nlr_schedule: cosine\n");
  const Outcome outcome = plan({file});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("the plan leaves out --pregather"),
                                 HasSubstr("run.yaml:7"), Not(HasSubstr("--mlp-tiles"))));
  EXPECT_EQ(outcome.out, plan({"--model", tiny_llama(), "--optimizer", "muon", "--world-size", "4",
                               "--micro-batch", "2", "--seq-len", "16", "--mlp-tiles", "2"})
                             .out);
  const Outcome other = plan({"--optimizer", "sgd", file});
  EXPECT_NE(other.out, outcome.out);
  EXPECT_THAT(plan({"--world-size", "3", file}).err, HasSubstr("--global-batch 8"));
  EXPECT_THAT(plan({file + ".missing"}).err, HasSubstr("run.yaml.missing"));
}

std::string run_file(const std::string& text) {
  const std::string file = empty_directory() + "/run.yaml";
  write_file(file, text);
  return file;
}

TEST(Plan, LeavesOutNothingOfAFileThatSpellsOutTheDefaults) {
  const std::string file = run_file("model_config: gpt-90m\nseq_len: 16\ntext: any.txt\n");
  const Outcome printed = run({fsdp2_program(), "train", file, "--print-config"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const Outcome outcome = plan({run_file(printed.out), "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out, plan({file, "--json"}).out);
  EXPECT_THAT(plan({file, "--json"}).out, HasSubstr("peak_bytes"));
}

TEST(Plan, TakesTheFileOfAnExportedProgram) {
  const std::string program = repository_file("tests/parity/exported/llama.pt2");
  const Outcome outcome = plan({run_file("model: " + program + "\nglobal_batch: 1\n")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, plan({"--model", program}).out);
}

TEST(Plan, RefusesNumbersOfAFileThatItCannotHold) {
  for (const std::string wrong :
       {"world_size: 4294967298", "prefetch: 4294967297", "recompute_every: 4294967297",
        "grad_accum: 9223372036854775807"}) {
    const Outcome outcome = plan({run_file("model: " + tiny_llama() + "\n" + wrong + "\n")});
    EXPECT_EQ(outcome.exit_code, 2) << wrong;
    const std::string number = wrong.substr(wrong.find(' '));
    EXPECT_THAT(outcome.err, HasSubstr(number + " is above ")) << wrong;
  }
}

TEST(Plan, OfStatesInBf16NeedsTheirOptimizerAndParameters) {
  EXPECT_THAT(plan({"--model", "gpt-90m", "--optimizer-states", "bf16", "--optimizer", "sgd"}).err,
              HasSubstr("--optimizer-states bf16 needs --optimizer adamw or adam, found sgd"));
  EXPECT_THAT(plan({"--model", "gpt-90m", "--optimizer-states", "bf16", "--dtype", "bf16"}).err,
              HasSubstr("needs parameters in fp32, found --dtype bf16"));
}

TEST(Plan, OfAnExportedProgramHasTheUnitsOfItsClasses) {
  const std::string program = repository_file("tests/parity/exported/llama.pt2");
  const Outcome outcome = plan({"--model", program, "--world-size", "4"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("elements over Mesh(fsdp=4) rank 0"),
                                 HasSubstr("model.layers.0"), Not(HasSubstr("model.norm"))));
  const Outcome by_class =
      plan({"--model", program, "--world-size", "4", "--wrap", "LlamaMLP,LlamaRMSNorm"});
  EXPECT_THAT(by_class.out, AllOf(HasSubstr("model.layers.0.mlp"), HasSubstr("model.norm")))
      << by_class.err;
  EXPECT_THAT(plan({"--model", program, "--wrap", "NoSuchClass"}).err,
              AllOf(HasSubstr("fsdp2 plan: "), HasSubstr("NoSuchClass"), HasSubstr("LlamaMLP")));
}

// What rank 0 of two comes to hold in training, in bytes.
double measured_bytes(const std::string& config, const Texts& dtypes) {
  const std::string tokens = golden_inputs("tiny-llama")[3];
  const Training training =
      train(2, joined({"--model-config", config, "--tokens", tokens, "--steps", "2", "--seq-len",
                       "8", "--global-batch", "2", "--quiet"},
                      dtypes));
  EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  return training.summary.at("peak_rss_bytes")[0].get<double>() -
         training.summary.at("rss_before_model_bytes")[0].get<double>();
}

// The number in the row "together, at most   330.10 MB".
double planned_bytes(const std::string& config, const Texts& dtypes) {
  const std::string text = plan(joined({"--model", config, "--world-size", "2"}, dtypes)).out;
  const std::string row = "together, at most";
  const size_t at = text.find(row);
  EXPECT_NE(at, std::string::npos) << text;
  std::istringstream figure(text.substr(at + row.size()));
  double value = 0;
  std::string unit;
  figure >> value >> unit;
  EXPECT_EQ(unit, "MB");
  return value * 1e6;
}

TEST(Plan, AtMostIsNoLessThanWhatARunComesToHold) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "what the sanitizer keeps for itself is not planned";
#endif
  const std::string config = config_of_width(4, 512, 1408, 16384);
  const std::string tiny = config_of_width(4, 64, 176, 384);
  for (const Texts& dtypes :
       std::vector<Texts>{{}, {"--param-dtype", "bf16", "--reduce-dtype", "fp32"}}) {
    // Both runs load the same code and keep the same small things.
    const double measured = measured_bytes(config, dtypes) - measured_bytes(tiny, dtypes);
    const double planned = planned_bytes(config, dtypes);
    std::printf("measured %.0f MB, at most %.0f MB\n", measured / 1e6, planned / 1e6);
    EXPECT_LE(measured, planned);
    EXPECT_GE(measured, planned / 2) << "a bound that says little";
  }
}

// The gigabytes in the row that begins so.
double gigabytes_in(const std::string& text, const std::string& row) {
  const size_t at = text.find(row);
  EXPECT_NE(at, std::string::npos) << text;
  std::istringstream figure(text.substr(at + row.size()));
  double value = 0;
  std::string unit;
  figure >> value >> unit;
  EXPECT_EQ(unit, "GB");
  return value;
}

TEST(Plan, TellsTheMemoryOfAStepWithItsActivations) {
  const Texts step = {"--model", "gpt-90m", "--world-size", "2", "--seq-len", "512"};
  const std::string one = plan(step).out;
  EXPECT_THAT(one, HasSubstr("in a step on CPUs, 1 window of 512 tokens, when it is most"));
  const std::string activations = "activations and what is being computed";
  const std::string many = plan(joined(step, {"--micro-batch", "16"})).out;
  EXPECT_GT(gigabytes_in(many, activations), 8 * gigabytes_in(one, activations));
  const std::string less =
      plan(joined(step, {"--micro-batch", "16", "--activation-checkpointing"})).out;
  EXPECT_LT(gigabytes_in(less, activations), gigabytes_in(many, activations) / 2);
}

TEST(Plan, ShowsWhatMakesAStepFit) {
  const Outcome outcome = plan({"--model", "gpt-90m", "--world-size", "2", "--seq-len", "512",
                                "--micro-batch", "4", "--memory-gb", "2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("a step in 2.000 GB of tensors"), HasSubstr("as given"),
                                 HasSubstr("--micro-batch 1 --activation-checkpointing"),
                                 HasSubstr("--update-in-backward"), HasSubstr("--world-size 16")));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("does not fit"), HasSubstr(" fits")));
  EXPECT_EQ(plan({"--model", "gpt-90m", "--memory-gb", "2"}).err,
            "fsdp2 plan: --memory-gb needs --seq-len: activations are a part of what has to fit\n");
  EXPECT_THAT(plan({"--model", "m.pt2", "--seq-len", "8"}).err,
              HasSubstr("m.pt2 is a program, whose activations cannot be planned"));
}

// The least of a table of steps, in gigabytes.
double least_in(const std::string& table) {
  double least = std::numeric_limits<double>::infinity();
  const std::regex row("([0-9.]+) GB  +(fits|does not fit)\n");
  for (std::sregex_iterator found(table.begin(), table.end(), row), end; found != end; ++found) {
    least = std::min(least, std::stod((*found)[1]));
  }
  return least;
}

TEST(Plan, PutsOptionsTogetherWhereNoneIsEnoughAlone) {
  const auto within = [&](double gigabytes) {
    const Outcome outcome =
        plan({"--model", config_of_width(4, 512, 1408, 2048), "--world-size", "2", "--seq-len",
              "128", "--micro-batch", "8", "--memory-gb", std::to_string(gigabytes)});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string all = " --optimizer-states bf16 --param-dtype bf16";
  const std::string alone = within(100);
  EXPECT_THAT(alone, Not(HasSubstr(all)));
  const std::string together = within(0.9 * least_in(alone));
  EXPECT_THAT(together,
              AllOf(HasSubstr("--micro-batch 1 --activation-checkpointing"), HasSubstr(all)));
  EXPECT_THAT(together, HasSubstr("  fits\n"));
  EXPECT_LT(least_in(together), 0.9 * least_in(alone));
  EXPECT_THAT(within(0.000001), HasSubstr("no options of fsdp2 plan make it fit"));
}

TEST(Plan, ShowsNoOptionsThatTheToolRefuses) {
  const Outcome outcome = plan({"--model", tiny_llama(), "--world-size", "2", "--strategy",
                                "shard_grad_op", "--seq-len", "16", "--memory-gb", "2"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("--reshard-after-forward false "),
                                 Not(HasSubstr("--reshard-after-forward true "))));
}

Texts names_after(const std::string& text, const std::string& row) {
  Texts names;
  const size_t at = text.find(row);
  EXPECT_NE(at, std::string::npos) << text;
  std::istringstream lines(text.substr(text.find('\n', at) + 1));
  for (std::string line; std::getline(lines, line) && line.rfind("  a step", 0) != 0;) {
    names.push_back(line.substr(2));
  }
  return names;
}

TEST(Plan, SaysWhichUnitsMayStayGatheredInSoMuchMemory) {
  // What is gathered outweighs what else a step of eight ranks comes to hold.
  const Texts step = {"--model",      config_of_width(4, 512, 1408, 2048),
                      "--world-size", "8",
                      "--seq-len",    "8",
                      "--optimizer",  "sgd",
                      "--momentum",   "0"};
  const auto within = [&](double gigabytes) {
    return plan(joined(step, {"--memory-gb", std::to_string(gigabytes)})).out;
  };
  const std::string row = "units that may stay gathered after forward in ";
  EXPECT_THAT(within(0.01), HasSubstr(row + "0.010 GB: none\n"));
  const std::string all = within(100);
  ASSERT_THAT(all, HasSubstr(row + "100.000 GB: 4 of 4\n"));
  // The root's gather and the layers' in forward; in backward none of either.
  EXPECT_THAT(all, HasSubstr("5 gathers of units, not 9: "));
  const double most = gigabytes_in(all, "a step then takes");
  const double middle = (gigabytes_in(all, "together  ") + most) / 2;
  ASSERT_LT(middle, most);
  const std::string some = within(middle);
  const Texts kept = names_after(some, row);
  EXPECT_THAT(kept.size(), AllOf(::testing::Gt(0U), ::testing::Lt(4U)));
  EXPECT_EQ(kept.front(), "model.layers.3");
  EXPECT_LE(gigabytes_in(some, "a step then takes"), middle);
  EXPECT_THAT(some, HasSubstr(std::to_string(9 - kept.size()) + " gathers of units, not 9: "));
}

TEST(Plan, MistakesAreOneLine) {
  EXPECT_EQ(
      plan({"--model", tiny_llama(), "--world-size", "2", "--reshard-after-forward", "3"}).err,
      "fsdp2 plan: --reshard-after-forward 3 does not divide the shard group's 2 ranks\n");
  for (const Texts& mistake : std::vector<Texts>{
           {},
           {"--model", tiny_llama(), "--world-size", "2000000000"},
           {"--model", tiny_llama(), "--prefetch", "2000"},
           {"--model", tiny_llama(), "--world-size", "0"},
           {"--model", tiny_llama(), "--world-size", "4", "--rank", "4"},
           {"--model", tiny_llama(), "--world-size", "4", "--fsdp-size", "3"},
           {"--model", tiny_llama(), "--strategy", "hybrid_shard"},
           {"--model", tiny_llama(), "--reshard-after-forward", "1"},
           {"--model", tiny_llama(), "--reshard-after-forward", "two"},
           {"--model", tiny_llama(), "--strategy", "shard_grad_op", "--reshard-after-forward", "2"},
           {"--model", tiny_llama(), "--world-sise", "4"}}) {
    const Outcome outcome = plan(mistake);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, ::testing::StartsWith("fsdp2 plan: "));
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace fsdp2::test
