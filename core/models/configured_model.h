// What a model has because a config.json describes it. A module that was put together by other
// means lacks it.
#pragma once

#include <cstdint>
#include <string>

#include "core/nn/module.h"

namespace fsdp2::models {

class ConfiguredModel {
 public:
  virtual ~ConfiguredModel() = default;

  // config.json as text, for saving the model back.
  virtual const std::string& config_json() const = 0;
  // Standard deviation of freshly initialised matrices.
  virtual double initializer_range() const = 0;
  // That of those whose results are added to the hidden states, where it is another one: they are
  // named "c_proj.weight".
  virtual double residual_range() const { return initializer_range(); }
  // What the weights of norms begin with: 0 where 1 is added to them.
  virtual double initial_norm_weight() const = 0;
  // The token whose row in the table of embeddings begins as zeros; -1: there is none.
  virtual int64_t padding_token() const { return -1; }
};

// The module as a ConfiguredModel. Error: kUnsupported if it is none; purpose says what for, as
// "fsdp2_checkpoint_save_pretrained".
const ConfiguredModel& configured_model(const nn::Module& module, const char* purpose);

}  // namespace fsdp2::models
