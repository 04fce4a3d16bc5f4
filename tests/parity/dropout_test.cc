// Dropout in training: by the seed, at any world size.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/ckpt/ranks/sharded_save.h"
#include "core/fsdp/fully_shard.h"
#include "core/models/registry.h"
#include "core/nn/custom_module.h"
#include "core/nn/own_generator.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/nn/seeded_init.h"
#include "core/nn/stock/layer.h"
#include "core/train/optim/sgd.h"
#include "core/train/state/training_state.h"
#include "core/train/step/train_step.h"
#include "tests/core/base/file_fixture.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

constexpr int64_t kRows = 4;
constexpr int64_t kLength = 12;

struct Options {
  uint64_t seed = 3;
  bool training = true;
  std::vector<std::string> checkpointed = {};
};

// PyTorch's encoder between a table of tokens and a head, with the loss of the labels.
std::shared_ptr<nn::Module> make_encoder() {
  const auto layers = nn::make_layer("Sequential", "", {});
  layers->add_child(
      "embed", nn::make_layer("Embedding", R"({"num_embeddings": 31, "embedding_dim": 24})", {}));
  layers->add_child("encoder", nn::make_layer("TransformerEncoder", R"({
    "num_layers": 2, "d_model": 24, "nhead": 4, "dim_feedforward": 40, "is_causal": true
  })",
                                              {}));
  layers->add_child("head",
                    nn::make_layer("Linear", R"({"in_features": 24, "out_features": 31})", {}));
  auto whole = std::make_shared<nn::CustomModule>(
      "Encoder", nn::CustomModuleOptions{0, nullptr, {1, 2}},
      [layers](nn::CustomModule& /*self*/, const nn::Values& inputs) {
        const at::Tensor logits = (*layers)(inputs[0].toTensor());
        return c10::IValue(
            at::cross_entropy_loss(logits.flatten(0, 1), inputs[1].toTensor().flatten()));
      });
  whole->add_child("layers", layers);
  return whole;
}

constexpr const char* kEncoder = "encoder";

std::shared_ptr<nn::Module> make_model(const std::string& config) {
  return config == kEncoder ? make_encoder() : models::build(config);
}

// Those that are units, and are recomputed.
std::vector<std::string> kinds_of_layers(const nn::Module& model) {
  const std::vector<std::string> kinds = model.no_split_kinds();
  return kinds.empty() ? std::vector<std::string>{"TransformerEncoderLayer"} : kinds;
}

// A model whose global batch of four rows is the same at any world size.
struct SmallRun {
  SmallRun(const std::shared_ptr<World>& world, const std::string& config, const Options& options)
      : rank(world->rank()), size(world->size()), model(make_model(config)) {
    model->train(options.training);
    if (auto own = nn::own_generator_of(*model)) {
      own->set_current_seed(options.seed);
    }
    if (!options.checkpointed.empty()) {
      nn::checkpoint_by_kind(*model, options.checkpointed);
    }
    root =
        fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, size), {}, kinds_of_layers(*model));
    nn::SeededInit source(1, 0.3);
    fsdp::load_parameters(*root, source);
    optimizer = train::make_sgd(root, {0.05, 0.9});
    step = std::make_unique<train::TrainStep>(model, optimizer, train::StepOptions{});
  }

  std::vector<double> train(int steps) {
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      const at::Tensor all = (at::arange(kRows * (kLength + 1)) * 7 + step->position() * 5)
                                 .remainder(31)
                                 .view({kRows, kLength + 1});
      const at::Tensor own = all.narrow(0, rank * kRows / size, kRows / size);
      losses.push_back(step->run({{own.narrow(1, 0, kLength).contiguous(),
                                   own.narrow(1, 1, kLength).contiguous()}})
                           .loss);
    }
    return losses;
  }

  train::TrainingObjects objects() {
    train::TrainingObjects objects;
    objects.root = root.get();
    objects.optimizer = optimizer.get();
    objects.step = step.get();
    return objects;
  }

  int rank;
  int size;
  std::shared_ptr<nn::Module> model;
  std::shared_ptr<fsdp::Unit> root;
  std::shared_ptr<train::Optimizer> optimizer;
  std::unique_ptr<train::TrainStep> step;
};

