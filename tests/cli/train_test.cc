// What `fsdp2 train` prints and writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

std::vector<std::string> keys_of(const std::string& line) {
  std::vector<std::string> keys;
  const auto json = nlohmann::ordered_json::parse(line);
  for (const auto& item : json.items()) {
    keys.push_back(item.key());
  }
  return keys;
}

const std::vector<std::string> kShort = joined(golden_inputs("tiny-llama"), {"--steps", "2"});

TEST(TrainOutput, IsOneJsonLineAStepAndASummary) {
  const Training training = train(2, joined(kShort, {"--exact-grad-norm"}));
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  const auto lines = lines_of(training.outcome.out);
  ASSERT_EQ(lines.size(), 3U) << training.outcome.out;
  EXPECT_THAT(keys_of(lines[0]),
              ElementsAre("event", "step", "loss", "grad_norm", "grad_norm_fp64", "lr",
                          "step_time_s", "tokens_per_s", "data_wait_s", "rss_bytes"));
  EXPECT_THAT(keys_of(lines[2]),
              ElementsAre("event", "world_size", "fsdp_size", "device", "parameters",
                          "local_parameters", "steps", "median_step_time_s", "median_tokens_per_s",
                          "peak_rss_bytes", "rss_before_model_bytes", "start_up_s", "libfsdp2"));
  const Json& summary = training.summary;
  EXPECT_EQ(summary.at("steps"), 2);
  EXPECT_EQ(summary.at("fsdp_size"), 2);
  const Json& local = summary.at("local_parameters");
  EXPECT_EQ(local[0].get<int64_t>() + local[1].get<int64_t>(), summary.at("parameters"));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_GE(summary.at("peak_rss_bytes")[rank], summary.at("rss_before_model_bytes")[rank]);
    EXPECT_GT(summary.at("rss_before_model_bytes")[rank], 1000000);
  }
}

TEST(TrainOutput, TellsWhereTheTimeBeforeTheFirstStepWent) {
  const auto begin = std::chrono::steady_clock::now();
  const Training training = train(1, kShort);
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - begin;
  const Json& phases = training.summary.at("start_up_s");
  EXPECT_THAT(keys_of(phases.dump()),
              UnorderedElementsAre("program", "meeting", "model", "data", "shards", "values",
                                   "optimizer", "checkpoint"));
  double sum = 0;
  for (const Json& seconds : phases) {
    EXPECT_GE(seconds, 0);
    sum += seconds.get<double>();
  }
  EXPECT_GT(phases.at("program"), 0);  // LibTorch is linked in it
  EXPECT_LT(sum, whole.count());
}

// The training data itself: before the first step its loss is that of the first batches.
TEST(TrainEvaluation, IsTheLossOfOtherDataAndChangesNothing) {
  const auto inputs = golden_inputs("tiny-llama");
  const std::string tokens = inputs.back();
  const std::vector<std::string> four = joined(inputs, {"--steps", "4"});
  const Training plain = train(2, four);
  const auto evaluations_of = [&](const std::vector<std::string>& more) {
    const Training training =
        train(2, joined(four, joined({"--eval-data", tokens, "--eval-size", "1"}, more)));
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    EXPECT_NEAR(training.steps.back().at("loss").get<double>(),
                plain.steps.back().at("loss").get<double>(),
                more.front() == "--eval-every" ? 0 : 1e-5);
    return events_of(training, "evaluation");
  };
  const auto all = evaluations_of({"--eval-every", "3"});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].at("step"), 2);
  EXPECT_EQ(all[1].at("step"), 3);
  EXPECT_EQ(all[0].at("n_labels"), 8 * 32);
  EXPECT_LT(all[1].at("loss"), plain.steps[0].at("loss"));
  const auto last = evaluations_of({"--grad-accum", "2"});
  ASSERT_EQ(last.size(), 1U);
  EXPECT_NEAR(last[0].at("loss").get<double>(), all[1].at("loss").get<double>(), 1e-5);
  // A rate of 0 leaves the model as it was: the first step's loss is that of its own batch.
  const Training still = train(2, joined(joined(inputs, {"--steps", "1", "--lr", "0"}),
                                         {"--eval-data", tokens, "--eval-size", "1"}));
  const auto lines = lines_of(still.outcome.out);
  ASSERT_EQ(lines.size(), 3U) << still.outcome.err;
  EXPECT_NEAR(Json::parse(lines[1]).at("loss").get<double>(),
              still.steps[0].at("loss").get<double>(), 1e-5);
}

