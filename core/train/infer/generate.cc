#include "core/train/infer/generate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "core/base/error.h"
#include "core/models/language_model.h"
#include "core/models/vision_inputs.h"
#include "core/nn/value_map.h"
#include "core/train/infer/forward_run.h"

namespace fsdp2::train {

namespace {

constexpr const char* kGeneration = "generation";

// A row on its way.
struct Row {
  std::vector<int64_t> tokens;
  Sampler sampler;
  nn::Values vision;  // its own images and videos, by place behind the mask
  bool has_ended = false;
};

// Rows as a forward takes them. Nothing sees what comes later, so what fills the shorter rows does
// not matter; it is 0, which no image stands in for.
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

nn::Values model_inputs(const at::Tensor& tokens, const nn::Values& vision) {
  nn::Values inputs = {tokens};
  if (!vision.empty()) {
    inputs.resize(models::kPixels);
    inputs.insert(inputs.end(), vision.begin(), vision.end());
  }
  return inputs;
}

// The images and videos of the rows that go on, one row's after the other's.
nn::Values vision_of(const std::vector<Row*>& rows) {
  nn::Values joined(rows.front()->vision.size());
  for (size_t place = 0; place < joined.size(); ++place) {
    std::vector<at::Tensor> of_rows;
    for (const Row* row : rows) {
      if (row->vision[place].isTensor()) {
        of_rows.push_back(row->vision[place].toTensor());
      }
    }
    if (!of_rows.empty()) {
      joined[place] = at::cat(of_rows);
    }
  }
  return joined;
}

// One more token of each row that goes on.
void extend(models::LanguageModel& model, const std::vector<Row*>& rows,
            const std::vector<int64_t>& stop_tokens) {
  std::vector<const std::vector<int64_t>*> tokens;
  for (const Row* row : rows) {
    tokens.push_back(&row->tokens);
  }
  const Window window = window_of(tokens, model.max_positions());
  const at::Tensor logits =
      model.logits_at(model_inputs(window.tokens, vision_of(rows)), window.last).to(at::kCPU);
  for (const int64_t token : model.vision_tokens()) {
    logits.select(1, token).fill_(-std::numeric_limits<double>::infinity());
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t token = rows[i]->sampler.next(logits.select(0, static_cast<int64_t>(i)));
    rows[i]->tokens.push_back(token);
    rows[i]->has_ended =
        std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end();
  }
}

std::vector<const std::vector<int64_t>*> all_of(const TokenRows& prompts) {
  std::vector<const std::vector<int64_t>*> rows;
  for (const std::vector<int64_t>& prompt : prompts) {
    rows.push_back(&prompt);
  }
  return rows;
}

std::vector<Row> begin_rows(const models::LanguageModel& model, const TokenRows& prompts,
                            const GenerateOptions& options) {
  const at::Tensor tokens = window_of(all_of(prompts), model.max_positions()).tokens;
  const nn::Values inputs = model_inputs(tokens, nn::values_of(options.vision));
  std::vector<Row> rows;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    rows.push_back({prompts[i], Sampler(options.sampler, options.first_row + row),
                    model.images_of_rows(inputs, row, 1)});
  }
  return rows;
}

// A row whose first tokens no longer count would lose its images.
void check_room_for_images(const models::LanguageModel& model, const TokenRows& prompts,
                           int64_t max_new_tokens) {
  const std::vector<int64_t> seen = model.vision_tokens();
  for (size_t i = 0; i < prompts.size(); ++i) {
    const bool has_images = std::find_first_of(prompts[i].begin(), prompts[i].end(), seen.begin(),
                                               seen.end()) != prompts[i].end();
    const int64_t length = static_cast<int64_t>(prompts[i].size());
    FSDP2_CHECK(
        !has_images || length + max_new_tokens <= model.max_positions(), Code::kInvalidArgument,
        "prompt {} has images, and {} tokens: expected at most {} with max_new_tokens ({}), "
        "the positions of the model",
        i, length, model.max_positions(), max_new_tokens);
  }
}

// By several ranks. They make forwards until the last row of any of them has ended, and of no row
// is it known before whether a rank has images in the next forward.
bool is_gathered_on_use(const nn::Module& module) {
  const std::shared_ptr<fsdp::Unit> root = fsdp::find_unit(module);
  return root != nullptr && root->policy().schedule == fsdp::Schedule::kOnUse &&
         root->mesh().team().size() > 1;
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

void check_vision_count(const nn::Module& module, size_t count) {
  const size_t takes = module.input_count().most;
  const size_t most = takes > models::kPixels ? takes - models::kPixels : 0;
  FSDP2_CHECK(count <= most, Code::kInvalidArgument,
              "images for generation: {} takes {} inputs of images and videos, found {}",
              module.kind(), most, count);
}

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
  for (const std::vector<int64_t>& prompt : prompts) {
    FSDP2_CHECK(!prompt.empty(), Code::kInvalidArgument,
                "generation needs a prompt of at least one token");
  }
  check_vision_count(module, options.vision.size());
  const bool has_images = std::any_of(options.vision.begin(), options.vision.end(),
                                      [](const at::Tensor& input) { return input.defined(); });
  FSDP2_CHECK(!prompts.empty() || !has_images, Code::kInvalidArgument,
              "images for generation: expected a prompt that has them, found no prompt");
  FSDP2_CHECK(!has_images || !is_gathered_on_use(module), Code::kUnsupported,
              "images for generation: expected a shard with FSDP2_COMM_SCHEDULE_AGREED, found one "
              "on use, whose ranks would have to end rows with images together");
  check_room_for_images(model, prompts, options.max_new_tokens);
  if (!prompts.empty()) {
    const at::Tensor tokens = window_of(all_of(prompts), model.max_positions()).tokens;
    module.check_inputs(model_inputs(tokens, nn::values_of(options.vision)));
  }
}

TokenRows generate(nn::Module& module, const TokenRows& prompts, const GenerateOptions& options) {
  models::LanguageModel& model = models::language_model(module, kGeneration);
  const at::NoGradGuard no_grad;
  ForwardRun run(module, options.reshard_after_forward);
  std::vector<Row> rows = begin_rows(model, prompts, options);
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
