// `fsdp2 generate` and `fsdp2 score`: the same lines on any number of ranks, the losses of
// training, and refusals in one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Arguments = std::vector<std::string>;

const Arguments kModel = {"--model", repository_file("tests/parity/golden/models/tiny-llama")};
const std::string kTokens = repository_file("tests/parity/golden/tokens/tiny-llama.bin");

// One thread a rank; without fsdp2 run on one rank.
Outcome infer(int ranks, const Arguments& command) {
  const Arguments own = joined({fsdp2_program()}, command);
  return run(ranks == 1 ? own : launched(ranks, own), with_variable("OMP_NUM_THREADS", "1"));
}

std::vector<Json> json_lines(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  std::vector<Json> lines;
  for (const std::string& line : lines_of(outcome.out)) {
    lines.push_back(Json::parse(line));
  }
  return lines;
}

std::vector<Json> generated(int ranks, const Arguments& more) {
  const Arguments prompts = {"generate", "--numbers",        "--json", "--prompt",
                             "1 2 3",    "--prompt",         "5 6",    "--prompt",
                             "7",        "--max-new-tokens", "5"};
  return json_lines(infer(ranks, joined(joined(prompts, kModel), more)));
}

TEST(Generate, GivesTheSameLinesInOrderOnAnyNumberOfRanks) {
  const std::vector<Json> alone = generated(1, {});
  ASSERT_EQ(alone.size(), 3U);
  EXPECT_EQ(alone[1].at("prompt"), "5 6");
  EXPECT_EQ(alone[1].at("row"), 1);
  EXPECT_EQ(alone[1].at("tokens").size(), 5U);
  EXPECT_EQ(generated(1, {"--batch-size", "1"}), alone);
  EXPECT_EQ(generated(2, {}), alone);
  EXPECT_EQ(generated(2, {"--batch-size", "1"}), alone);
  EXPECT_EQ(generated(4, {"--strategy", "hybrid_shard", "--fsdp-size", "2"}), alone);
  EXPECT_NE(generated(1, {"--seed", "1"}), alone);
}

TEST(Generate, GivesThemOnRanksThatShareSequences) {
  const std::vector<Json> alone = generated(1, {});
  EXPECT_EQ(generated(2, {"--ulysses-size", "2"}), alone);
  EXPECT_EQ(generated(4, {"--ulysses-size", "2"}), alone);
  EXPECT_EQ(generated(4, {"--ulysses-size", "2", "--fsdp-size", "2", "--batch-size", "1"}), alone);
}

TEST(Generate, EndsATextAtAStopToken) {
  const Json greedy = generated(1, {"--temperature", "0"}).front().at("tokens");
  const std::string stop = std::to_string(greedy[1].get<int>()) + ",0";
  const Json stopped =
      generated(1, {"--temperature", "0", "--stop-tokens", stop}).front().at("tokens");
  EXPECT_EQ(stopped, Json(std::vector<Json>(greedy.begin(), greedy.begin() + 2)));
}

// A golden model with this generation_config.json beside it.
Arguments model_with_generation_config(const std::string& text) {
  const std::string model = empty_directory() + "/model";
  std::filesystem::copy(kModel.back(), model);
  write_file(model + "/generation_config.json", text);
  return {"--model", model};
}

TEST(Generate, EndsATextAtTheTokensOfGenerationConfig) {
  const Json greedy = generated(1, {"--temperature", "0"}).front().at("tokens");
  const Json until_stop(std::vector<Json>(greedy.begin(), greedy.begin() + 2));
  const auto first = [&](const std::string& stop, const Arguments& more) {
    const Arguments command = {"generate", "--numbers",     "--json",
                               "--prompt", "1 2 3",         "--max-new-tokens",
                               "5",        "--temperature", "0"};
    const Arguments model = model_with_generation_config("{\"eos_token_id\": " + stop + "}");
    return json_lines(infer(1, joined(joined(command, model), more))).front().at("tokens");
  };
  const std::string stop = greedy[1].dump();
  EXPECT_EQ(first(stop, {}), until_stop);
  EXPECT_EQ(first("[99999, " + stop + "]", {}), until_stop);
  EXPECT_EQ(first("null", {}), greedy);
  EXPECT_EQ(first(stop, {"--stop-tokens", greedy[0].dump()}).size(), 1U);
  EXPECT_EQ(first(stop, {"--stop-tokens", "none"}), greedy);
}