class Dropout : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string config() { return GetParam(); }

  // The losses of five steps.
  static std::vector<double> losses(int ranks, const Options& options = {}) {
    std::vector<double> found;
    run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      const std::vector<double> own = SmallRun(world, config(), options).train(5);
      if (world->rank() == 0) {
        found = own;
      }
    });
    return found;
  }
};

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], 1e-5 * b[i]) << "step " << i;
  }
}

TEST_P(Dropout, IsTheSameAtAnyWorldSize) {
  const std::vector<double> one = losses(1);
  expect_near(losses(2), one);
  expect_near(losses(4), one);
}

TEST_P(Dropout, FollowsTheSeed) {
  const std::vector<double> three = losses(1, {3});
  EXPECT_EQ(losses(1, {3}), three);
  EXPECT_GT(std::abs(losses(1, {4})[0] - three[0]), 1e-3);
}

TEST_P(Dropout, IsOfTrainingModeAlone) {
  Options evaluation;
  evaluation.training = false;
  EXPECT_GT(std::abs(losses(1, evaluation)[0] - losses(1)[0]), 1e-3);
  Options other_seed = evaluation;
  other_seed.seed = 4;
  EXPECT_EQ(losses(1, evaluation), losses(1, other_seed));
}

TEST_P(Dropout, IsTheSameWithActivationCheckpointing) {
  const std::vector<double> expected = losses(2);
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto model = make_model(config());
    for (const std::string& kind : {kinds_of_layers(*model)[0], model->kind()}) {
      Options options;
      options.checkpointed = {kind};
      expect_near(SmallRun(world, config(), options).train(5), expected);
    }
  });
}

class DropoutResumed : public FileTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(DropoutResumed, GoesOnAsIfItHadNeverStopped) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    SmallRun run(world, GetParam(), {});
    run.train(2);
    ckpt::ShardedSaver saver(run.root->shared_mesh());
    saver.save(train::state_to_save(run.objects()), {path("run")});
    const std::vector<double> expected = run.train(3);
    Options other;
    other.seed = 99;
    SmallRun resumed(world, GetParam(), other);
    train::load_training_state(resumed.objects(), path("run"), /*partial=*/false);
    EXPECT_EQ(resumed.train(3), expected);
  });
}

// Hides other tokens at each step, too.
constexpr const char* kMasked = R"({
  "model_type": "encoder", "vocab_size": 31, "hidden_size": 24, "intermediate_size": 40,
  "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 16,
  "mask_token_id": 30, "dropout": 0.1
})";

constexpr const char* kGpt2 = R"({
  "model_type": "gpt2", "vocab_size": 31, "n_embd": 24, "n_layer": 2, "n_head": 3,
  "n_positions": 16, "embd_pdrop": 0.1, "attn_pdrop": 0.2, "resid_pdrop": 0.15
})";

constexpr const char* kLlama = R"({
  "model_type": "llama", "vocab_size": 31, "hidden_size": 24, "intermediate_size": 40,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 16, "attention_dropout": 0.3
})";

// Residual dropout besides that of attention.
constexpr const char* kPhi3 = R"({
  "model_type": "phi3", "vocab_size": 31, "hidden_size": 24, "intermediate_size": 40,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "max_position_embeddings": 16, "attention_dropout": 0.1, "resid_pdrop": 0.2
})";

std::string name_of(const ::testing::TestParamInfo<const char*>& info) {
  constexpr const char* kNames[] = {"gpt2", "llama", "phi3", "encoder", "masked"};
  return kNames[info.index];
}

INSTANTIATE_TEST_SUITE_P(Models, Dropout,
                         ::testing::Values(kGpt2, kLlama, kPhi3, kEncoder, kMasked), name_of);
INSTANTIATE_TEST_SUITE_P(Models, DropoutResumed,
                         ::testing::Values(kGpt2, kLlama, kPhi3, kEncoder, kMasked), name_of);

}  // namespace
}  // namespace fsdp2
