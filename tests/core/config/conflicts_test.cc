// Keys that exclude or need each other: each pair gives one line with both places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/config/checks/option_checks.h"
#include "core/config/checks/places.h"
#include "core/config/config_error.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/document.h"
#include "core/config/resolve.h"

namespace fsdp2::config {
namespace {

using ::testing::HasSubstr;

struct Conflict {
  std::string keys;     // lines of a plain file
  std::string message;  // begins with this
  // Those lines that the message has a place for; the other side is a key that is not given.
  std::vector<int> lines;
};

const std::vector<Conflict> kConflicts = {
    // Two that are given.
    {"model: a\nmodel_config: b", "--model and --model-config exclude each other", {1, 2}},
    {"tokens: a\ntext: b", "--tokens and --text exclude each other", {1, 2}},
    {"tokens: a\nrecords: b", "--tokens and --records exclude each other", {1, 2}},
    {"text: a\nrecords: b", "--text and --records exclude each other", {1, 2}},
    {"warmup: 3\nwarmup_ratio: 0.1", "--warmup and --warmup-ratio exclude each other", {1, 2}},
    {"micro_batch: 2\nglobal_batch: 3", "--micro-batch (", {1, 2}},
    {"drop_last: true\nshuffle: true\ntokens: a,b\ndata_weights: '1,2'",
     "--drop-last: a mixture has no last step",
     {1}},
    {"strategy: no_shard\nulysses_size: 2",
     "--strategy no_shard and --ulysses-size 2 contradict each other",
     {1, 2}},
    {"strategy: no_shard\nfsdp_size: 2",
     "--strategy no_shard and --fsdp-size 2 contradict each other",
     {1, 2}},
    {"strategy: shard_grad_op\nreshard_after_forward: true",
     "--strategy shard_grad_op and --reshard-after-forward true contradict each other",
     {1, 2}},
    {"strategy: hybrid_shard_zero2\nreshard_after_forward: 2\nfsdp_size: 2",
     "--strategy hybrid_shard_zero2 and --reshard-after-forward 2 contradict each other",
     {1, 2}},
    {"cuda_graph: true\npregather: true",
     "--cuda-graph and --pregather exclude each other",
     {1, 2}},
    {"cuda_graph: true\ncpu_offload: true",
     "--cuda-graph and --cpu-offload exclude each other",
     {1, 2}},
    {"reshard_budget_gb: 1\npregather: true",
     "--reshard-budget-gb and --pregather exclude each other",
     {1, 2}},
    {"reshard_budget_gb: 1\nreshard_after_forward: false",
     "--reshard-budget-gb and --reshard-after-forward false exclude each other",
     {1, 2}},
    {"reshard_budget_gb: 1\nstrategy: no_shard",
     "--reshard-budget-gb needs --strategy full_shard or hybrid_shard, found no_shard",
     {1, 2}},
    {"optimizer_states: bf16\noptimizer: sgd",
     "--optimizer-states bf16 needs --optimizer adamw or adam, found sgd",
     {1, 2}},
    {"optimizer_states: bf16\ndtype: bf16",
     "--optimizer-states bf16 needs parameters in fp32, found --dtype bf16",
     {1, 2}},
    {"save_only_model: true\nresume: auto\nsave_dir: d",
     "--save-only-model and --resume auto exclude each other",
     {1, 2}},
    {"save_without_optimizer: true\nresume: auto\nsave_dir: d",
     "--save-without-optimizer and --resume auto need --resume-without-optimizer",
     {1, 2}},
    {"save_dir: d\nmetrics: d/m",
     "--metrics d/m lies in --save-dir d, which the checkpoint",
     {1, 2}},
    {"save_best: d\nmetrics: d/m\neval_data: e",
     "--metrics d/m lies in --save-best d, which holds",
     {1, 2}},
    {"metrics: m\nmetrics_csv: m", "--metrics and --metrics-csv m are the same place", {1, 2}},
    {"trace: t\ntrace_steps: '9:9'\nsteps: 3",
     "--trace-steps 9:9: the run ends before step 9",
     {2}},
    {"memory_step: 3\nsteps: 3", "--memory-step 3 is above 2", {1}},
    // One that is given without what it needs.
    {"drop_last: true", "--drop-last needs --shuffle", {1}},
    {"data_weights: '1,2'",
     "--data-weights: expected one number for each file of t, 1 in all",
     {1}},
    {"tokenizer: model", "--tokenizer model: there is no ", {1}},
    {"recompute: A", "--recompute needs --activation-checkpointing", {1}},
    {"recompute_names: a", "--recompute-names needs --activation-checkpointing", {1}},
    {"recompute_every: 2", "--recompute-every needs --activation-checkpointing", {1}},
    {"save_every: 2", "--save-every needs --save-dir", {1}},
    {"save_dir: d\nkeep_last: 2", "--keep-last needs --save-every", {2}},
    {"save_dir: d\nsave_weights: full", "--save-weights needs --save-every", {2}},
    {"eval_every: 2", "--eval-every needs --eval-data", {1}},
    {"save_best: d", "--save-best needs --eval-data", {1}},
    {"prompt: p", "--prompt needs --sample", {1}},
    {"no_initialization: true\nmodel: ~\nmodel_config: c",
     "--no-initialization needs --model or --resume",
     {1}},
    {"resume_partial: true", "--resume-partial needs --resume", {1}},
    {"resume_without_optimizer: true", "--resume-without-optimizer needs --resume", {1}},
    {"resume_without_rng: true", "--resume-without-rng needs --resume", {1}},
    {"save_only_model: true", "--save-only-model needs --save-dir", {1}},
    {"save_without_optimizer: true", "--save-without-optimizer needs --save-dir", {1}},
    {"save_without_rng: true", "--save-without-rng needs --save-dir", {1}},
    {"resume: auto", "--resume auto needs --save-dir", {1}},
    {"strategy: hybrid_shard", "--strategy hybrid_shard needs --fsdp-size", {1}},
    {"strategy: hybrid_shard_zero2", "--strategy hybrid_shard_zero2 needs --fsdp-size", {1}},
    // With a model that is a program.
    {"model: m.pt2\nvocab_size: 0", "--model m.pt2 needs --vocab-size", {1}},
    {"model: m.pt\ntokens: ~\nrecords: r", "--records: --model m.pt takes no positions", {1, 3}},
    {"model: m.pt\nvocab_size: 9\nsample: 1",
     "--sample: --model m.pt gives its loss alone",
     {1, 3}},
    {"model: m.pt\nvocab_size: 9\nreshard_budget_gb: 1",
     "--reshard-budget-gb: --model m.pt is a",
     {1, 3}},
    {"model: m.pt\nvocab_size: 9\nchunked_loss: 1",
     "--chunked-loss: --model m.pt computes",
     {1, 3}},
    {"model: m.pt\nvocab_size: 9\neval_data: e", "--eval-data: --model m.pt does not tell", {1, 3}},
    {"model: m.pt\nvocab_size: 9\nsave_pretrained: d",
     "--save-pretrained: --model m.pt has no",
     {1, 3}},
    // With the number of ranks, which is four.
    {"world_size: 3", "the configuration is for 3 ranks (", {1}},
    {"fsdp_size: 3", "--fsdp-size 3 does not divide the 4 ranks", {1}},
    {"ulysses_size: 3", "--ulysses-size 3 (", {1}},
    {"fsdp_size: 2\nulysses_size: 4", "--ulysses-size 4 does not divide --fsdp-size 2", {1, 2}},
    {"reshard_after_forward: 3",
     "--reshard-after-forward 3 does not divide the shard group's 4",
     {1}},
    {"global_batch: 6", "--global-batch 6 is not a multiple of ranks x --grad-accum = 4 x 1", {1}},
    {"global_batch: 8\ngrad_accum: 3",
     "--global-batch 8 is not a multiple of ranks x --grad-accum",
     {1, 2}},
    {"ulysses_size: 2\nglobal_batch: 3",
     "--global-batch 3 is not a multiple of ranks / --ulysses",
     {1, 2}},
    {"micro_batch: 2147483648",
     "--micro-batch 2147483648 x --grad-accum 1 x 4 ranks is above",
     {1}},
};

// What fsdp2 train says about such a file for a job of four ranks; a model and data are given where
// the file does not say otherwise.
std::string conflict_in(const std::string& keys) {
  Node root = read_yaml_map(keys + "\n", "run.yaml");
  const auto has = [&](const char* key) { return root.find(key) != nullptr; };
  if (!has("model") && !has("model_config")) {
    set_in(&root, "model=m");
  }
  if (!has("tokens") && !has("text")) {
    set_in(&root, "tokens=t");
  }
  try {
    Plan plan = plan_of(root, "");
    leave_batch_to_ranks(&plan);
    with_places(plan, [&] { check_options(plan.options); });
    settle_for_world(&plan, 4);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Conflicts, EachGivesOneLineWithThePlacesOfItsKeys) {
  for (const Conflict& conflict : kConflicts) {
    const std::string message = conflict_in(conflict.keys);
    EXPECT_EQ(message.rfind(conflict.message, 0), 0U) << conflict.keys << "\ngives " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const int line : conflict.lines) {
      EXPECT_THAT(message, HasSubstr("run.yaml:" + std::to_string(line) + " ")) << conflict.keys;
    }
  }
}

}  // namespace
}  // namespace fsdp2::config
