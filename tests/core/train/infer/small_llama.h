// A language model of two layers with values from a seed, whole or sharded.
#pragma once

#include <memory>
#include <string>

#include "core/comm/mesh.h"
#include "core/fsdp/fully_shard.h"
#include "core/fsdp/parameter_values.h"
#include "core/models/registry.h"
#include "core/nn/seeded_init.h"

namespace fsdp2::train {

inline constexpr int64_t kVocabulary = 40;

inline std::string small_config(int64_t vocabulary = kVocabulary, const char* more = "") {
  return R"({"model_type": "llama", "vocab_size": )" + std::to_string(vocabulary) +
         R"(, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
             "num_attention_heads": 4, "max_position_embeddings": 16)" +
         more + "}";
}

inline std::shared_ptr<nn::Module> whole_llama(const std::string& config = small_config()) {
  const auto model = models::build(config);
  nn::SeededInit source(1, 0.3);
  nn::materialize(*model, source);
  return model;
}

inline std::shared_ptr<nn::Module> sharded_llama(const std::shared_ptr<Team>& team,
                                                 const fsdp::Policy& policy = {}) {
  const auto model = models::build(small_config());
  const auto root =
      fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(team, 0), policy, model->no_split_kinds());
  nn::SeededInit source(1, 0.3);
  fsdp::load_parameters(*root, source);
  return model;
}

}  // namespace fsdp2::train
