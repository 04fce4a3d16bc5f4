#include "core/train/infer/score.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/models/language_model.h"
#include "core/nn/sequence_peers.h"
#include "core/nn/token_loss.h"
#include "core/nn/value_map.h"
#include "core/train/infer/forward_run.h"
#include "core/train/infer/row_batches.h"

namespace fsdp2::train {

namespace {

constexpr int64_t kIgnoredLabel = -100;
constexpr const char* kScoring = "scoring";

bool has_labels(const std::vector<at::Tensor>& inputs) {
  return inputs.size() > 1 && inputs[1].defined();
}

// Each token's successor; the last has none.
at::Tensor next_tokens(const at::Tensor& tokens) {
  const at::Tensor none =
      at::full({tokens.size(0), tokens.size(1) > 0 ? 1 : 0}, kIgnoredLabel, tokens.options());
  return at::cat({tokens.slice(1, 1), none}, 1);
}

nn::Values labelled(const std::vector<at::Tensor>& inputs) {
  nn::Values values = nn::values_of(inputs);
  if (!has_labels(inputs)) {
    values.resize(std::max<size_t>(values.size(), 2));
    values[1] = next_tokens(inputs[0]);
  }
  return values;
}

// As many as the inputs have rows, in their order. Every rank makes as many forwards as the one
// with the most.
nn::TokenScores score_rows(nn::Module& module, const nn::Values& inputs,
                           const InferOptions& options, const ForwardRun& run) {
  models::LanguageModel& model = models::language_model(module, kScoring);
  nn::HeadScoreOptions head;
  head.chunk_rows = options.chunk_rows;
  head.temperature = options.temperature;
  const RowBatches batches(model, inputs, options.batch_size);
  const int64_t mine = batches.size();
  const int64_t most = run.most(mine);
  std::vector<at::Tensor> log_probs;
  std::vector<at::Tensor> entropies;
  for (int64_t i = 0; i < most; ++i) {
    if (i >= mine) {
      const at::Tensor token = one_token(inputs[0].toTensor());
      model.score({token, token}, head);
      continue;
    }
    const nn::TokenScores scores = model.score(batches.at(i), head);
    log_probs.push_back(scores.log_probs);
    entropies.push_back(scores.entropies);
  }
  if (mine == 0) {
    const at::Tensor& tokens = inputs[0].toTensor();
    const at::Tensor none = at::zeros(tokens.sizes(), tokens.options().dtype(at::kFloat));
    return {none, none.clone()};
  }
  return {at::cat(log_probs), at::cat(entropies)};
}

}  // namespace

void check_score(const nn::Module& module, const std::vector<at::Tensor>& inputs,
                 const InferOptions& options) {
  const models::LanguageModel& model = models::language_model(module, kScoring);
  FSDP2_CHECK(std::isfinite(options.temperature) && options.temperature > 0.0,
              Code::kInvalidArgument, "temperature: expected a finite number > 0, got {}",
              options.temperature);
  FSDP2_CHECK(!inputs.empty() && inputs[0].defined() && inputs[0].dim() == 2 &&
                  inputs[0].scalar_type() == at::kLong,
              Code::kInvalidArgument, "tokens: expected an int64 tensor [batch, sequence]");
  const RowBatches batches(model, nn::values_of(inputs), options.batch_size);
  if (batches.size() > 0) {
    module.check_inputs(labelled(inputs));
    return;
  }
  // No model sees these labels, which evaluate counts.
  FSDP2_CHECK(!has_labels(inputs) || inputs[1].sizes() == inputs[0].sizes(), Code::kInvalidArgument,
              "labels: expected the shape of the tokens [{}], got [{}]",
              fmt::join(inputs[0].sizes(), ", "), fmt::join(inputs[1].sizes(), ", "));
}

nn::TokenScores score(nn::Module& module, const std::vector<at::Tensor>& inputs,
                      const InferOptions& options) {
  FSDP2_CHECK(models::language_model(module, kScoring).is_causal(), Code::kUnsupported,
              "scoring: {} gives probabilities only for tokens that it hides: expected a causal "
              "model, or an evaluation, which gives their loss",
              module.kind());
  const at::NoGradGuard no_grad;
  ForwardRun run(module, options.reshard_after_forward);
  nn::TokenScores scores = score_rows(module, labelled(inputs), options, run);
  run.finish();
  if (!has_labels(inputs)) {
    const int64_t columns = std::max<int64_t>(0, inputs[0].size(1) - 1);
    scores.log_probs = scores.log_probs.narrow(1, 0, columns).contiguous();
    scores.entropies = scores.entropies.narrow(1, 0, columns).contiguous();
  }
  return scores;
}

Evaluation evaluate(nn::Module& module, const std::vector<at::Tensor>& inputs,
                    const InferOptions& options) {
  const at::NoGradGuard no_grad;
  ForwardRun run(module, options.reshard_after_forward);
  const nn::Values values = labelled(inputs);
  const nn::TokenScores scores = score_rows(module, values, options, run);
  run.finish();
  const int64_t counted = nn::token_loss(module, kScoring).counted_labels(values);
  const std::vector<double> totals =
      run.sums({-scores.log_probs.sum(at::kDouble).item<double>(), static_cast<double>(counted)});
  // Ranks that share sequences have been given the same labels.
  const auto n_labels = static_cast<int64_t>(totals[1]) / nn::sequence_ranks(module);
  return {n_labels, totals[0] / totals[1]};
}

}  // namespace fsdp2::train
