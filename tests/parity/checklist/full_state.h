// A sharded model with an optimizer, and its full state in memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/ranks/gathered_state.h"
#include "core/ckpt/state/memory_source.h"
#include "core/train/optim/adamw.h"
#include "core/train/state/training_state.h"
#include "tests/parity/checklist/sharding.h"

namespace fsdp2::checklist {

using ckpt::GatherTo;
using ckpt::StateDict;
using train::OptimizerKeys;

// Adam is AdamW without decay.
inline train::AdamWOptions adamw(double lr) { return {lr}; }
inline train::AdamWOptions adam(double lr) { return {lr, 0.9, 0.999, 1e-8, 0.0}; }

struct ShardedRun {
  ModulePtr model;
  UnitPtr root;
  std::shared_ptr<train::Optimizer> optimizer;  // null: the model alone is saved and loaded

  train::TrainingObjects objects() const {
    train::TrainingObjects objects;
    objects.root = root.get();
    objects.optimizer = optimizer.get();
    objects.rng = false;
    return objects;
  }

  void step(const at::Tensor& input) const {
    (*model)(input).sum().backward();
    optimizer->step();
    optimizer->zero_grad();
  }
};

// The model as one group.
inline ShardedRun make_run(ModulePtr model, const MeshPtr& mesh, const Policy& policy,
                           const train::AdamWOptions& options) {
  ShardedRun run{std::move(model), nullptr, nullptr};
  run.root = fsdp::fully_shard(run.model, mesh, policy);
  run.optimizer = train::make_adamw(run.root, options);
  return run;
}

inline StateDict full_state(const ShardedRun& run, GatherTo to = GatherTo::kEveryRank,
                            OptimizerKeys keys = OptimizerKeys::kByGroup) {
  return ckpt::gather_state(run.root->mesh().world(), train::state_to_save(run.objects(), keys),
                            to);
}

// From a full state that each rank has.
inline train::LoadReport load(const ShardedRun& run, const StateDict& full, bool partial = false) {
  return train::load_training_state(run.objects(), ckpt::MemorySource(full), partial);
}

// Undefined if there is none of the name.
inline at::Tensor find_tensor(const StateDict& state, const std::string& name) {
  const auto found =
      std::find_if(state.tensors.begin(), state.tensors.end(),
                   [&](const ckpt::StateTensor& tensor) { return tensor.name == name; });
  return found == state.tensors.end() ? at::Tensor() : found->local;
}

inline void remove_tensor(StateDict* state, const std::string& name) {
  auto& tensors = state->tensors;
  const auto end =
      std::remove_if(tensors.begin(), tensors.end(),
                     [&](const ckpt::StateTensor& tensor) { return tensor.name == name; });
  EXPECT_NE(end, tensors.end()) << name;
  tensors.erase(end, tensors.end());
}

// A copy that later steps leave alone.
inline StateDict copy_of(StateDict state) {
  for (ckpt::StateTensor& tensor : state.tensors) {
    tensor.local = tensor.local.clone();
  }
  return state;
}

// The same names in the same order with the same values, bit by bit.
inline void expect_same_state(const StateDict& actual, const StateDict& expected) {
  ASSERT_EQ(actual.tensors.size(), expected.tensors.size());
  for (size_t i = 0; i < expected.tensors.size(); ++i) {
    EXPECT_EQ(actual.tensors[i].name, expected.tensors[i].name);
    EXPECT_EQ(actual.tensors[i].path, expected.tensors[i].path);
    EXPECT_EQ(actual.tensors[i].offsets, expected.tensors[i].offsets);
    EXPECT_EQ(actual.tensors[i].local.scalar_type(), expected.tensors[i].local.scalar_type());
    EXPECT_TRUE(actual.tensors[i].local.equal(expected.tensors[i].local))
        << expected.tensors[i].name;
  }
  ASSERT_EQ(actual.objects.size(), expected.objects.size());
  for (size_t i = 0; i < expected.objects.size(); ++i) {
    EXPECT_EQ(actual.objects[i].name, expected.objects[i].name);
    EXPECT_EQ(actual.objects[i].value, expected.objects[i].value) << expected.objects[i].name;
  }
}

}  // namespace fsdp2::checklist