TEST(TrainOutput, WithoutALauncherIsAWorldOfOne) {
  const Training training = train(1, kShort);
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  EXPECT_EQ(training.summary.at("world_size"), 1);
  EXPECT_EQ(training.steps.size(), 2U);
}

// But for the gradients that are planned to be held at a time.
TEST(TrainOutput, IsTheSameOfUpdatesInBackward) {
  const auto counted = joined(kShort, {"--memory-step", "1", "--product-engine", "mkl"});
  for (const int ranks : {1, 2}) {
    const Training plain = train(ranks, counted);
    const Training in_backward = train(ranks, joined(counted, {"--update-in-backward"}));
    ASSERT_EQ(plain.outcome.exit_code + in_backward.outcome.exit_code, 0)
        << in_backward.outcome.err;
    EXPECT_LT(event_of(in_backward, "memory").at("plan").at("gradients").get<int64_t>(),
              event_of(plain, "memory").at("plan").at("gradients").get<int64_t>());
    for (size_t step = 0; step < 2; ++step) {
      for (const char* name : {"loss", "grad_norm", "lr"}) {
        EXPECT_EQ(in_backward.steps.at(step).at(name), plain.steps.at(step).at(name)) << name;
      }
    }
  }
}

// One step of this rate ruins the model: the loss of the second is NaN.
const std::vector<std::string> kRuinous =
    joined(golden_inputs("tiny-llama"), {"--steps", "8", "--lr", "1e38"});

TEST(TrainNotFinite, EndsTheRunOnAllRanksAndSaysWhere) {
  const std::string folder = empty_directory();
  const Training training =
      train(2, joined(kRuinous, {"--save-dir", folder, "--save-every", "4", "--keep-last", "1"}));
  EXPECT_EQ(training.outcome.exit_code, 1);
  EXPECT_EQ(training.steps.size(), 1U);
  EXPECT_THAT(training.outcome.err,
              HasSubstr("[rank 0] fsdp2 train: step 1: the loss of rank 0 is "));
  EXPECT_THAT(training.outcome.err, HasSubstr("the gradient of model.embed_tokens.weight is "));
  EXPECT_TRUE(fs::is_empty(folder));
  const Training in_backward = train(2, joined(kRuinous, {"--update-in-backward"}));
  EXPECT_EQ(in_backward.outcome.exit_code, 1);
  EXPECT_EQ(in_backward.steps.size(), 1U);
  EXPECT_THAT(in_backward.outcome.err,
              AllOf(HasSubstr("step 1: the loss of rank 0 is "), HasSubstr("nothing was updated"),
                    Not(HasSubstr("clip, or let such steps be skipped"))));
}

TEST(TrainNotFinite, IsSkippedUpToALimitIfAskedFor) {
  const Training training =
      train(2, joined(kRuinous, {"--not-finite", "skip", "--max-skips-in-row", "3"}));
  EXPECT_EQ(training.outcome.exit_code, 1);
  ASSERT_EQ(training.steps.size(), 4U);
  EXPECT_EQ(training.steps[0].at("applied"), true);
  EXPECT_EQ(training.steps[3].at("applied"), false);
  EXPECT_THAT(training.outcome.err, HasSubstr("after 3 steps in a row that were skipped"));
}

