#include "cli/bench/training_run.h"

#include "cli/library.h"

namespace fsdp2::cli {

namespace {

using Texts = std::vector<std::string>;

// Tokens that every vocabulary of at least 256 has, 16 bits each: some windows, which a run takes
// again and again.
std::string made_up_tokens(int64_t seq_len) {
  constexpr int64_t kWindows = 64;
  std::string bytes;
  uint32_t state = 1;
  for (int64_t i = 0; i < kWindows * seq_len + 1; ++i) {
    state = state * 1664525U + 1013904223U;
    bytes.push_back(static_cast<char>(state >> 24U));
    bytes.push_back('\0');
  }
  return bytes;
}

Texts joined(Texts words, const Texts& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TrainingRuns::TrainingRuns(const std::string& fsdp2, const std::string& model,
                           const BenchOptions& options)
    : fsdp2_(fsdp2),
      model_(model),
      options_(options),
      scratch_("fsdp2-bench"),
      tokens_(scratch_.write("tokens.bin", made_up_tokens(options.seq_len))),
      model_arguments_({"--model-config", model}) {}

// A step with a learning rate of 0 leaves them as they are drawn, as does one that is skipped: of a
// single token the loss may be that of no label.
void TrainingRuns::write_weights() {
  const std::string directory = scratch_.path("model");
  TrainingJob one_step;
  one_step.program = fsdp2_;
  one_step.arguments = joined({"--quiet", "--device", "cpu", "--tokens", tokens_, "--steps", "1",
                               "--seq-len", "1", "--global-batch", "1", "--optimizer", "sgd",
                               "--lr", "0", "--not-finite", "skip", "--save-pretrained", directory},
                              model_arguments_);
  one_step.timeout_s = options_.timeout_s;
  end_well(one_step);
  model_arguments_ = {"--model", directory};
}

RunFigures TrainingRuns::ours() const {
  return figures_of(end_well(job({"--quiet", "--threads", std::to_string(options_.threads)})),
                    tokens_a_step());
}

RunFigures TrainingRuns::python(const PythonSide& side) const {
  TrainingJob run = job({});
  run.trainer = side.trainer();
  run.variables = {{"OMP_NUM_THREADS", std::to_string(options_.threads)}};
  return figures_of(end_well(run), tokens_a_step());
}

// With the arguments that both sides take, and more.
TrainingJob TrainingRuns::job(const Texts& arguments) const {
  const Texts shared = {"--device",       "cpu",
                        "--tokens",       tokens_,
                        "--steps",        std::to_string(options_.steps),
                        "--seq-len",      std::to_string(options_.seq_len),
                        "--global-batch", std::to_string(global_batch()),
                        "--param-dtype",  options_.param_dtype};
  TrainingJob job;
  job.program = fsdp2_;
  job.ranks = options_.ranks;
  job.arguments = joined(joined(model_arguments_, shared), arguments);
  job.timeout_s = options_.timeout_s;
  return job;
}

JobEnd TrainingRuns::end_well(const TrainingJob& job) const {
  JobEnd end = run_job(job);
  const bool is_python = !job.trainer.empty();
  const std::string who = model_ + (is_python ? ": Python" : "") + ": ";
  if (end.end.timed_out) {
    throw Failure(who + "the run took longer than --timeout-s");
  }
  if (end.is_well()) {
    return end;
  }
  if (end.end.exit_code == 0) {
    throw Failure(who + "the run has printed no summary");
  }
  throw Failure(who + (is_python ? python_cause(end.end) : end.cause()));
}

}  // namespace fsdp2::cli
