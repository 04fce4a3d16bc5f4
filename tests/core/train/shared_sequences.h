// A model on some ranks that may share its sequences, for comparing with one rank that does not.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/mesh.h"
#include "core/comm/sequence_dim.h"
#include "core/fsdp/parameter_values.h"
#include "core/models/registry.h"
#include "core/nn/backward.h"
#include "core/nn/seeded_init.h"
#include "core/nn/value_map.h"
#include "core/train/session.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {

// Four heads; the words come before the closing brace.
inline std::string llama(int kv_heads, const std::string& more = "") {
  return R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48,
             "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
             "num_key_value_heads": )" +
         std::to_string(kv_heads) + more + "}";
}

// The ranks of a job as a mesh.
struct Place {
  std::vector<int64_t> shape;
  Mesh::Names names;

  int ranks() const {
    int64_t product = 1;
    for (const int64_t size : shape) {
      product *= size;
    }
    return static_cast<int>(product);
  }
};
inline Place whole() { return {{1}, {"fsdp"}}; }
inline Place shared_by(int64_t ranks, int64_t groups = 1) {
  return {{groups, ranks}, {"dp", "cp"}};
}

// What a rank gives the model: tokens, labels, positions, mask; undefined: nothing.
using Inputs = std::vector<at::Tensor>;
using InputsOfRank = std::function<Inputs(const Mesh& mesh)>;
// The same for all that share a sequence.
inline InputsOfRank by_share(const std::vector<Inputs>& batches) {
  return [batches](const Mesh& mesh) {
    return batches.at(static_cast<size_t>(data_share(mesh).rank));
  };
}

inline Inputs some_rows(int64_t rows, int64_t length, int64_t seed = 0) {
  const at::Tensor window = (at::arange(rows * (length + 1)) * 17 + 5 * seed)
                                .bitwise_xor(11)
                                .remainder(40)
                                .view({rows, length + 1});
  return {window.slice(1, 0, length).clone(), window.slice(1, 1).clone()};
}

struct Model {
  std::shared_ptr<nn::Module> module;
  std::shared_ptr<Session> session;
  std::shared_ptr<fsdp::Unit> root;
};

using Prepare = std::function<void(nn::Module& module)>;

inline Model shard(const std::shared_ptr<Mesh>& mesh, const std::string& config,
                   const ShardOptions& options = {}, const Prepare& prepare = {}) {
  Model model;
  model.module = models::build(config);
  if (prepare) {
    prepare(*model.module);
  }
  model.session = std::make_shared<Session>(model.module, std::make_shared<nn::SeededInit>(3, 0.2));
  model.root =
      Session::shard(mesh, "shard", [&] { return ShardRequest{model.session, options, {}, ""}; });
  return model;
}

// What one backward gives, as rank 0 sees it.
struct Outcome {
  double loss = 0.0;  // the mean over all ranks
  std::vector<std::pair<std::string, at::Tensor>> gradients;
};

inline Outcome gradients_of(const Model& model) {
  Outcome outcome;
  for (const fsdp::ShardedParam* param : model.root->parameters()) {
    outcome.gradients.emplace_back(param->name(), fsdp::full_gradient(*model.root, *param));
  }
  return outcome;
}

inline double mean_over_ranks(const Mesh& mesh, double own) {
  const at::Tensor sum = at::tensor({own}, at::kDouble);
  mesh.team().control().all_reduce(sum, ReduceOp::kAverage).wait();
  return sum.item<double>();
}

// loss_of: of the module's output.
inline Outcome run_model(const Place& place, const std::string& config, const InputsOfRank& inputs,
                         const ShardOptions& options = {}, const Prepare& prepare = {},
                         const std::function<at::Tensor(const at::Tensor& output)>& loss_of = {}) {
  Outcome outcome;
  run_ranks(place.ranks(), [&](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, place.shape, place.names);
    const Model model = shard(mesh, config, options, prepare);
    const at::Tensor output = (*model.module)(nn::values_of(inputs(*mesh))).toTensor();
    const at::Tensor loss = loss_of ? loss_of(output) : output;
    nn::run_backward({loss}, {at::ones_like(loss)});
    Outcome own = gradients_of(model);
    own.loss = mean_over_ranks(*mesh, loss.item<double>());
    if (world->rank() == 0) {
      outcome = own;
    }
  });
  return outcome;
}

}  // namespace fsdp2::train