TEST(TrainNotFinite, AppliedIsNeverSavedInPlaceOfWhatWasGood) {
  const std::string folder = empty_directory();
  const std::string model = empty_directory() + "/model";
  const std::vector<std::string> saves = {"--save-dir", folder,     "--save-every",
                                          "1",          "--resume", "auto"};
  train(2, joined(kRuinous, joined(saves, {"--stop-step", "1", "--lr", "1e-3"})));
  const Training training =
      train(2, joined(kRuinous, joined(saves, {"--not-finite", "apply", "--keep-last", "1",
                                               "--save-pretrained", model})));
  EXPECT_EQ(training.outcome.exit_code, 1);
  EXPECT_EQ(training.steps.size(), 7U);
  const std::string cause =
      "model.model.embed_tokens.weight has been infinite or NaN since step 1, whose learning rate "
      "is "
      "1e+38";
  EXPECT_THAT(training.outcome.err, HasSubstr("no checkpoint of step 2: " + cause));
  EXPECT_THAT(training.outcome.err, HasSubstr("[rank 0] fsdp2 train: " + cause));
  EXPECT_TRUE(fs::exists(folder + "/step-00000001"));
  EXPECT_FALSE(fs::exists(folder + "/step-00000002"));
  EXPECT_FALSE(fs::exists(model));
}

TEST(TrainOutput, GoesToTheMetricsFile) {
  const std::string directory = empty_directory();
  const Training training = train(2, joined(kShort, {"--metrics", directory + "/m.jsonl"}));
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  EXPECT_EQ(training.outcome.out, "");
  EXPECT_EQ(lines_of(read_file(directory + "/m.jsonl")).size(), 3U);
}

TEST(TrainOutput, IsATableToo) {
  const std::string file = empty_directory() + "/m.csv";
  const std::string tokens = golden_inputs("tiny-llama").back();
  const Training training =
      train(2, joined(kShort, {"--metrics-csv", file, "--eval-data", tokens, "--eval-size", "1"}));
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  const auto rows = lines_of(read_file(file));
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(
      rows[0],
      "step,loss,loss_over_micro_batches,loss_over_labels,grad_norm,grad_norm_fp64,loss_scale,"
      "applied,lr,step_time_s,tokens_per_s,data_wait_s,mfu,rss_bytes,eval_loss");
  const Json& second = training.steps.at(1);
  const auto text = [&](const char* key) { return second.at(key).dump(); };
  EXPECT_EQ(rows[2], "1," + text("loss") + ",,," + text("grad_norm") + ",,,," + text("lr") + "," +
                         text("step_time_s") + "," + text("tokens_per_s") + "," +
                         text("data_wait_s") + ",," + text("rss_bytes") + ",");
  const Json evaluation = Json::parse(lines_of(training.outcome.out).at(2));
  EXPECT_EQ(rows[3], "1" + std::string(14, ',') + evaluation.at("loss").dump());
}

TEST(TrainOutput, StopsBeforeTheStopStep) {
  const auto inputs = joined(golden_inputs("tiny-llama"), {"--product-engine", "mkl"});
  const Training whole = train(1, joined(inputs, {"--lr-schedule", "linear", "--steps", "4"}));
  const Training part =
      train(1, joined(inputs, {"--lr-schedule", "linear", "--steps", "4", "--stop-step", "2"}));
  ASSERT_EQ(part.steps.size(), 2U);
  ASSERT_EQ(whole.steps.size(), 4U);
  EXPECT_EQ(part.steps[1].at("lr"), whole.steps[1].at("lr"));
  EXPECT_EQ(part.steps[1].at("loss"), whole.steps[1].at("loss"));
}

