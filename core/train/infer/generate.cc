#include "core/train/infer/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/models/language_model.h"
#include "core/train/infer/forward_run.h"

namespace fsdp2::train {

namespace {

constexpr const char* kGeneration = "generation";

// A row on its way.
struct Row {
  std::vector<int64_t> tokens;
  Sampler sampler;
  bool has_ended = false;
};

// Rows as a forward takes them. Nothing sees what comes later, so what fills the shorter rows does
// not matter.
struct Window {
  at::Tensor tokens;  // [B,S]
  at::Tensor last;    // [B], the place of each row's last token
};

// The last tokens of each, as many as the model has positions.
Window window_of(const std::vector<const std::vector<int64_t>*>& rows, int64_t max_positions) {
  const auto length_of = [&](const std::vector<int64_t>& row) {
    return std::min(static_cast<int64_t>(row.size()), max_positions);
  };
  int64_t longest = 1;
  for (const auto* row : rows) {
    longest = std::max(longest, length_of(*row));
  }
  const auto count = static_cast<int64_t>(rows.size());
  const at::TensorOptions on_host = at::device(at::kCPU).dtype(at::kLong);
  Window window{at::zeros({count, longest}, on_host), at::zeros({count}, on_host)};
  for (int64_t i = 0; i < count; ++i) {
    const std::vector<int64_t>& row = *rows[static_cast<size_t>(i)];
    std::copy(row.end() - length_of(row), row.end(),
              window.tokens.mutable_data_ptr<int64_t>() + i * longest);
    window.last.mutable_data_ptr<int64_t>()[i] = length_of(row) - 1;
  }
  return window;
}

// One more token of each row that goes on.
void extend(models::LanguageModel& model, const std::vector<Row*>& rows,
            const std::vector<int64_t>& stop_tokens) {
  std::vector<const std::vector<int64_t>*> tokens;
  for (const Row* row : rows) {
    tokens.push_back(&row->tokens);
  }
  const Window window = window_of(tokens, model.max_positions());
  const at::Tensor logits = model.logits_at({window.tokens}, window.last).to(at::kCPU);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t token = rows[i]->sampler.next(logits.select(0, static_cast<int64_t>(i)));
    rows[i]->tokens.push_back(token);
    rows[i]->has_ended =
        std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end();
  }
}

std::vector<Row> begin_rows(const TokenRows& prompts, const GenerateOptions& options) {
  std::vector<Row> rows;
  for (const std::vector<int64_t>& prompt : prompts) {
    const int64_t number = options.first_row + static_cast<int64_t>(rows.size());
    rows.push_back({prompt, Sampler(options.sampler, number)});
  }
  return rows;
}

std::vector<Row*> going_on(std::vector<Row>& rows) {
  std::vector<Row*> going;
  for (Row& row : rows) {
    if (!row.has_ended) {
      going.push_back(&row);
    }
  }
  return going;
}

}  // namespace

void check_generation(const nn::Module& module, const TokenRows& prompts,
                      const GenerateOptions& options) {
  const models::LanguageModel& model = models::language_model(module, kGeneration);
  FSDP2_CHECK(options.max_new_tokens >= 0, Code::kInvalidArgument,
              "max_new_tokens: expected >= 0, got {}", options.max_new_tokens);
  FSDP2_CHECK(options.first_row >= 0, Code::kInvalidArgument, "first_row: expected >= 0, got {}",
              options.first_row);
  check_sampler(options.sampler, model.vocab_size());
  for (const int64_t token : options.stop_tokens) {
    FSDP2_CHECK(token >= 0 && token < model.vocab_size(), Code::kInvalidArgument,
                "stop_tokens: token {} is outside the vocabulary of {}", token, model.vocab_size());
  }
  std::vector<const std::vector<int64_t>*> rows;
  for (const std::vector<int64_t>& prompt : prompts) {
    FSDP2_CHECK(!prompt.empty(), Code::kInvalidArgument,
                "generation needs a prompt of at least one token");
    rows.push_back(&prompt);
  }
  if (!rows.empty()) {
    module.check_inputs({window_of(rows, model.max_positions()).tokens});
  }
}

TokenRows generate(nn::Module& module, const TokenRows& prompts, const GenerateOptions& options) {
  models::LanguageModel& model = models::language_model(module, kGeneration);
  const at::NoGradGuard no_grad;
  ForwardRun run(module, options.reshard_after_forward);
  std::vector<Row> rows = begin_rows(prompts, options);
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const std::vector<Row*> going = going_on(rows);
    if (run.most(static_cast<int64_t>(going.size())) == 0) {
      break;
    }
    if (going.empty()) {
      const at::Tensor place = at::zeros({1}, at::device(at::kCPU).dtype(at::kLong));
      model.logits_at({one_token(place)}, place);
    } else {
      extend(model, going, options.stop_tokens);
    }
  }
  run.finish();
  TokenRows made;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::vector<int64_t>& tokens = rows[i].tokens;
    made.emplace_back(tokens.begin() + static_cast<int64_t>(prompts[i].size()), tokens.end());
  }
  return made;
}

}  // namespace fsdp2::train