TEST(Generate, SaysWhichSettingsOfGenerationConfigItDoesNotApply) {
  const auto told = [&](const std::string& config) {
    const Outcome outcome =
        infer(2, joined({"generate", "--numbers", "--prompt", "1 2", "--max-new-tokens", "1"},
                        model_with_generation_config(config)));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.err;
  };
  const std::string some = told(
      R"({"repetition_penalty": 1.05, "suppress_tokens": [3], "temperature": 0.7, "min_p": 0.1})");
  EXPECT_THAT(some, HasSubstr("generation_config.json: not applied: repetition_penalty, "
                              "suppress_tokens, min_p\n"));
  EXPECT_EQ(some.find("not applied"), some.rfind("not applied"));
  EXPECT_EQ(told(R"({"repetition_penalty": 1.0, "suppress_tokens": null, "num_beams": 1,
                     "bad_words_ids": [], "sequence_bias": {}, "min_p": null,
                     "renormalize_logits": false, "do_sample": true, "top_k": 20})"),
            "");
}

TEST(Generate, EndsATextAtTheTokensOfConfigWithoutAGenerationConfig) {
  const Json greedy = generated(1, {"--temperature", "0"}).front().at("tokens");
  const std::string model = model_with_generation_config("{}")[1];
  const auto tokens_with = [&](const std::function<void(Json&)>& change) {
    Json config = Json::parse(read_file(kModel.back() + "/config.json"));
    change(config);
    write_file(model + "/config.json", config.dump());
    return json_lines(infer(1, {"generate", "--numbers", "--json", "--prompt", "1 2 3",
                                "--max-new-tokens", "5", "--temperature", "0", "--model", model}))
        .front()
        .at("tokens");
  };
  const Json until_stop(std::vector<Json>(greedy.begin(), greedy.begin() + 2));
  const auto stops = [&](Json& config) { config["eos_token_id"] = {99999, greedy[1]}; };
  EXPECT_EQ(tokens_with(stops), greedy);
  std::filesystem::remove(model + "/generation_config.json");
  EXPECT_EQ(tokens_with(stops), until_stop);
  EXPECT_EQ(tokens_with([&](Json& config) {
              config.erase("eos_token_id");
              config["text_config"]["eos_token_id"] = greedy[1];
            }),
            until_stop);
  EXPECT_EQ(tokens_with([&](Json& config) { config.erase("eos_token_id"); }), greedy);
}

TEST(Generate, ReadsPromptsFromAFileAndWritesTextAsItIs) {
  const std::string folder = empty_directory();
  write_file(folder + "/prompts", "1 2 3\n5 6\n");
  const Outcome outcome =
      infer(2, joined({"generate", "--numbers", "--prompts", folder + "/prompts", "--temperature",
                       "0", "--max-new-tokens", "2"},
                      kModel));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].rfind("1 2 3 ", 0), 0U);
  EXPECT_EQ(lines[1].rfind("5 6 ", 0), 0U);
}

TEST(Generate, TakesPromptsOfAnyBytes) {
  const Arguments command = {"generate", "--tokenizer",      "bytes", "--json", "--temperature",
                             "0",        "--max-new-tokens", "2"};
  const auto tokens_after = [&](int ranks, const std::string& prompt) {
    const Arguments prompts = {"--prompt", prompt, "--prompt", "b"};
    return json_lines(infer(ranks, joined(joined(command, kModel), prompts))).front().at("tokens");
  };
  const Json alone = tokens_after(1, "a\xff\nb");
  EXPECT_EQ(alone.size(), 2U);
  EXPECT_EQ(tokens_after(2, "a\xff\nb"), alone);
}

TEST(Infer, FailsWhereItsAnswersCannotBeWritten) {
  const std::string model = " --model " + kModel.back();
  for (const std::string& command :
       {"generate --numbers --prompt '1 2' --max-new-tokens 2" + model,
        "plan --world-size 2" + model, std::string("generate --help")}) {
    const Outcome full = run({"sh", "-c", fsdp2_program() + " " + command + " > /dev/full"});
    EXPECT_EQ(full.exit_code, 1) << command;
    EXPECT_THAT(full.err, HasSubstr("standard output cannot be written: some of it is lost"));
  }
}