TEST(TrainLog, IsShownFromTheLevelsOfTheFlagOrTheVariable) {
  const auto shown = [](const std::vector<std::string>& flags, const RunIn& how) {
    return train(2, joined(kShort, flags), how).outcome.err;
  };
  EXPECT_THAT(shown({}, {}), Not(HasSubstr(" info [fsdp] ")));
  const RunIn variable = with_variable("FSDP2_LOG", "fsdp=info");
  EXPECT_THAT(shown({}, variable), HasSubstr("fsdp2 rank 0 info [fsdp] sharded "));
  EXPECT_THAT(shown({"--log", "fsdp=warning"}, variable), Not(HasSubstr(" info [fsdp] ")));
  EXPECT_THAT(shown({}, with_variable("FSDP2_LOG", "loud")),
              HasSubstr("fsdp2 train: FSDP2_LOG loud: 'loud' is no level"));
}

TEST(TrainProgress, IsLinesOfRank0WhereNobodyWatches) {
  const Training training = train(2, kShort);
  EXPECT_THAT(training.outcome.err, HasSubstr("[rank 0] step 1/2  loss 6.2"));
  EXPECT_THAT(training.outcome.err, HasSubstr("[rank 0] step 2/2  loss "));
  EXPECT_THAT(training.outcome.err, Not(HasSubstr("[rank 1]")));
  EXPECT_THAT(training.outcome.err, Not(HasSubstr("\r")));
}

TEST(TrainProgress, IsNoneIfQuiet) {
  EXPECT_EQ(train(2, joined(kShort, {"--quiet"})).outcome.err, "");
}

TEST(TrainProgress, UpdatesOneLineOfATerminal) {
  const Training training = train(1, joined(kShort, {"--metrics", "/dev/null"}), on_terminal());
  EXPECT_EQ(training.outcome.exit_code, 0);
  EXPECT_THAT(training.outcome.out, HasSubstr("\r[==="));
  EXPECT_THAT(training.outcome.out, HasSubstr("step 1/2"));
  const std::string last = lines_of(training.outcome.out).back();
  EXPECT_THAT(last, HasSubstr("step 2/2")) << training.outcome.out;
  EXPECT_THAT(last, HasSubstr("done in"));
}

TEST(TrainProgress, IsLinesOfATerminalThatUnderstandsOnlyText) {
  RunIn dumb = on_terminal();
  dumb.environment = {{"TERM", "dumb"}};
  for (const int ranks : {1, 2}) {
    const Training training = train(ranks, joined(kShort, {"--metrics", "/dev/null"}), dumb);
    EXPECT_THAT(training.outcome.out, HasSubstr("step 2/2  loss "));
    EXPECT_THAT(training.outcome.out, Not(HasSubstr("\033")));
    EXPECT_THAT(training.outcome.out, Not(ContainsRegex("\r[^\n]")));
  }
}

TEST(TrainProgress, UpdatesOneLineOfTheLaunchersTerminal) {
  const Training training = train(2, joined(kShort, {"--metrics", "/dev/null"}), on_terminal());
  EXPECT_EQ(training.outcome.exit_code, 0);
  EXPECT_THAT(training.outcome.out, HasSubstr("\r[rank 0] [==="));
  EXPECT_THAT(lines_of(training.outcome.out).back(), HasSubstr("done in"));
}

// The longest of the texts that came between carriage returns, line ends and clearings of a line.
size_t widest_line(std::string out) {
  const std::string clear = "\033[K";
  for (size_t at = out.find(clear); at != std::string::npos; at = out.find(clear, at)) {
    out.replace(at, clear.size(), "\n");
  }
  size_t widest = 0, begin = 0;
  for (size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = out.find_first_of("\r\n", begin);
    widest = std::max(widest, std::min(end, out.size()) - begin);
  }
  return widest;
}

