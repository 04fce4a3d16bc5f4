// `fsdp2 train --model FILE.pt2`: programs of torch.export, and of TorchScript, are trained, saved
// and gone on from as other models are, and refused what they cannot do before any work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/training.h"
#include "tests/core/exported/program_fixture.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

constexpr int kVocabulary = 23;

// Token numbers of which each follows from the one before it.
std::string token_bytes() {
  std::string bytes;
  for (int i = 0, token = 1; i < 2000; ++i, token = (5 * token + 3) % kVocabulary) {
    bytes += ckpt::number_bytes(static_cast<uint64_t>(token), 2);
  }
  return bytes;
}

class TrainExported : public ::testing::Test {
 protected:
  TrainExported() : folder_(empty_directory()) {
    write_file(folder_ + "/tokens.bin", token_bytes());
  }

  // Eight steps of a Llama whose sequences have 2 to 32 tokens. One engine, because the faster one
  // may be the other in another process, and then the last bits differ.
  Training train_on(int ranks, const Arguments& more, const std::string& program = {}) const {
    const std::string llama = repository_file("tests/parity/exported/llama.pt2");
    return train(ranks,
                 joined({"--model", program.empty() ? llama : program, "--tokens",
                         folder_ + "/tokens.bin", "--vocab-size", "23", "--steps", "8", "--seq-len",
                         "16", "--global-batch", "8", "--lr", "2e-2", "--product-engine", "mkl"},
                        more));
  }
  std::vector<double> losses_of(int ranks, const Arguments& more) const {
    const Training training = train_on(ranks, more);
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    std::vector<double> losses;
    for (const Json& step : training.steps) {
      losses.push_back(step.at("loss"));
    }
    return losses;
  }
  // Expects rank 0 to have said one line, and nothing to have been trained.
  void expect_refused(const Training& training, const std::string& message) const {
    EXPECT_EQ(training.outcome.exit_code, 2) << training.outcome.err;
    const auto lines = training.outcome.err_lines_with("fsdp2 train: ");
    ASSERT_EQ(lines.size(), 1U) << training.outcome.err;
    EXPECT_THAT(lines.front(), HasSubstr(message));
    EXPECT_TRUE(training.steps.empty());
  }

  const std::string folder_;
};

TEST_F(TrainExported, IsLearnedAndGoneOnWithToTheBit) {
  const std::string saved = folder_ + "/saved";
  const std::vector<double> whole = losses_of(2, {"--save-dir", saved, "--save-every", "5"});
  ASSERT_EQ(whole.size(), 8U);
  EXPECT_NEAR(whole.front(), std::log(kVocabulary), 0.2);
  EXPECT_LT(whole.back(), whole.front() - 0.3);
  fs::remove_all(saved + "/step-00000008");
  const std::vector<double> resumed = losses_of(2, {"--resume", saved});
  EXPECT_EQ(resumed, std::vector<double>(whole.begin() + 5, whole.end()));
}

TEST_F(TrainExported, SoIsAScript) {
  const std::string script = repository_file("tests/parity/scripted/words.pt");
  const std::string saved = folder_ + "/saved";
  std::string tokens;
  for (int i = 0; i < 2000; ++i) {
    tokens += ckpt::number_bytes(static_cast<uint64_t>(i * i % 11), 2);
  }
  write_file(folder_ + "/tokens.bin", tokens);
  const Arguments eleven = {"--vocab-size", "11", "--activation-checkpointing"};
  const auto losses = [&](const Arguments& more) {
    const Training training = train_on(2, joined(eleven, more), script);
    EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
    std::vector<double> of_steps;
    for (const Json& step : training.steps) {
      of_steps.push_back(step.at("loss"));
    }
    return of_steps;
  };
  const std::vector<double> whole = losses({"--save-dir", saved, "--save-every", "5"});
  ASSERT_EQ(whole.size(), 8U);
  EXPECT_LT(whole.back(), whole.front() - 0.3);
  fs::remove_all(saved + "/step-00000008");
  EXPECT_EQ(losses({"--resume", saved}), std::vector<double>(whole.begin() + 5, whole.end()));
}