TEST(Generate, TakesLinesThatEndAsOnWindows) {
  const std::string folder = empty_directory();
  write_file(folder + "/prompts", "ab\r\ncd\r\n");
  const std::vector<Json> lines = json_lines(infer(
      1, joined({"generate", "--json", "--prompts", folder + "/prompts", "--max-new-tokens", "1"},
                kModel)));
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].at("prompt"), "ab");
  EXPECT_EQ(lines[1].at("prompt"), "cd");
}

Arguments score_arguments(const Arguments& more) {
  return joined(
      joined({"score", "--tokens", kTokens, "--seq-len", "16", "--global-batch", "4"}, kModel),
      more);
}

TEST(Score, IsTheLossThatTrainingBeginsWith) {
  const Training training = train(
      1, joined({"--tokens", kTokens, "--seq-len", "16", "--global-batch", "4", "--steps", "1"},
                kModel));
  ASSERT_EQ(training.steps.size(), 1U) << training.outcome.err;
  for (const int ranks : {1, 2, 4}) {
    const std::vector<Json> lines = json_lines(infer(ranks, score_arguments({})));
    ASSERT_EQ(lines.size(), 1U);
    const double loss = lines[0].at("loss");
    EXPECT_NEAR(loss, training.steps[0].at("loss").get<double>(), 2e-6);
    EXPECT_NEAR(lines[0].at("perplexity").get<double>(), std::exp(loss), 1e-6);
    EXPECT_EQ(lines[0].at("n_labels"), 64);
  }
}

TEST(Score, ListsEachWindowInOrder) {
  const Arguments arguments = score_arguments({"--batches", "2", "--per-token"});
  const std::vector<Json> lines = json_lines(infer(2, arguments));
  ASSERT_EQ(lines.size(), 9U);
  double sum = 0.0;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(lines[static_cast<size_t>(i)].at("window"), i);
    EXPECT_EQ(lines[static_cast<size_t>(i)].at("entropies").size(), 16U);
    for (const double log_prob : lines[static_cast<size_t>(i)].at("log_probs")) {
      EXPECT_LT(log_prob, 0.0);
      sum += log_prob;
    }
  }
  EXPECT_NEAR(lines[8].at("loss").get<double>(), -sum / 128, 1e-6);
}

TEST(Score, IsTheSameOnRanksThatShareSequences) {
  const Arguments arguments = score_arguments({"--batches", "2", "--per-token"});
  const std::vector<Json> expected = json_lines(infer(1, arguments));
  ASSERT_EQ(expected.size(), 9U);
  const std::vector<std::pair<int, Arguments>> runs = {
      {2, {"--ulysses-size", "2"}},
      {4, {"--ulysses-size", "4"}},
      {4, {"--ulysses-size", "2"}},
      {4, {"--ulysses-size", "2", "--strategy", "hybrid_shard", "--fsdp-size", "2"}}};
  for (const auto& [ranks, more] : runs) {
    SCOPED_TRACE(testing::PrintToString(more));
    const std::vector<Json> lines = json_lines(infer(ranks, joined(arguments, more)));
    ASSERT_EQ(lines.size(), expected.size());
    EXPECT_EQ(lines.back().at("n_labels"), expected.back().at("n_labels"));
    for (size_t i = 0; i + 1 < lines.size(); ++i) {
      EXPECT_EQ(lines[i].at("window"), expected[i].at("window"));
      for (size_t place = 0; place < 16; ++place) {
        EXPECT_NEAR(lines[i].at("log_probs")[place].get<double>(),
                    expected[i].at("log_probs")[place].get<double>(), 2e-5);
        EXPECT_NEAR(lines[i].at("entropies")[place].get<double>(),
                    expected[i].at("entropies")[place].get<double>(), 2e-5);
      }
    }
  }
}

TEST(Score, TakesTheWeightsOfACheckpoint) {
  const std::string folder = empty_directory();
  const Training training =
      train(2, joined({"--tokens", kTokens, "--eval-data", kTokens, "--eval-size", "2", "--seq-len",
                       "16", "--global-batch", "4", "--steps", "4", "--lr", "1e-2", "--save-dir",
                       folder + "/run", "--save-every", "2"},
                      kModel));
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  Json evaluation;
  for (const std::string& line : lines_of(training.outcome.out)) {
    const Json json = Json::parse(line);
    evaluation = json.at("event") == "evaluation" ? json : evaluation;
  }
  const std::vector<Json> lines =
      json_lines(infer(1, score_arguments({"--batches", "2", "--checkpoint", folder + "/run"})));
  EXPECT_NEAR(lines.back().at("loss").get<double>(), evaluation.at("loss").get<double>(), 2e-6);
}

