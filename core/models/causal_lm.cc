#include "core/models/causal_lm.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/models/sequences.h"
#include "core/nn/layers/activation.h"
#include "core/nn/layers/dropout.h"
#include "core/nn/layers/head_loss.h"
#include "core/nn/layers/packed_sequences.h"
#include "core/nn/layers/sequence_parts.h"

namespace fsdp2::models {

namespace {

constexpr int64_t kIgnoredLabel = -100;

// Places of inputs.
constexpr size_t kPositions = 2;
constexpr size_t kMask = 3;
constexpr size_t kFurther = 4;  // what only some models take

void check_tokens_shape(const at::Tensor& tokens, const char* what) {
  FSDP2_CHECK(
      tokens.dim() == 2 && tokens.numel() > 0 && tokens.scalar_type() == at::kLong,
      Code::kInvalidArgument,
      "{}: expected a non-empty int64 tensor [batch, sequence], got {} dims, {} elements of "
      "type {}",
      what, tokens.dim(), tokens.numel(), c10::toString(tokens.scalar_type()));
}

// The first value that is_wrong marks is named in the error. Out of range it would be an access
// outside the embedding table. REQUIRES: on the host, where looking costs no wait for a device.
void refuse_marked(const at::Tensor& is_wrong, const at::Tensor& values, const char* what,
                   const char* whole, int64_t size) {
  if (!is_wrong.any().item<bool>()) {
    return;
  }
  const at::Tensor position = is_wrong.nonzero().select(0, 0);
  const auto batch = position.select(0, 0).item<int64_t>();
  const auto index = position.select(0, 1).item<int64_t>();
  fail(Code::kInvalidArgument, "{} {} at position [{}, {}] is outside {} of {} (0 to {})", what,
       values.select(0, batch).select(0, index).item<int64_t>(), batch, index, whole, size,
       size - 1);
}

// Attention sees the rows of tokens padded, and takes the length without padding from the mask.
void check_is_of_whole(const at::Tensor& mask, const at::Tensor& tokens) {
  if (!mask.defined() || mask.dim() == 2) {
    return;
  }
  const int64_t length = tokens.size(1);
  if (mask.dim() == 1) {
    nn::read_boundaries(mask, tokens.size(0), length);
    return;
  }
  FSDP2_CHECK(mask.dim() == 4 && mask.size(2) == length && mask.size(3) == length,
              Code::kInvalidArgument,
              "mask: expected [batch, heads or 1, {}, {}], as the tokens have, found [{}]", length,
              length, fmt::join(mask.sizes(), ", "));
}

}  // namespace

c10::IValue LanguageHead::forward(nn::Values inputs) {
  if (inputs.size() < 2) {
    return nn::soft_capped(Linear::forward(std::move(inputs)).toTensor(), logit_cap_);
  }
  nn::check_has_memory(weight(), *this, "weight");
  nn::HeadLossOptions options;
  options.ignore_index = kIgnoredLabel;
  options.chunk_rows = loss_chunk_;
  options.logit_cap = logit_cap_;
  options.counted = tensor_at(inputs, 2);
  return nn::head_loss(inputs[0].toTensor(), weight(), inputs[1].toTensor(), options);
}

nn::TokenScores LanguageHead::score(const at::Tensor& hidden, const at::Tensor& labels,
                                    nn::HeadScoreOptions options) {
  options.ignore_index = kIgnoredLabel;
  options.logit_cap = logit_cap_;
  nn::TokenScores scores;
  run({hidden, labels}, [&](const nn::Values& inputs) {
    nn::check_has_memory(weight(), *this, "weight");
    scores = nn::head_scores(inputs[0].toTensor(), weight(), inputs[1].toTensor(), options);
    return c10::IValue();
  });
  return scores;
}

std::shared_ptr<LanguageHead> make_head(const at::Tensor& embedding, bool is_tied) {
  return is_tied ? std::make_shared<LanguageHead>(embedding)
                 : std::make_shared<LanguageHead>(embedding.size(1), embedding.size(0),
                                                  /*has_bias=*/false, embedding.scalar_type());
}

CausalLM::CausalLM(CausalLMConfig config, std::string config_json, const char* body_name,
                   const std::shared_ptr<nn::Module>& body,
                   const std::shared_ptr<LanguageHead>& head,
                   const std::shared_ptr<nn::Module>& encoder)
    : Module(config.kind),
      config_(std::move(config)),
      config_json_(std::move(config_json)),
      generator_(config_.draws ? at::detail::createCPUGenerator() : at::Generator()) {
  if (encoder != nullptr) {
    register_module("visual", encoder);  // first, as it runs: units are gathered in this order
  }
  body_ = register_module(body_name, body);
  lm_head_ = register_module("lm_head", head);
}

void CausalLM::check_tokens(const at::Tensor& tokens, const nn::Values& inputs) const {
  check_tokens_shape(tokens, "tokens");
  const int64_t length = longest_sequence(tokens, tensor_at(inputs, 2), tensor_at(inputs, 3));
  FSDP2_CHECK(length <= config_.max_positions, Code::kInvalidArgument,
              "a sequence of {} tokens is longer than the {} positions of the model", length,
              config_.max_positions);
  if (tokens.is_cpu()) {
    refuse_marked(tokens.lt(0).logical_or_(tokens.ge(config_.vocab_size)), tokens, "token",
                  "the vocabulary", config_.vocab_size);
  }
}

void CausalLM::check_positions(const at::Tensor& positions) const {
  if (!config_.has_position_table) {
    return;
  }
  FSDP2_CHECK(
      positions.dim() == 2 && at::isIntegralType(positions.scalar_type(), /*includeBool=*/false),
      Code::kInvalidArgument, "positions: expected integers [batch, sequence], got {} of {} dims",
      c10::toString(positions.scalar_type()), positions.dim());
  if (positions.is_cpu()) {
    refuse_marked(positions.lt(0).logical_or_(positions.ge(config_.max_positions)), positions,
                  "position", "the positions", config_.max_positions);
  }
}

void CausalLM::check_labels(const at::Tensor& labels, const at::Tensor& tokens) const {
  check_tokens_shape(labels, "labels");
  FSDP2_CHECK(labels.sizes() == tokens.sizes(), Code::kInvalidArgument,
              "labels: expected the shape of the tokens [{}, {}], got [{}, {}]", tokens.size(0),
              tokens.size(1), labels.size(0), labels.size(1));
  if (labels.is_cpu()) {
    refuse_marked(labels.lt(0)
                      .logical_and_(labels.ne(kIgnoredLabel))
                      .logical_or_(labels.ge(config_.vocab_size)),
                  labels, "label", "the vocabulary", config_.vocab_size);
  }
}

std::optional<at::Generator> CausalLM::own_generator() const {
  return generator_.defined() ? std::optional<at::Generator>(generator_) : std::nullopt;
}

int64_t CausalLM::counted_labels(const nn::Values& inputs) const {
  const at::Tensor labels = tensor_at(inputs, 1);
  return labels.defined() ? labels.ne(kIgnoredLabel).sum().item<int64_t>() : 0;
}

void CausalLM::check_inputs(const nn::Values& inputs) const {
  const auto is_optional = [](const c10::IValue& input) {
    return input.isTensor() || input.isNone();
  };
  FSDP2_CHECK(!inputs.empty() && inputs.size() <= input_count().most && inputs[0].isTensor() &&
                  std::all_of(inputs.begin() + 1, inputs.end(), is_optional),
              Code::kInvalidArgument, "{}: expected tokens, or tokens and labels, got {} inputs",
              kind(), inputs.size());
  check_tokens(inputs[0].toTensor(), inputs);
  if (peers() != nullptr) {
    check_is_of_whole(tensor_at(inputs, 3), inputs[0].toTensor());
  }
  if (const at::Tensor positions = tensor_at(inputs, 2); positions.defined()) {
    check_positions(positions);
  }
  if (const at::Tensor labels = tensor_at(inputs, 1); labels.defined()) {
    check_labels(labels, inputs[0].toTensor());
  }
}

bool CausalLM::is_read_by_host(size_t place, const at::Tensor& input) const {
  return place == kMask && input.dim() == 1;
}

CausalLM::BodyOutput CausalLM::run_body(const nn::Values& inputs) {
  const auto end = std::min(inputs.size(), kFurther);
  nn::Values body_inputs{inputs[0]};
  for (size_t place = kPositions; place < end; ++place) {
    body_inputs.push_back(inputs[place]);
  }
  if (generator_.defined() && is_training()) {
    body_inputs.resize(3);
    body_inputs.emplace_back(nn::draw_row_keys(generator_, inputs[0].toTensor()));
  }
  if (inputs.size() > kFurther) {
    body_inputs.resize(4);
    body_inputs.insert(body_inputs.end(), inputs.begin() + kFurther, inputs.end());
  }
  const c10::IValue output = call_body(std::move(body_inputs));
  if (output.isTensor()) {
    return {output.toTensor(), at::Tensor()};
  }
  const auto& parts = output.toTupleRef().elements();
  return {parts[0].toTensor(), parts[1].toTensor()};
}

at::Tensor CausalLM::loss_of_labels(const at::Tensor& hidden, const at::Tensor& labels) {
  if (peers() == nullptr) {
    return (*lm_head_)({hidden, labels}).toTensor();
  }
  const at::Tensor counted = labels.ne(kIgnoredLabel).sum();
  const at::Tensor own = nn::part_of(labels, 1, peers(), kIgnoredLabel);
  return nn::sum_of_parts((*lm_head_)({hidden, own, counted}).toTensor(), peers());
}

c10::IValue CausalLM::forward(nn::Values inputs) {
  check_inputs(inputs);
  const BodyOutput body = run_body(inputs);
  const at::Tensor labels = tensor_at(inputs, 1);
  if (!labels.defined()) {
    return (*lm_head_)(nn::whole_of(body.hidden, inputs[0].toTensor().size(1), peers()));
  }
  const at::Tensor loss = loss_of_labels(body.hidden, labels);
  return body.loss.defined() ? loss + body.loss : loss;
}

nn::TokenScores CausalLM::score(nn::Values inputs, const nn::HeadScoreOptions& options) {
  nn::TokenScores scores;
  run(std::move(inputs), [&](const nn::Values& given) {
    check_inputs(given);
    const at::Tensor labels = tensor_at(given, 1);
    FSDP2_CHECK(labels.defined(), Code::kInvalidArgument, "{}: labels are missing", kind());
    const at::Tensor own = nn::part_of(labels, 1, peers(), kIgnoredLabel);
    scores = lm_head_->score(run_body(given).hidden, own, options);
    scores.log_probs = nn::whole_of(scores.log_probs, labels.size(1), peers());
    scores.entropies = nn::whole_of(scores.entropies, labels.size(1), peers());
    return c10::IValue();
  });
  return scores;
}

at::Tensor CausalLM::logits_at(nn::Values inputs, const at::Tensor& places) {
  at::Tensor logits;
  run(std::move(inputs), [&](const nn::Values& given) {
    CausalLM::check_inputs(given);  // what the model has generated may be any of its tokens
    const at::Tensor hidden =
        nn::whole_of(run_body(given).hidden, given[0].toTensor().size(1), peers());
    const at::Tensor own = places.to(hidden.device());
    const at::Tensor rows =
        at::arange(hidden.size(0), own.options()).mul_(hidden.size(1)).add_(own);
    logits = (*lm_head_)(hidden.flatten(0, 1).index_select(0, rows)).to(at::kFloat);
    return c10::IValue();
  });
  return logits;
}

}  // namespace fsdp2::models
