// Runs of a small model, saved and loaded with all their state.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/ranks/sharded_save.h"
#include "core/fsdp/fully_shard.h"
#include "core/train/data/token_file.h"
#include "core/train/optim/adamw.h"
#include "core/train/optim/muon.h"
#include "core/train/optim/sgd.h"
#include "core/train/state/training_state.h"
#include "tests/core/base/file_fixture.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {

// World size and shard group size.
struct Ranks {
  int world;
  int64_t fsdp;

  std::string name() const { return fmt::format("{}x{}", world, fsdp); }
};

// A run of a small model whose first blocks are units; `seed` draws its first values.
class TinyRun {
 public:
  TinyRun(const std::shared_ptr<World>& world, const Ranks& ranks, const std::string& tokens,
          double seed = 0.0, Algorithm algorithm = Algorithm::kAdamW, uint64_t data_seed = 0,
          std::optional<at::ScalarType> state_dtype = std::nullopt, bool frozen_bias = true) {
    TinyStackOptions options;
    options.width = kWidth;
    options.inner = kWidth;
    options.tied = true;
    options.frozen_bias = frozen_bias;
    model_ = std::make_shared<TinyStack>(options);
    {
      const at::NoGradGuard no_grad;
      for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*model_)) {
        parameter.tensor.add_(seed);
      }
    }
    const auto mesh = Mesh::for_fsdp(world, ranks.fsdp);
    // The last block is tied to the root's own parameter and stays with it.
    for (size_t i = 0; i + 1 < model_->blocks.size(); ++i) {
      fsdp::fully_shard(model_->blocks[i], mesh, {});
    }
    root_ = fsdp::fully_shard(model_, mesh, {});
    optimizer_ = make_optimizer(algorithm, state_dtype);
    StepOptions step;
    step.loss_scaling = LossScalerOptions{};
    step_.emplace(model_, optimizer_, step);
    DataLoaderOptions loading;
    loading.rank = world->rank();
    loading.world_size = world->size();
    loading.batch_size = 1;
    loading.sequence_length = 4;
    loading.order = DataOrder::kShuffle;
    loading.seed = data_seed;
    loader_.emplace(std::make_shared<TokenFile>(tokens, 256, TokenFormat::kBytes), loading);
    saver_.emplace(root_->shared_mesh());
  }

  fsdp::Unit& root() { return *root_; }
  Optimizer& optimizer() { return *optimizer_; }
  TrainStep& step() { return *step_; }
  ckpt::ShardedSaver& saver() { return *saver_; }
  const DataLoader& loader() const { return *loader_; }

  TrainingObjects objects() {
    TrainingObjects objects;
    objects.root = root_.get();
    objects.optimizer = optimizer_.get();
    objects.step = &*step_;
    objects.loader = &*loader_;
    return objects;
  }

  // Losses of this rank. The batch follows from the data and from the random generator.
  std::vector<double> train(int steps) {
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      const TokenBatch batch = loader_->next();
      const at::Tensor x =
          (batch.inputs.to(at::kFloat).view({-1, 1}) / 256.0).expand({-1, kWidth}).contiguous();
      const at::Tensor loss = (*model_)(x).square().sum() / 10.0;
      loss.backward();
      optimizer_->step();
      optimizer_->zero_grad();
      step_->set_position(step_->position() + 1);
      losses.push_back(loss.item<double>());
    }
    return losses;
  }

 private:
  static constexpr int64_t kWidth = 5;

  std::shared_ptr<Optimizer> make_optimizer(Algorithm algorithm,
                                            std::optional<at::ScalarType> state_dtype) const {
    AdamWOptions adamw{1e-2};
    adamw.state_dtype = state_dtype;
    switch (algorithm) {
      case Algorithm::kAdamW:
        return make_adamw(root_, adamw);
      case Algorithm::kSgd:
        return make_sgd(root_, {1e-3, 0.9});
      case Algorithm::kMuon:
        return make_muon(root_, {1e-2});
    }
    return nullptr;
  }

  std::shared_ptr<TinyStack> model_;
  std::shared_ptr<fsdp::Unit> root_;
  std::shared_ptr<Optimizer> optimizer_;
  std::optional<TrainStep> step_;
  std::optional<DataLoader> loader_;
  std::optional<ckpt::ShardedSaver> saver_;
};

// Keeps of a state what is wanted.
template <typename Wanted>
ckpt::StateDict only(ckpt::StateDict state, const Wanted& wanted) {
  const auto drop = [&](auto& list) {
    const auto is_unwanted = [&](const auto& entry) { return !wanted(entry.name); };
    list.erase(std::remove_if(list.begin(), list.end(), is_unwanted), list.end());
  };
  drop(state.tensors);
  drop(state.objects);
  return state;
}

// All tensors of the model and the optimizer in a checkpoint.
inline std::map<std::string, at::Tensor> tensors_in(const std::string& path) {
  std::map<std::string, at::Tensor> tensors;
  const auto source = ckpt::open_checkpoint(path);
  for (const ckpt::StateEntry& entry : source->entries()) {
    if (entry.dtype && entry.name.rfind("fsdp2.", 0) != 0) {
      at::Tensor tensor = at::empty(entry.shape, *entry.dtype);
      source->read(entry, std::vector<int64_t>(entry.shape.size(), 0), tensor);
      tensors.emplace(entry.name, tensor);
    }
  }
  return tensors;
}

inline void expect_equal(const std::map<std::string, at::Tensor>& a,
                         const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_EQ(b.count(name), 1u) << name;
    EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  }
}

class TrainingState : public FileTest {
 protected:
  TrainingState() { write("tokens", std::string(1000, 'x') + "The quick brown fox"); }
  std::string tokens() const { return path("tokens"); }
};

}  // namespace fsdp2::train