TEST_F(TrainExported, LossesAreTheSameHoweverItIsSharded) {
  const std::vector<double> whole = losses_of(1, {"--wrap", "none"});
  for (const Arguments& how : std::vector<Arguments>{
           {"--activation-checkpointing", "--reshard-after-forward", "true"},
           {"--wrap", "LlamaMLP,LlamaAttention", "--wrap-names", "model.norm"}}) {
    const std::vector<double> sharded = losses_of(2, how);
    ASSERT_EQ(sharded.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(sharded[i], whole[i], 2e-5) << how.front() << ", step " << i;
    }
  }
}

TEST_F(TrainExported, ComputesInThePrecisionOfTheExportAlone) {
  const std::vector<double> losses =
      losses_of(2, {"--dtype", "bf16", "--param-dtype", "fp32", "--reduce-dtype", "fp32"});
  ASSERT_EQ(losses.size(), 8U);
  EXPECT_LT(losses.back(), losses.front() - 0.2);
  expect_refused(train_on(2, {"--param-dtype", "bf16"}),
                 "llama.pt2: the program computes with model.embed_tokens.weight in Float, found "
                 "BFloat16: make parameters or the sharding policy's param_dtype Float");
}

// A program of (tokens, labels), both [2, 16].
std::string program_of_fixed_sizes() {
  exported::ProgramFile file;
  Json& module = file.program["graph_module"];
  Json& graph = module["graph"];
  const Json sizes = Json::parse(R"({"dtype": 5, "sizes": [{"as_int": 2}, {"as_int": 16}]})");
  graph["tensor_values"]["x"] = graph["tensor_values"]["labels"] = sizes;
  graph["inputs"].push_back(Json::parse(R"({"as_tensor": {"name": "labels"}})"));
  module["signature"]["input_specs"].push_back(
      Json::parse(R"({"user_input": {"arg": {"as_tensor": {"name": "labels"}}}})"));
  return file.bytes();
}

TEST_F(TrainExported, BatchesThatItWasNotExportedForAreToldBeforeAnyWork) {
  const std::string program = folder_ + "/fixed.pt2";
  write_file(program, program_of_fixed_sizes());
  fs::remove(folder_ + "/m.jsonl");
  expect_refused(train_on(2, {"--metrics", folder_ + "/m.jsonl"}, program),
                 "--global-batch, --grad-accum and --seq-len give a rank tokens and labels of "
                 "[4, 16] at a time: " +
                     program + ": input x: size of dim 0: expected 2, found 4");
  EXPECT_FALSE(fs::exists(folder_ + "/m.jsonl"));
  expect_refused(train_on(2, {"--grad-accum", "2", "--seq-len", "8"}, program),
                 "[2, 8] at a time: " + program + ": input x: size of dim 1: expected 16, found 8");
  expect_refused(train_on(2, {"--seq-len", "33"}),
                 "input input_ids: size of dim 1: exported for 2 to 32, found 33");
}

TEST_F(TrainExported, ATokenBeyondTheVocabularyIsToldWithItsPlace) {
  const Training training = train_on(1, {"--vocab-size", "20"});
  EXPECT_EQ(training.outcome.exit_code, 1);
  EXPECT_THAT(training.outcome.err, HasSubstr("tokens.bin"));
  EXPECT_TRUE(training.steps.empty());
}

TEST_F(TrainExported, WeightsAreWrittenByTheirNamesInPython) {
  const std::string weights = folder_ + "/weights.safetensors";
  losses_of(2, {"--steps", "1", "--full-state-dict", weights});
  EXPECT_THAT(read_file(weights), HasSubstr("model.layers.0.mlp.up_proj.weight"));
}

}  // namespace
}  // namespace fsdp2::test
