// Which models' steps can be graphs of a device: what is refused when the step is made, and stock
// layers and a language model, whose steps are recorded.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/fsdp/parameter_values.h"
#include "core/models/registry.h"
#include "core/nn/custom_module.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/nn/seeded_init.h"
#include "core/nn/sequence_peers.h"
#include "core/nn/stock/layer.h"
#include "core/train/optim/adamw.h"
#include "core/train/step/step_graphs.h"
#include "tests/core/train/step/graph_job.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"
#include "tests/support/recording_device/backend.h"
#include "tests/support/recording_device/device.h"

namespace fsdp2::train {
namespace {

using ::testing::HasSubstr;

// ---- refused

std::string refusal_of(const GraphScenario& scenario, const std::shared_ptr<World>& world,
                       const std::string& device_type = "recording") {
  return message_of_error([&] { make_job(scenario, world, /*uses_graphs=*/true, device_type); },
                          Code::kUnsupported);
}

std::string refusal_of(const std::shared_ptr<nn::Module>& module,
                       const std::shared_ptr<fsdp::Unit>& root) {
  return message_of_error([&] { StepGraphs(*module, *root); }, Code::kUnsupported);
}

TEST(GraphSupport, RefusesOtherDevicesOffloadAndTransportsOfTheHost) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    EXPECT_THAT(refusal_of(named(""), world, "cpu"), HasSubstr("expected a mesh of GPUs"));
    GraphScenario offloaded = named("");
    offloaded.policy.offload = {/*to_cpu=*/true, /*pin_memory=*/false};
    EXPECT_THAT(refusal_of(offloaded, world), HasSubstr("offload"));
  });
  const auto on_host = [](const std::shared_ptr<World>& world) {
    EXPECT_THAT(refusal_of(named(""), world), HasSubstr("expected backend nccl"));
  };
  recording::run_ranks_on_devices(2, on_host, CollectiveOrder::kOnHost);
}

TEST(GraphSupport, RefusesComparedCollectives) {
  setenv("FSDP2_DEBUG", "detail", 1);
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    EXPECT_THAT(refusal_of(named(""), world), HasSubstr("FSDP2_DEBUG=detail"));
  });
  unsetenv("FSDP2_DEBUG");
}

class TwoPeers final : public nn::SequencePeers {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 2; }
  void all_to_all(const at::Tensor& /*out*/, const at::Tensor& /*in*/) override {}
  void all_gather(const at::Tensor& /*out*/, const at::Tensor& /*in*/) override {}
  void sum(const at::Tensor& /*tensor*/) override {}
  void make_alike(nn::Values& /*inputs*/) override {}
};

class Sharer : public Model, public nn::SequenceSharer {
 public:
  Sharer() : Model({kWidth, 16, 2}) { set_peers(std::make_shared<TwoPeers>()); }
};

class NoHooks final : public nn::ForwardHooks {
 public:
  void pre_forward(nn::Module& /*module*/, nn::Values& /*inputs*/) override {}
  void post_forward(nn::Module& /*module*/, c10::IValue& /*output*/) override {}
  void forward_failed(nn::Module& /*module*/) noexcept override {}
};

std::shared_ptr<fsdp::Unit> sharded(const std::shared_ptr<nn::Module>& module,
                                    const std::shared_ptr<World>& world) {
  return fsdp::fully_shard(module, Mesh::for_fsdp(world, 0, "recording"), {});
}

TEST(GraphSupport, RefusesSharedSequencesAndHooksOfTheCaller) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    const auto sharer = std::make_shared<Sharer>();
    EXPECT_THAT(refusal_of(sharer, sharded(sharer, world)),
                HasSubstr("ranks that share sequences"));
    const auto hooked = std::make_shared<Model>(TinyStackOptions{kWidth, 16, 2});
    const auto root = sharded(hooked, world);
    const auto hooks = std::make_shared<NoHooks>();
    hooked->child_modules().front().second->add_hooks(hooks);
    EXPECT_THAT(refusal_of(hooked, root), HasSubstr("'TinyStack' has hooks around its forward"));
    hooked->child_modules().front().second->remove_hooks(hooks.get());
    StepGraphs(*hooked, *root);
  });
}

TEST(GraphSupport, RefusesModulesOfTheCallerWhereverTheyAre) {
  const auto own = [] {
    return std::make_shared<nn::CustomModule>(
        "Own", nn::CustomModuleOptions{},
        [](nn::CustomModule& self, const nn::Values& inputs) -> c10::IValue {
          return (inputs[0].toTensor() * self.own_parameter("scale")).sum();
        });
  };
  recording::run_ranks_on_devices(2, [&](const std::shared_ptr<World>& world) {
    const auto whole = own();
    whole->add_parameter("scale", {kWidth}, at::kFloat, {});
    EXPECT_THAT(refusal_of(whole, sharded(whole, world)),
                HasSubstr("'Own' is a module of the caller's"));
    const auto list = nn::make_layer("Sequential", "{}", {});
    const auto part = own();
    part->add_parameter("scale", {kWidth}, at::kFloat, {});
    list->add_child("0", part);
    EXPECT_THAT(refusal_of(list, sharded(list, world)),
                HasSubstr("'Own' is a module of the caller's"));
  });
}

// Beside the stack, which is sharded, a number of its own that is not.
class HalfSharded : public nn::Module {
 public:
  HalfSharded() : nn::Module("HalfSharded") {
    stack = register_module("stack", std::make_shared<TinyStack>(TinyStackOptions{kWidth, 16, 2}));
    own_ = register_parameter("own", at::ones({kWidth}, at::device(at::kCPU)));
  }
  std::shared_ptr<TinyStack> stack;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return ((*stack)(inputs[0].toTensor()) * own_).sum();
  }

 private:
  at::Tensor own_;
};