// Without the breaks and spaces that fit it to a terminal.
std::string help_of(const std::string& command) {
  std::istringstream words(run({fsdp2_program(), command, "--help"}).out);
  std::string help;
  for (std::string word; words >> word;) {
    help += (help.empty() ? "" : " ") + word;
  }
  return help;
}

TEST(Infer, HelpTellsWhatFlagsMeanHere) {
  const std::string score = help_of("score");
  const std::string generate = help_of("generate");
  for (const std::string& help : {score, generate}) {
    EXPECT_THAT(help, Not(HasSubstr("torch.export")));  // which is refused
  }
  EXPECT_THAT(score, HasSubstr("Number above 0 that logits are divided by"));
  EXPECT_THAT(generate, HasSubstr("0: always the most likely token"));
}

TEST(Infer, RefusesInOneLine) {
  struct Case {
    Arguments command;
    std::string message;
    int exit_code;
  };
  const std::vector<Case> cases = {
      {{"generate", "--prompt", "a"},
       "--model (a directory) or --model-config (a config.json) is needed",
       2},
      {joined({"generate"}, kModel), "no prompt given", 2},
      {{"generate", "--model", "m.pt2", "--prompt", "a"}, "expected the directory of a", 2},
      {joined({"generate", "--prompt", "a", "--top-p", "2"}, kModel), "--top-p must lie", 2},
      {joined({"generate", "--prompt", "a", "--tokens", "f"}, kModel), "unknown flag --tokens", 2},
      {joined({"generate", "--prompt", ""}, kModel), "prompt 1 is empty", 1},
      {joined({"generate", "--numbers", "--prompt", "1 x"}, kModel), "prompt 1 '1 x': expected", 1},
      {joined({"generate", "--numbers", "--prompt", "1 99999999999999999999"}, kModel),
       "separated by spaces, found 99999999999999999999", 1},
      {joined({"generate", "--numbers", "--prompt", "9999"}, kModel), "outside the vocabulary", 1},
      {joined({"generate", "--prompts", "/none"}, kModel),
       "--prompts /none: cannot be read: No such file or directory", 1},
      {joined({"generate", "--records", "/"}, kModel),
       "--records /: cannot be read: Is a directory", 1},
      {joined({"generate", "--records", "/none", "--prompt", "a"}, kModel), "exclude each other",
       2},
      {joined({"generate", "--records", "/none", "--numbers"}, kModel), "--records has texts", 2},
      {joined({"generate", "--prompt", "a"}, model_with_generation_config("{\"eos")),
       "generation_config.json: expected a JSON object", 1},
      {joined({"generate", "--prompt", "a"},
              model_with_generation_config("{\"eos_token_id\": [2, -1]}")),
       "\"eos_token_id\": expected the number of a token, or a list of such, found [2,-1]", 1},
      {joined({"generate", "--prompt", "a"},
              model_with_generation_config("{\"eos_token_id\": " + std::string(200'000, '[') +
                                           std::string(200'000, ']') + "}")),
       "generation_config.json: is nested more than 64 deep", 1},
      {joined({"score"}, kModel), "--tokens or --text", 2},
      {score_arguments({"--temperature", "0"}), "--temperature must be more than 0", 2},
      {score_arguments({"--checkpoint", "/none"}), "/none", 1},
  };
  for (const Case& refused : cases) {
    const Outcome outcome = infer(1, refused.command);
    EXPECT_EQ(outcome.exit_code, refused.exit_code) << outcome.err;
    EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(refused.message));
  }
  for (const Arguments& command :
       {joined({"generate", "--prompt", "a"}, kModel), score_arguments({})}) {
    const Outcome other = infer(2, joined(command, {"--world-size", "4"}));
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_EQ(other
                  .err_lines_with("the configuration is for 4 ranks (override: --world-size), and "
                                  "the job has 2")
                  .size(),
              1U)
        << other.err;
  }
  const Outcome shared = infer(2, score_arguments({"--ulysses-size", "3"}));
  EXPECT_EQ(shared.exit_code, 2);
  EXPECT_EQ(shared.err_lines_with("--ulysses-size 3 does not divide the 2 ranks").size(), 1U)
      << shared.err;
  const Outcome odd = infer(3, score_arguments({}));
  EXPECT_EQ(odd.exit_code, 2);
  EXPECT_EQ(odd.err_lines_with("--global-batch 4 is not a multiple").size(), 1U) << odd.err;
  const Outcome loud =
      run(launched(2, joined({fsdp2_program(), "generate", "--prompt", "a"}, kModel)),
          with_variable("FSDP2_LOG", "loud"));
  EXPECT_EQ(loud.exit_code, 2);
  EXPECT_EQ(loud.err_lines_with("FSDP2_LOG loud: 'loud' is no level").size(), 1U) << loud.err;
}

TEST(Infer, RanksThatDifferAreToldTheFlag) {
  const Outcome outcome =
      run(launched(2, {"sh", "-c",
                       "exec " + fsdp2_program() + " generate --prompt a --seed $RANK --model " +
                           kModel.back()}),
          with_variable("OMP_NUM_THREADS", "1"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome
                .err_lines_with("the ranks differ in --seed: rank 0 has 0 (override: --seed), rank "
                                "1 has 1 (override: --seed)")
                .size(),
            2U)
      << outcome.err;
}

// A file of ROLL in which one role trains and another, with its own mesh and precision, infers.
std::string file_with_roles() {
  const std::string file = empty_directory() + "/roles.yaml";
  write_file(file,
             "sequence_length: 16\n"
             "actor_train:\n"
             "  model_args: {model_name_or_path: /nowhere}\n"
             "  strategy_args: {strategy_name: fsdp2_train, strategy_config: ~}\n"
             "reference:\n"
             "  model_args: {model_name_or_path: " +
                 kModel[1] +
                 "}\n"
                 "  strategy_args:\n"
                 "    strategy_name: fsdp2_infer\n"
                 "    strategy_config: {fsdp_size: 2, param_dtype: fp32}\n"
                 "  infer_batch_size: 2\n"
                 "critic:\n"
                 "  strategy_args: {strategy_name: vllm, strategy_config: ~}\n"
                 "libfsdp2: {tokens: " +
                 kTokens + "}\n");
  return file;
}

TEST(Score, RunsTheRoleOfAFileThatInfers) {
  const std::string file = file_with_roles();
  const std::vector<Json> by_flags = json_lines(infer(2, score_arguments({"--fsdp-size", "2"})));
  EXPECT_EQ(json_lines(infer(2, {"score", file, "--role", "reference"})), by_flags);
  EXPECT_EQ(json_lines(infer(2, {"score", file})), by_flags);  // the only one that infers
  EXPECT_EQ(json_lines(infer(2, {"score", file, "--set", "reference.infer_batch_size=1",
                                 "--batches", "2"}))
                .back()
                .at("n_labels"),
            by_flags.back().at("n_labels"));
}

TEST(Score, SharesSequencesAsARoleSays) {
  const std::string file = file_with_roles();
  const auto loss_of = [&](const Arguments& more) {
    const Arguments command = {"score", file, "--role", "reference", "--global-batch", "4"};
    return json_lines(infer(2, joined(command, more))).back().at("loss").get<double>();
  };
  const Arguments shared = {"--set", "reference.model_args.ulysses_size=2"};
  EXPECT_NEAR(loss_of(shared), loss_of({}), 2e-6);
}

TEST(Score, FlagsGoBeforeTheFile) {
  const std::string file = file_with_roles();
  EXPECT_EQ(json_lines(infer(2, {"score", file, "--global-batch", "8", "--seq-len", "8"})),
            json_lines(infer(2, score_arguments({"--global-batch", "8", "--seq-len", "8"}))));
}

TEST(Score, MistakesInAFileAreOneLine) {
  const std::string file = file_with_roles();
  EXPECT_THAT(infer(1, {"score", file, "--role", "critic"}).err,
              HasSubstr("critic.strategy_args.strategy_name: vllm: not provided by libfsdp2; "
                        "expected fsdp2_train or fsdp2_infer"));
  EXPECT_THAT(infer(1, {"score", file, "--role", "referense"}).err,
              HasSubstr("there is no role referense; the roles are actor_train,reference,critic; "
                        "did you mean reference?"));
  EXPECT_THAT(infer(1, {"score", "--role", "reference"}).err,
              HasSubstr("--role needs a FILE.yaml"));
  EXPECT_THAT(infer(1, {"train", file, "--role", "reference"}).err,
              HasSubstr("fsdp2_infer: not provided by fsdp2 train, which trains; fsdp2 score takes "
                        "it"));
}

}  // namespace
}  // namespace fsdp2::test