TEST(TrainProgress, ShowsTheFiguresThatTellMostWhereATerminalIsNarrow) {
  const std::vector<std::string> run = joined(kShort, {"--metrics", "/dev/null"});
  const auto last_line = [&](int columns) {
    const Training training = train(1, run, on_terminal(columns));
    const std::string& out = training.outcome.out;
    const std::string updates = out.substr(std::min(out.find("\rstep"), out.find("\r[")));
    EXPECT_LT(widest_line(updates), static_cast<size_t>(columns)) << out;
    return lines_of(out).back();
  };
  const std::string number = "[0-9.e+-]+", word = "[0-9.]+ [A-Za-z]*";
  const std::string begin = "step 2/2  loss " + number + "  ", end = "done in .*";
  const std::string speed = word + " ?tokens/s  ", memory = "[0-9.]+ [kMG]B  ";
  EXPECT_THAT(last_line(200), ContainsRegex(begin + "norm " + number + "  lr " + number + "  " +
                                            speed + memory + end));
  EXPECT_THAT(last_line(100), ContainsRegex(begin + "norm " + number + "  lr " + number + "  " +
                                            speed + memory + end));
  EXPECT_THAT(last_line(70), ContainsRegex(begin + speed + memory + end));
  EXPECT_THAT(last_line(52), ContainsRegex(begin + speed + end));
  EXPECT_THAT(last_line(40), ContainsRegex(begin + end));
}

TEST(TrainProgress, BeginsWithUnitsMemoryAndWhatIsFrozen) {
  const auto told = [](const std::vector<std::string>& more) {
    return train(2, joined(kShort, more)).outcome.err;
  };
  const std::string plain = told({});
  EXPECT_THAT(plain, ContainsRegex("\\[rank 0\\] [0-9]+ units: \\(root\\) of [0-9.]+ k, "
                                   "model.layers.0 to model.layers.[0-9]+ of [0-9.]+ k"));
  EXPECT_THAT(plain, ContainsRegex("planned memory of a rank, without activations: [0-9.]+ [kM]B "
                                   "\\(shards [0-9.]+ [kM]B, their gradients [0-9.]+ [kM]B, "
                                   "optimizer [0-9.]+ [kM]B, gathered [0-9.]+ [kM]B\\)"));
  EXPECT_THAT(plain, Not(HasSubstr("frozen")));
  EXPECT_THAT(told({"--freeze", "model.layers.0"}),
              ContainsRegex("frozen: 9 of [0-9]+ parameters, [0-9.]+ k elements: "
                            "model.layers.0.[a-z_.]+, model.layers.0.[a-z_.]+, "
                            "model.layers.0.[a-z_.]+ and 6 others"));
}

TEST(TrainProgress, LeavesJsonLinesOfATerminalWhole) {
  const Training training = train(1, kShort, on_terminal());
  EXPECT_EQ(training.outcome.exit_code, 0);
  int lines = 0;
  for (const std::string& line : lines_of(training.outcome.out)) {
    const size_t begin = line.find('{');
    if (begin != std::string::npos) {
      EXPECT_TRUE(begin == 0 || line.substr(0, begin).rfind("\x1b[K") == begin - 3) << line;
      EXPECT_TRUE(Json::accept(line.substr(begin))) << line;
      ++lines;
    }
  }
  EXPECT_EQ(lines, 3) << training.outcome.out;
}

// A model small enough to learn a text of few letters within moments.
class TrainText : public ::testing::Test {
 protected:
  TrainText() : directory_(empty_directory()) {
    std::string text;
    for (int i = 0; i < 500; ++i) {
      text += "abcdefgh";
    }
    write_file(directory_ + "/text.txt", text);
    write_file(directory_ + "/config.json", R"({"model_type": "llama", "vocab_size": 256,
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": false, "initializer_range": 0.02})");
  }

  std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    return joined({"--model-config", directory_ + "/config.json", "--text",
                   directory_ + "/text.txt", "--steps", "60", "--lr", "1e-2"},
                  more);
  }

  std::string directory_;
};

TEST_F(TrainText, IsLearnedAndSampled) {
  const Training training =
      train(2, arguments({"--sample", "16", "--prompt", "abcd", "--temperature", "0", "--metrics",
                          directory_ + "/m.jsonl", "--quiet"}));
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  EXPECT_EQ(training.outcome.out, "abcdefghabcdefghabcd\n");
  EXPECT_THAT(read_file(directory_ + "/m.jsonl"),
              HasSubstr(R"({"event":"sample","prompt":"abcd","text":"efghabcdefghabcd"})"));
}