TEST(GraphSupport, RefusesParametersThatAreTrainedAndNotSharded) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    const auto module = std::make_shared<HalfSharded>();
    const auto root = sharded(module->stack, world);
    EXPECT_THAT(refusal_of(module, root), HasSubstr("own is trained and not sharded"));
    module->parameters(/*recurse=*/false).front().set_requires_grad(false);
    StepGraphs(*module, *root);
  });
}

// ---- recorded

struct Trained {
  std::vector<std::vector<double>> numbers;
  std::vector<at::Tensor> values;
  int64_t forwards = 0;
};

using MakeModule = std::function<std::shared_ptr<nn::Module>()>;
using MakeBatch = std::function<std::vector<at::Tensor>(int step, int rank)>;

Trained train(const std::shared_ptr<World>& world, bool uses_graphs, const MakeModule& make,
              const MakeBatch& batch, const fsdp::Policy& policy) {
  const std::shared_ptr<nn::Module> module = make();
  const auto root = fsdp::fully_shard_by_kind(module, Mesh::for_fsdp(world, 0, "recording"), policy,
                                              module->no_split_kinds());
  nn::SeededInit source(1, 0.3);
  fsdp::load_parameters(*root, source);
  StepOptions options;
  options.uses_graphs = uses_graphs;
  TrainStep step(module, make_adamw(root, {}), options);
  Trained trained;
  for (int i = 0; i < kGraphSteps; ++i) {
    const StepResult result = step.run({batch(i, world->rank())});
    trained.numbers.push_back({result.loss, result.grad_norm});
  }
  for (const fsdp::ShardedParam* param : root->parameters()) {
    trained.values.push_back(param->local_values().to(at::kCPU));
  }
  trained.forwards = root->scheduler().root_forwards();
  EXPECT_EQ(recording::recorder(root->mesh().device().index()).problems(),
            std::vector<std::string>{});
  return trained;
}

void expect_recorded(const MakeModule& make, const MakeBatch& batch,
                     const fsdp::Policy& policy = {}) {
  recording::run_ranks_on_devices(2, [&](const std::shared_ptr<World>& world) {
    const Trained expected = train(world, /*uses_graphs=*/false, make, batch, policy);
    const Trained found = train(world, /*uses_graphs=*/true, make, batch, policy);
    EXPECT_EQ(found.numbers, expected.numbers);
    ASSERT_EQ(found.values.size(), expected.values.size());
    for (size_t i = 0; i < found.values.size(); ++i) {
      EXPECT_TRUE(found.values[i].equal(expected.values[i])) << "parameter " << i;
    }
    EXPECT_EQ(found.forwards, GraphTurns::kWarmUps + 2);
    EXPECT_EQ(expected.forwards, kGraphSteps);
  });
}

std::vector<at::Tensor> tokens_of(int step, int rank) {
  const at::Tensor window =
      (at::arange(9, at::device(at::kCPU).dtype(at::kLong)) * 7 + 3 * step + 5 * rank)
          .remainder(40)
          .view({1, -1});
  const at::Tensor labels = window.slice(1, 1).clone();
  labels.slice(1, 0, step % 3).fill_(-100);
  return {window.slice(1, 0, 8).contiguous(), labels};
}

constexpr const char* kLlama = R"({
  "model_type": "llama", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 8
})";

TEST(GraphSupport, RecordsALanguageModel) {
  expect_recorded([] { return models::build(kLlama); }, tokens_of);
}

TEST(GraphSupport, RecordsALanguageModelThatRecomputesItsLayersInBf16) {
  fsdp::Policy policy;
  policy.mixed_precision.param_dtype = at::kBFloat16;
  policy.mixed_precision.reduce_dtype = at::kFloat;
  const auto recomputing = [] {
    const std::shared_ptr<nn::Module> model = models::build(kLlama);
    for (const auto& each : model->modules()) {
      auto* const layer = dynamic_cast<nn::Module*>(each.get());
      if (layer != nullptr && layer->kind() == "LlamaDecoderLayer") {
        nn::checkpoint_activations(*layer);
      }
    }
    return model;
  };
  expect_recorded(recomputing, tokens_of, policy);
}

// Tokens [1,8] to one number.
std::shared_ptr<nn::Module> stock_model() {
  const nn::LayerSettings settings;
  const auto model = nn::make_layer("Sequential", "{}", settings);
  const std::vector<std::pair<const char*, const char*>> layers = {
      {"Embedding", R"({"num_embeddings": 40, "embedding_dim": 8})"},
      {"TransformerEncoderLayer",
       R"({"d_model": 8, "nhead": 2, "dim_feedforward": 16, "dropout": 0.5, "is_causal": true})"},
      {"MultiheadAttention", R"({"embed_dim": 8, "num_heads": 4, "num_kv_heads": 2,
                                 "is_causal": true, "rope_theta": 10000})"},
      {"RMSNorm", R"({"normalized_shape": 8})"},
      {"GatedMLP", R"({"hidden_size": 8, "intermediate_size": 12})"},
      {"LayerNorm", R"({"normalized_shape": 8})"},
      {"Dropout", R"({"p": 0.3})"},
      {"Flatten", "{}"},
      {"Linear", R"({"in_features": 64, "out_features": 1})"},
  };
  for (size_t i = 0; i < layers.size(); ++i) {
    model->add_child(std::to_string(i),
                     nn::make_layer(layers[i].first, layers[i].second, settings));
  }
  return model;
}

TEST(GraphSupport, RecordsStockLayersWithTheNumbersThatTheyDraw) {
  expect_recorded(stock_model, [](int step, int rank) {
    return std::vector<at::Tensor>{tokens_of(step, rank).front()};
  });
}

}  // namespace
}  // namespace fsdp2::train
