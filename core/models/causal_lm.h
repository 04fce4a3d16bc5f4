// What all language models are, most of which are causal: a body that makes hidden states of
// tokens, and a head that makes logits, or the loss, of those. Inputs are checked here.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/models/configured_model.h"
#include "core/models/language_model.h"
#include "core/nn/computation.h"
#include "core/nn/layers/head_scores.h"
#include "core/nn/layers/layers.h"
#include "core/nn/module.h"
#include "core/nn/own_generator.h"
#include "core/nn/sequence_peers.h"
#include "core/nn/token_loss.h"

namespace fsdp2::models {

// (hidden) -> logits, or (hidden, labels) -> mean cross-entropy, fp32, without holding all logits.
// A third input: HeadLossOptions::counted.
class LanguageHead : public nn::Linear {
 public:
  using nn::Linear::Linear;

  nn::InputCount input_count() const override { return {1, 3}; }

  // hidden [B,S,D], labels [B,S], of which those that forward leaves out are left out.
  nn::TokenScores score(const at::Tensor& hidden, const at::Tensor& labels,
                        nn::HeadScoreOptions options);
  // See TokenLoss.
  void set_loss_chunk(int64_t labels) { loss_chunk_ = labels; }
  // Logits are nn::soft_capped by it from now on; 0: they are not.
  void set_logit_cap(double cap) { logit_cap_ = cap; }

 protected:
  c10::IValue forward(nn::Values inputs) override;

 private:
  int64_t loss_chunk_ = 0;
  double logit_cap_ = 0;
};

// The head of a model with this table of tokens [V,D], which is the head's own weight where
// is_tied.
std::shared_ptr<LanguageHead> make_head(const at::Tensor& embedding, bool is_tied);

struct CausalLMConfig {
  std::string kind;        // "LlamaForCausalLM"
  std::string layer_kind;  // "LlamaDecoderLayer": what a wrapping policy keeps whole
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  double initializer_range = 0;
  double residual_range = 0;        // of "c_proj.weight"; 0: the same
  bool has_position_table = false;  // positions are rows of it, so there are max_positions of them
  bool draws = false;               // random numbers in training mode, as for dropout
  bool norms_add_one = false;
  int64_t padding_token = -1;  // -1: there is none
  nn::ComputationLines computation = {};
};

// LanguageModel's forward. body: (tokens [B,S], positions, mask, row keys of dropout.h) -> hidden
// [B,S,D], or a tuple of these and a loss of the body's own, which is added to that of the labels;
// all but the tokens may be None or missing. body_name is its name in the model, the head's is
// "lm_head". In training mode each forward of a model that draws does so once for its body.
//
// With peers every one of them is given the same whole batch, computes on its part, and returns the
// same: the loss or logits of the whole. Gradients are as sequence_parts.h says.
class CausalLM : public nn::Module,
                 public nn::TokenLoss,
                 public nn::OwnGenerator,
                 public nn::SequenceSharer,
                 public nn::Computation,
                 public LanguageModel,
                 public ConfiguredModel {
 public:
  // encoder: a module of the model, "visual", that runs before the body; null: there is none.
  CausalLM(CausalLMConfig config, std::string config_json, const char* body_name,
           const std::shared_ptr<nn::Module>& body, const std::shared_ptr<LanguageHead>& head,
           const std::shared_ptr<nn::Module>& encoder = nullptr);

  nn::InputCount input_count() const override { return {1, 4}; }
  void check_inputs(const nn::Values& inputs) const override;
  // The boundaries of packed sequences.
  bool is_read_by_host(size_t place, const at::Tensor& input) const override;
  int64_t counted_labels(const nn::Values& inputs) const override;
  void set_loss_chunk(int64_t labels) override { lm_head_->set_loss_chunk(labels); }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_positions() const override { return config_.max_positions; }
  nn::TokenScores score(nn::Values inputs, const nn::HeadScoreOptions& options) override;
  at::Tensor logits_at(nn::Values inputs, const at::Tensor& places) override;
  double initializer_range() const override { return config_.initializer_range; }
  double residual_range() const override {
    return config_.residual_range > 0 ? config_.residual_range : config_.initializer_range;
  }
  double initial_norm_weight() const override { return config_.norms_add_one ? 0 : 1; }
  int64_t padding_token() const override { return config_.padding_token; }
  std::optional<at::Generator> own_generator() const override;
  nn::ComputationLines computation_lines() const override { return config_.computation; }
  const std::string& config_json() const override { return config_json_; }
  std::vector<std::string> no_split_kinds() const override { return {config_.layer_kind}; }

 protected:
  c10::IValue forward(nn::Values inputs) override;
  // The body's output, of its inputs and those of the model that it does not know.
  virtual c10::IValue call_body(nn::Values inputs) { return (*body_)(std::move(inputs)); }

 private:
  struct BodyOutput {
    at::Tensor hidden;  // [B,S,D], or with peers [B,L,D]
    at::Tensor loss;    // undefined: the body has none
  };
  // What the body makes of forward's inputs, which have been checked.
  BodyOutput run_body(const nn::Values& inputs);
  at::Tensor loss_of_labels(const at::Tensor& hidden, const at::Tensor& labels);
  void check_tokens(const at::Tensor& tokens, const nn::Values& inputs) const;
  void check_positions(const at::Tensor& positions) const;
  void check_labels(const at::Tensor& labels, const at::Tensor& tokens) const;

  CausalLMConfig config_;
  std::string config_json_;
  at::Generator generator_;  // undefined without dropout
  std::shared_ptr<nn::Module> body_;
  std::shared_ptr<LanguageHead> lm_head_;
};

}  // namespace fsdp2::models