TEST_F(TrainText, SampleIsAJsonLineWhereStandardOutputHasThem) {
  const Training training = train(1, arguments({"--steps", "1", "--sample", "4", "--quiet"}));
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  for (const std::string& line : lines_of(training.outcome.out)) {
    EXPECT_TRUE(Json::accept(line)) << line;
  }
  EXPECT_THAT(training.outcome.out, HasSubstr(R"({"event":"sample","prompt":"The ")"));
}

TEST_F(TrainText, PromptThatTheModelCannotReadIsToldBeforeTraining) {
  const std::string tokens = directory_ + "/tokens.bin";
  write_file(tokens, std::string(1000, '\0'));
  for (const char* prompt : {"hello", "256"}) {
    const Training training = train(2, {"--model-config", directory_ + "/config.json", "--tokens",
                                        tokens, "--sample", "4", "--prompt", prompt});
    EXPECT_EQ(training.outcome.exit_code, 1);
    EXPECT_THAT(training.outcome.err, HasSubstr("--prompt"));
    EXPECT_TRUE(training.steps.empty()) << prompt;
  }
}

TEST_F(TrainText, ConfigThatCannotBeReadIsNamed) {
  const std::string no_json = directory_ + "/text.txt";
  for (const std::string& config : {directory_, directory_ + "/nothing", no_json}) {
    const Training training = train(1, {"--model-config", config, "--text", no_json});
    EXPECT_EQ(training.outcome.exit_code, 1);
    EXPECT_THAT(training.outcome.err, HasSubstr("--model-config " + config + ": "));
  }
}

TEST_F(TrainText, SeedAndOrderAreTheSameAtAnyWorldSize) {
  const auto shuffled = arguments({"--steps", "3", "--shuffle", "--seed", "7"});
  const Training one = train(1, shuffled);
  const Training two = train(2, shuffled);
  const Training other = train(1, joined(shuffled, {"--seed", "8"}));
  ASSERT_EQ(two.outcome.exit_code, 0) << two.outcome.err;
  expect_same_steps(two.steps, as_lists(one.steps), {5e-6, 2e-5});
  EXPECT_NE(other.steps.at(0).at("loss"), one.steps.at(0).at("loss"));
}

TEST_F(TrainText, SavedModelGoesOnWhereItWas) {
  const std::string saved = directory_ + "/out/model";
  const Training training =
      train(2, arguments({"--steps", "2", "--save-pretrained", saved, "--full-state-dict",
                          directory_ + "/full.safetensors"}));
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  EXPECT_THAT(training.outcome.err, HasSubstr("wrote " + saved));
  EXPECT_TRUE(fs::exists(saved + "/config.json"));
  EXPECT_TRUE(fs::exists(directory_ + "/full.safetensors"));
  // A rate of 0 changes nothing: the saved model has the loss that the third step would have had.
  const std::vector<std::string> text = {"--text", directory_ + "/text.txt", "--lr", "0"};
  const Training third = train(1, arguments({"--steps", "3"}));
  const Training again = train(1, joined({"--model", saved, "--steps", "3"}, text));
  ASSERT_EQ(again.outcome.exit_code, 0) << again.outcome.err;
  EXPECT_NEAR(again.steps.at(2).at("loss"), third.steps.at(2).at("loss"), 1e-4);
}

TEST(TrainCommandLine, VersionAndHelp) {
  const Outcome version = run({fsdp2_program(), "--version"});
  EXPECT_EQ(version.exit_code, 0) << version.err;
  EXPECT_THAT(version.out, StartsWith("fsdp2 "));
  EXPECT_THAT(version.out, HasSubstr(LIBTORCH_VERSION));
  const Outcome help = run({fsdp2_program(), "train", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--fsdp-size"));
}

}  // namespace
}  // namespace fsdp2::test
