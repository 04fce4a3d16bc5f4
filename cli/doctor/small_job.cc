#include "cli/doctor/small_job.h"

#include <utility>

namespace fsdp2::cli {

namespace {

// 7 million parameters, so that what a rank holds of them shows in its memory.
constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "vocab_size": 256, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8,
  "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64,
  "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "initializer_range": 0.02,
  "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false})";

// Sentences that a model of this size begins to learn within a few steps.
std::string text_to_learn() {
  const std::vector<std::string> who = {"The baker", "A sailor", "My sister", "The old teacher"};
  const std::vector<std::string> does = {"carries", "has lost", "looks for", "sells"};
  const std::vector<std::string> what = {"a blue lamp", "two letters", "the small boat",
                                         "an empty basket", "some bread"};
  std::string text;
  for (size_t i = 0; i < 4000; ++i) {
    text += who[i * 7 % who.size()] + " " + does[i * 5 / 3 % does.size()] + " " +
            what[i * 11 / 4 % what.size()] + ".\n";
  }
  return text;
}

}  // namespace

SmallJob::SmallJob(std::string program, double timeout_s)
    : program_(std::move(program)), timeout_s_(timeout_s), directory_("fsdp2-doctor") {
  directory_.write("config.json", kConfig);
  directory_.write("text", text_to_learn());
}

int SmallJob::global_batch(int ranks) {
  constexpr int kLeast = 8;
  return ranks * ((kLeast + ranks - 1) / ranks);
}

JobEnd SmallJob::train(int ranks, const std::vector<std::string>& flags) const {
  TrainingJob job;
  job.program = program_;
  job.ranks = ranks;
  // One engine, since the faster one need not be the same in each process.
  job.arguments = {"--model-config",   path("config.json"),
                   "--text",           path("text"),
                   "--device",         "cpu",
                   "--product-engine", "mkl",
                   "--seed",           "1"};
  job.arguments.insert(job.arguments.end(), flags.begin(), flags.end());
  // glibc raises the size from which blocks are the system's own as they are freed, unless it is
  // set. A peak would depend on what had been freed before.
  job.variables = {{"OMP_NUM_THREADS", "1"}, {"MALLOC_MMAP_THRESHOLD_", "131072"}};
  job.timeout_s = timeout_s_;
  return run_job(job);
}

}  // namespace fsdp2::cli
