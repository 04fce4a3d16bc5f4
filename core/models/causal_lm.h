// A decoder language model with the names and numerics of the transformers library.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/nn/module.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::models {

class CausalLM : public nn::Module {
 public:
  using nn::Module::Module;

  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_positions() const = 0;
  // Standard deviation of freshly initialised matrices.
  virtual double initializer_range() const = 0;
  // config.json as text, for saving the model back.
  virtual const std::string& config_json() const = 0;

  // forward's inputs and output, B = batch, S = sequence, V = vocabulary (labels may also be None;
  // they are not shifted here: labels[b][s] is the token that should follow tokens[b][s]):
  //   (tokens [B,S] int64)                       -> logits [B,S,V], in the dtype of the head
  //   (tokens [B,S] int64, labels [B,S] int64)   -> mean cross-entropy, fp32 scalar; label -100 is
  //                                                 left out. All logits are never held at once.
  // Errors: kInvalidArgument for a token or label outside the vocabulary (position and value) or
  // a sequence longer than max_positions.
};

}  // namespace fsdp2::models
