// Checklist, end-to-end training: TTN. A small decoder is trained by train::TrainStep on the same
// windows of tokens whatever the number of ranks.
#include <gtest/gtest.h>

#include <cmath>

#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/ranks/full_state_dict.h"
#include "core/ckpt/safetensors/safetensors_parameters.h"
#include "core/ckpt/state/state_source.h"
#include "core/models/configured_model.h"
#include "core/models/registry.h"
#include "core/nn/seeded_init.h"
#include "core/train/optim/adamw.h"
#include "core/train/step/train_step.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

constexpr int kSteps = 10;
constexpr int64_t kLength = 16;
constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
  "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 64, "max_position_embeddings": 32,
  "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
  "initializer_range": 0.05, "attention_bias": false, "mlp_bias": false})";

struct RunOptions {
  int ranks = 4;
  int64_t shards = 0;       // of a replica; 0: all ranks
  int64_t local_batch = 2;  // sequences of a micro batch
  int64_t accumulate = 1;
  bool mixed = true;  // parameters bf16, reduction fp32
  ReshardAfterForward reshard = ReshardAfterForward::kAuto;
};

// Window `number`: counts on from a start that depends on the number, so that there is a rule to
// learn.
at::Tensor window(int64_t number) {
  return (at::arange(kLength + 1, at::kLong) * (1 + number % 3) + 7 * number).remainder(64);
}

// The inputs and labels of one rank's micro batch. A step takes the same windows on any number of
// ranks.
std::vector<at::Tensor> micro_batch(const RunOptions& options, int rank, int step, int64_t micro) {
  const int64_t per_step = options.ranks * options.local_batch * options.accumulate;
  const int64_t first = step * per_step + (micro * options.ranks + rank) * options.local_batch;
  std::vector<at::Tensor> rows;
  for (int64_t i = 0; i < options.local_batch; ++i) {
    rows.push_back(window(first + i));
  }
  const at::Tensor tokens = at::stack(rows);
  return {tokens.narrow(1, 0, kLength).contiguous(), tokens.narrow(1, 1, kLength).contiguous()};
}

struct Decoder {
  std::shared_ptr<nn::Module> model = models::build(kConfig);
  UnitPtr root;

  Decoder(const WorldPtr& world, const RunOptions& options) {
    Policy policy;
    policy.reshard_after_forward = options.reshard;
    if (options.mixed) {
      policy.mixed_precision.param_dtype = at::kBFloat16;
      policy.mixed_precision.reduce_dtype = at::kFloat;
    }
    root = fsdp::fully_shard_by_kind(model, hybrid_mesh(world, options.shards), policy,
                                     model->no_split_kinds());
    nn::SeededInit init(17, models::configured_model(*model, "a test").initializer_range());
    load_parameters(*root, init);
  }

  // AdamW with warm-up, gradients clipped to 1. Returns the loss of each step.
  std::vector<double> train(const RunOptions& options, int rank) const {
    train::StepOptions step_options;
    step_options.accumulate = options.accumulate;
    step_options.max_grad_norm = 1.0;
    step_options.schedule.warmup_steps = 3;
    train::TrainStep step(model, train::make_adamw(root, {1e-2}), step_options);
    std::vector<double> losses;
    for (int i = 0; i < kSteps; ++i) {
      std::vector<std::vector<at::Tensor>> batch;
      for (int64_t micro = 0; micro < options.accumulate; ++micro) {
        batch.push_back(micro_batch(options, rank, i, micro));
      }
      losses.push_back(step.run(batch).loss);
    }
    return losses;
  }
};

struct Outcome {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;  // full, after the last step
};

Outcome train_decoder(const RunOptions& options) {
  Outcome outcome;
  run_ranks(options.ranks, [&](const WorldPtr& world) {
    const Decoder decoder(world, options);
    const std::vector<double> losses = decoder.train(options, world->rank());
    std::vector<at::Tensor> parameters;
    for (const fsdp::ShardedParam* param : decoder.root->parameters()) {
      parameters.push_back(full_parameter(*decoder.root, *param));
    }
    if (world->rank() == 0) {
      outcome = {losses, parameters};
    }
  });
  return outcome;
}

void expect_same_losses(const Outcome& actual, const Outcome& expected, double relative) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t i = 0; i < actual.losses.size(); ++i) {
    expect_close(actual.losses[i], expected.losses[i], {0.0, relative},
                 "loss of step " + std::to_string(i));
  }
}

void expect_same_parameters(const Outcome& actual, const Outcome& expected, Tolerance tolerance) {
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
  for (size_t i = 0; i < actual.parameters.size(); ++i) {
    expect_close(actual.parameters[i], expected.parameters[i], tolerance,
                 "parameter " + std::to_string(i));
  }
}

TEST(ChecklistTtn, TTN1_TheLossFallsAndTwoRunsAreIdentical) {
  const Outcome first = train_decoder({});
  for (const double loss : first.losses) {
    EXPECT_TRUE(std::isfinite(loss));
  }
  EXPECT_LT(first.losses.back(), 0.9 * first.losses.front());
  const Outcome second = train_decoder({});
  EXPECT_EQ(second.losses, first.losses);
  expect_same_parameters(second, first, kExact);
}

