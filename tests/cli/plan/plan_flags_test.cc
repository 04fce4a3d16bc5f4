// The flags of `fsdp2 train` that `fsdp2 plan` takes, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "cli/plan/options.h"
#include "core/config/key_table.h"
#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Texts = std::vector<std::string>;

Outcome plan(const Texts& arguments) { return run(joined({fsdp2_program(), "plan"}, arguments)); }

std::string tiny_llama() { return repository_file("tests/parity/golden/models/tiny-llama"); }

// A key that comes to fsdp2 train is decided on in cli/plan/key_use.cc.
TEST(PlanFlags, HasEachKeyOfARunDecided) {
  config::TrainOptions options;
  for (const config::Key& key : config::train_keys(&options)) {
    EXPECT_NE(cli::use_of_key(key.name), cli::KeyUse::kNotDecidedYet) << key.name;
  }
}

int64_t peak_of(const std::string& config, const Texts& more) {
  const Texts step = {"--model", config, "--world-size", "2", "--seq-len", "64", "--json"};
  const Outcome outcome = plan(joined(step, more));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return Json::parse(outcome.out).at("peak_bytes").get<int64_t>();
}

int64_t planned_peak(const Texts& more, const Texts& batch = {"--micro-batch", "8"}) {
  return peak_of(config_of_width(4, 256, 2048, 4096), joined(batch, more));
}

TEST(PlanFlags, TakesTheFlagsThatChangeAStep) {
  const int64_t usual = planned_peak({});
  EXPECT_LT(planned_peak({"--mlp-tiles", "8"}), usual);
  EXPECT_LT(planned_peak({"--freeze", "model.layers.0"}), usual);
  EXPECT_LT(planned_peak({"--activation-checkpointing", "--recompute", "LlamaMLP"}), usual);
  EXPECT_NE(planned_peak({"--ignored-modules", "model.embed_tokens"}), usual);
  EXPECT_GT(planned_peak({"--reshard-budget-gb", "10"}), usual);
  EXPECT_EQ(planned_peak({"--cpu-offload"}), usual);  // on a CPU
  EXPECT_GT(planned_peak({"--keep-buffers"}), usual);
  EXPECT_EQ(planned_peak({"--one-communicator"}), usual);
  const Texts one = {"--micro-batch", "1"};  // whose peak has gradients in it
  EXPECT_LT(planned_peak({"--update-in-backward"}, one), planned_peak({}, one));
  EXPECT_EQ(planned_peak({}, {"--global-batch", "16"}), usual);
  const Texts accumulated = {"--grad-accum", "3"};
  EXPECT_GT(planned_peak(joined(accumulated, {"--accum-sync", "last"})), planned_peak(accumulated));
  // Their gradients are whole at the peak in any case, as those of the root are.
  const auto of_tables = planned_peak(joined(accumulated, {"--accum-sync", "vocabulary"}));
  EXPECT_NE(of_tables, planned_peak(accumulated));
  EXPECT_LT(of_tables, planned_peak(joined(accumulated, {"--accum-sync", "last"})));
  const Texts overridden = {"--config-overrides", R"({"num_hidden_layers": 1})"};
  EXPECT_LT(planned_peak(overridden), usual);
}

TEST(PlanFlags, LossInChunksTakesLessOfALargeVocabulary) {
  const std::string config = config_of_width(1, 64, 128, 32768);
  EXPECT_LT(peak_of(config, {"--micro-batch", "8", "--chunked-loss", "16"}),
            peak_of(config, {"--micro-batch", "8"}));
}

TEST(PlanFlags, HelpHasThem) {
  EXPECT_THAT(plan({"--help"}).out,
              AllOf(HasSubstr("--chunked-loss"), HasSubstr("--mlp-tiles"), Not(HasSubstr("--lr"))));
}

TEST(PlanFlags, RefusesTwoSizesOfABatchThatDifferAsTrainingDoes) {
  const std::string file = ::testing::TempDir() + "/batch.yaml";
  std::ofstream(file) << "model: " << tiny_llama() << "\nseq_len: 16\nmicro_batch: 2\n"
                      << "global_batch: 16\n";
  EXPECT_THAT(plan({file}).err,
              HasSubstr("--micro-batch (" + file + ":3 micro_batch) and --global-batch (" + file +
                        ":4 global_batch) exclude each other"));
  EXPECT_EQ(plan({file, "--world-size", "8"}).exit_code, 0);  // which make the one of the other
  EXPECT_THAT(plan({file, "--world-size", "8", "--micro-batch", "1"}).err,
              HasSubstr("--micro-batch (override: --micro-batch) and --global-batch ("));
}

TEST(PlanFlags, AreNotShownToAFileThatExcludesThem) {
  const auto shown_for = [](const std::string& more) {
    const std::string file = ::testing::TempDir() + "/shown.yaml";
    std::ofstream(file) << "model_config: gpt-90m\nworld_size: 2\nglobal_batch: 8\nseq_len: 512\n"
                        << "text: any.txt\n"
                        << more;
    const Outcome outcome = plan({file, "--memory-gb", "2"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  const std::string update = "--update-in-backward";
  const std::string sequences = "--ulysses-size";
  EXPECT_THAT(shown_for(""), AllOf(HasSubstr(update), HasSubstr(sequences)));
  EXPECT_THAT(shown_for("cuda_graph: true\n"),
              AllOf(Not(HasSubstr(update)), Not(HasSubstr(sequences))));
  EXPECT_THAT(shown_for("clip: 1\n"), AllOf(Not(HasSubstr(update)), HasSubstr(sequences)));
  EXPECT_THAT(shown_for("not_finite: skip\n"), Not(HasSubstr(update)));
}

TEST(PlanFlags, RefusesFlagsAsTrainingDoes) {
  const Texts step = {"--model", tiny_llama(), "--seq-len", "16"};
  EXPECT_THAT(plan(joined(step, {"--recompute-every", "2"})).err,
              HasSubstr("--recompute-every needs --activation-checkpointing"));
  EXPECT_THAT(plan({"--model", tiny_llama(), "--reshard-budget-gb", "1"}).err,
              HasSubstr("--reshard-budget-gb needs --seq-len"));
  EXPECT_THAT(plan(joined(step, {"--lr", "1"})).err, HasSubstr("--lr"));
}

}  // namespace
}  // namespace fsdp2::test
