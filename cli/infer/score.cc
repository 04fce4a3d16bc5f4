#include <array>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/infer/commands.h"
#include "cli/infer/options.h"
#include "cli/infer/sharded_model.h"
#include "cli/library.h"
#include "cli/train/setup.h"
#include "core/config/checks/option_checks.h"

namespace fsdp2::cli {

namespace {

constexpr int64_t kNoLabel = -100;

class Scoring {
 public:
  Scoring(const ScoreOptions& options, const ShardedModel& model)
      : options_(options), model_(model) {
    open_data(options.model.run(), model.mesh().get(), model.vocab_size(), &loader_);
  }

  // Collective. Rank 0 writes a line for each window, if there are to be any, and one for all.
  void run();

 private:
  void score_batch(int64_t first_window);
  void write_windows(int64_t first_window, const std::vector<float>& log_probs,
                     const std::vector<float>& entropies) const;

  const ScoreOptions& options_;
  const ShardedModel& model_;
  Loader loader_;
  double sum_ = 0.0;  // of log-probabilities
  int64_t n_labels_ = 0;
};

void Scoring::run() {
  const int64_t windows = options_.model.run().global_batch;
  for (int64_t i = 0; i < options_.batches; ++i) {
    score_batch(i * windows);
  }
  if (model_.rank() == 0) {
    const double loss = -sum_ / static_cast<double>(n_labels_);
    const nlohmann::ordered_json line = {{"event", "score"},
                                         {"loss", loss},
                                         {"perplexity", std::exp(loss)},
                                         {"n_labels", n_labels_}};
    std::cout << line.dump() << std::endl;
  }
}

void Scoring::score_batch(int64_t first_window) {
  Tensor tokens;
  Tensor labels;
  check(fsdp2_loader_next(loader_.get(), tokens.out(), labels.out()));
  const std::array<fsdp2_tensor, 2> inputs = {tokens.get(), labels.get()};
  fsdp2_infer_options infer = FSDP2_INFER_OPTIONS_INIT;
  infer.temperature = options_.model.run().temperature;
  if (options_.model.run().micro_batch > 0) {
    infer.batch_size = options_.model.run().micro_batch;
  }
  Tensor own_log_probs;
  Tensor own_entropies;
  check(fsdp2_module_score(model_.module().get(), inputs.data(), inputs.size(), &infer,
                           own_log_probs.out(), own_entropies.out()));
  const auto log_probs = model_.gather<float>(own_log_probs);
  const auto all_labels = model_.gather<int64_t>(labels);
  for (size_t i = 0; i < log_probs.size(); ++i) {
    sum_ += log_probs[i];
    n_labels_ += all_labels[i] == kNoLabel ? 0 : 1;
  }
  if (options_.per_token) {
    const auto entropies = model_.gather<float>(own_entropies);
    if (model_.rank() == 0) {
      write_windows(first_window, log_probs, entropies);
    }
  }
}

void Scoring::write_windows(int64_t first_window, const std::vector<float>& log_probs,
                            const std::vector<float>& entropies) const {
  const int64_t length = options_.model.run().seq_len;
  const auto row_of = [&](const std::vector<float>& values, int64_t row) {
    const auto begin = values.begin() + row * length;
    return std::vector<float>(begin, begin + length);
  };
  const int64_t windows = options_.model.run().global_batch;
  for (int64_t row = 0; row < windows; ++row) {
    const nlohmann::ordered_json line = {{"event", "window"},
                                         {"window", first_window + row},
                                         {"log_probs", row_of(log_probs, row)},
                                         {"entropies", row_of(entropies, row)}};
    std::cout << line.dump() << "\n";
  }
}

}  // namespace

void score(const std::vector<std::string>& arguments) {
  ScoreOptions options;
  if (!parse_score_options(arguments, &options)) {
    return;
  }
  const std::string shared = "--batches=" + std::to_string(options.batches) +
                             "\n--per-token=" + (options.per_token ? "true" : "false") + "\n";
  ShardedModel::use(options.model, shared, [&](const ShardedModel& model) {
    ScoreOptions settled = options;
    settle_for_world(&settled.model.plan, model.world_size());
    Scoring(settled, model).run();
  });
}

}  // namespace fsdp2::cli