TEST(ChecklistTtn, TTN2_TheSavedModelServesOneProcess) {
  const std::string path = testing::TempDir() + "ttn2-model.safetensors";
  at::Tensor expected;
  run_ranks(2, [&](const WorldPtr& world) {
    RunOptions options;
    options.ranks = 2;
    const Decoder decoder(world, options);
    decoder.train(options, world->rank());
    ckpt::save_full_state_dict(*decoder.root, path, ckpt::CheckpointFormat::kSafetensors, {});
    // What one process without sharding computes from these values, in fp32.
    options.mixed = false;
    const Decoder in_fp32(world, options);
    ckpt::load_full_state_dict(*in_fp32.root, path);
    const at::NoGradGuard no_grad;
    const at::Tensor logits = (*in_fp32.model)(micro_batch(options, 0, 0, 0)[0]);
    if (world->rank() == 0) {
      expected = logits;
    }
  });
  ckpt::SafetensorsParameters source(path);
  const auto model = models::build(kConfig);
  nn::materialize(*model, source);
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*model)) {
    EXPECT_TRUE(source.contains(parameter.names[0])) << parameter.names[0];
    EXPECT_EQ(parameter.tensor.scalar_type(), at::kFloat);
  }
  const at::NoGradGuard no_grad;
  EXPECT_TRUE((*model)(micro_batch({}, 0, 0, 0)[0]).equal(expected));
}

TEST(ChecklistTtn, TTN3_AnExportInBf16IsTheRoundedModel) {
  const std::string path = testing::TempDir() + "ttn3-model.safetensors";
  std::vector<std::pair<std::string, at::Tensor>> live;
  run_ranks(2, [&](const WorldPtr& world) {
    RunOptions options;
    options.ranks = 2;
    const Decoder decoder(world, options);
    decoder.train(options, world->rank());
    std::vector<at::Tensor> before;
    for (const fsdp::ShardedParam* param : decoder.root->parameters()) {
      before.push_back(param->local_values().clone());
    }
    ckpt::save_full_state_dict(*decoder.root, path, ckpt::CheckpointFormat::kSafetensors, {},
                               at::kBFloat16);
    for (size_t i = 0; i < before.size(); ++i) {
      const fsdp::ShardedParam& param = *decoder.root->parameters()[i];
      EXPECT_EQ(param.dtype(), at::kFloat);
      EXPECT_TRUE(param.local_values().equal(before[i])) << param.name();
      const at::Tensor full = fsdp::full_parameter(*decoder.root, param);
      if (world->rank() == 0) {
        live.emplace_back(param.name(), full);
      }
    }
  });
  const auto source = ckpt::open_checkpoint(path);
  ASSERT_EQ(source->entries().size(), live.size());
  for (const auto& [name, full] : live) {
    const ckpt::StateEntry* entry = source->find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->dtype, at::kBFloat16) << name;
    const at::Tensor written = at::empty(entry->shape, at::kBFloat16);
    source->read(*entry, std::vector<int64_t>(entry->shape.size(), 0), written);
    EXPECT_TRUE(written.equal(full.to(at::kBFloat16))) << name;
  }
}

// TTN-4: every rank a replica of its own.
TEST(ChecklistTtn, TTN4_ReplicasWithoutShardsEqualTheAveragedReference) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto model = seed(make_stack3(8));
    const auto reference = seed(make_stack3(8));
    const MeshPtr mesh = Mesh::create(world, {4, 1}, {"ddp", "fsdp"});
    const UnitPtr root = shard_items_and_root(model, mesh, policy_unset());
    for (const fsdp::ShardedParam* param : root->parameters()) {
      EXPECT_EQ(param->layout().local_shape(), param->layout().global_shape);
    }
    expect_same_training({*root, *model, *reference, world->rank(), 4}, {},
                         [](nn::Module& module, int batch, int rank) {
                           return module(random_input({4, 8}, batch, rank)).sum();
                         });
    EXPECT_EQ(root->scheduler().stats().all_gathers, 0);
    EXPECT_EQ(root->scheduler().stats().reduce_scatters, 0);
    EXPECT_EQ(root->scheduler().stats().all_reduces, kSteps * 3);
  });
}

TEST(ChecklistTtn, TTN5_TwoReplicasOfTwoTrainAlike) {
  RunOptions hybrid;
  hybrid.shards = 2;
  expect_same_losses(train_decoder(hybrid), train_decoder({}), 1e-3);
}

TEST(ChecklistTtn, TTN6_ReshardingEverywhereChangesNoBit) {
  RunOptions unset;
  unset.ranks = 2;
  RunOptions always = unset;
  always.reshard = ReshardAfterForward::kAlways;
  EXPECT_EQ(train_decoder(always).losses, train_decoder(unset).losses);
}

TEST(ChecklistTtn, TTN7_AccumulationEqualsALargerBatch) {
  RunOptions large;
  large.ranks = 2;
  large.local_batch = 16;
  large.mixed = false;
  RunOptions accumulated = large;
  accumulated.local_batch = 8;
  accumulated.accumulate = 2;
  const Outcome by_parts = train_decoder(accumulated);
  const Outcome at_once = train_decoder(large);
  expect_same_losses(by_parts, at_once, 1e-4);
  expect_same_parameters(by_parts, at_once, {1e-4, 1e-4});
}

TEST(ChecklistTtn, TTN8_TheNumberOfRanksDoesNotShowInTheLosses) {
  for (const bool mixed : {true, false}) {
    RunOptions one;
    one.ranks = 1;
    one.local_batch = 8;
    one.mixed = mixed;
    const Outcome expected = train_decoder(one);
    for (const auto& [ranks, shards] :
         std::vector<std::pair<int, int64_t>>{{2, 0}, {4, 0}, {4, 2}}) {
      RunOptions options = one;
      options.ranks = ranks;
      options.shards = shards;
      options.local_batch = 8 / ranks;
      expect_same_losses(train_decoder(options), expected, mixed ? 1e-3 : 1e-4);
    }
  }
}

}  // namespace
}  // namespace fsdp2::checklist
