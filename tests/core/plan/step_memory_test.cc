// A step that is taken without values asks for the memory that a step with values asks for.
#include "core/plan/step_memory.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <regex>
#include <sstream>
#include <string>

#include "core/base/error.h"
#include "core/comm/mesh.h"
#include "core/comm/world.h"
#include "core/fsdp/fully_shard.h"
#include "core/fsdp/held_bytes.h"
#include "core/fsdp/held_reductions.h"
#include "core/fsdp/parameter_values.h"
#include "core/fsdp/tree.h"
#include "core/fsdp/wrap.h"
#include "core/models/registry.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/kernels/widened_product.h"
#include "core/nn/loss_chunk.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/nn/seeded_init.h"
#include "core/nn/token_loss.h"
#include "core/plan/meta_bytes.h"
#include "tests/core/nn/live_bytes.h"

namespace fsdp2::plan {
namespace {

struct Case {
  std::string name;
  std::string model = "tiny-llama";
  int ranks = 4;
  fsdp::Policy policy = {};
  void (*prepare)(nn::Module& model) = nullptr;
  int micro_batches = 1;
  bool has_dropout = false;
  at::Tensor seen = {};  // the mask
  int images = 0;        // one in each of the first rows
  fsdp::StepShape shape = {};
  bool widens = false;  // products and attention in bf16, through fp32
};

std::ostream& operator<<(std::ostream& out, const Case& test) { return out << test.name; }

// Its own config.json, where the others' are files.
constexpr char kEncoder[] = R"({"model_type": "encoder", "vocab_size": 384, "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
    "mask_token_id": 1, "dropout": 0.0})";

// Wide enough for products that are widened.
constexpr char kWide[] = R"({"model_type": "llama", "vocab_size": 384, "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": false})";

// All probabilities of dropout in the models are 0.0 otherwise.
std::string config_of(const Case& test) {
  std::string text = test.model;
  if (text.front() != '{') {
    const bool sees = text.find("-vl") != std::string::npos;
    const std::string folder =
        sees ? "tests/parity/vision_language/" : "tests/parity/golden/models/";
    std::ostringstream read;
    read << std::ifstream(folder + test.model + "/config.json").rdbuf();
    text = read.str();
  }
  if (test.has_dropout) {
    text = std::regex_replace(text, std::regex("(dropout|pdrop)(.: 0).0"), "$1$2.1");
  }
  return text;
}

std::shared_ptr<World> fake_world(int size) {
  WorldOptions options;
  options.backend = BackendKind::kFake;
  options.world_size = size;
  return World::join(options);
}

std::shared_ptr<fsdp::Unit> shard(const std::shared_ptr<nn::Module>& model, const Case& test,
                                  const std::string& device) {
  const auto mesh = Mesh::create(fake_world(test.ranks), {-1}, {"fsdp"}, device);
  return fsdp::fully_shard_by_kind(model, mesh, test.policy, model->no_split_kinds());
}

std::shared_ptr<nn::Module> model_of(const Case& test) {
  const auto model = models::build(config_of(test));
  if (test.prepare != nullptr) {
    test.prepare(*model);
  }
  return model;
}

nn::Values batch() {
  const at::Tensor tokens = at::zeros({4, 32}, at::kLong);
  return {tokens, tokens};
}

// Images of 8 x 8 patches, which merge into 16 tokens each.
void add_images(int images, nn::Values& values) {
  constexpr int64_t kImageToken = 8;
  constexpr int64_t kPatches = 64;
  constexpr int64_t kNumel = 3 * 2 * 4 * 4;  // of a patch
  const at::Tensor tokens = values[0].toTensor();
  tokens.narrow(0, 0, images).narrow(1, 2, kPatches / 4).fill_(kImageToken);
  values.resize(4);
  values.emplace_back(at::zeros({images * kPatches, kNumel}));
  values.emplace_back(at::tensor({1, 8, 8}, at::kLong).repeat({images, 1}));
}

nn::Values batch(const Case& test) {
  nn::Values values = batch();
  if (test.images > 0) {
    add_images(test.images, values);
  }
  if (test.seen.defined()) {
    values.insert(values.end(), {c10::IValue(), test.seen});
  }
  return values;
}

// Gradients go once they are reduced, as an update takes them, where the shape says so.
std::function<void(const fsdp::ParamGroup& group)> taker_of(const fsdp::StepShape& shape) {
  if (!shape.update_in_backward) {
    return {};
  }
  return [](const fsdp::ParamGroup& group) {
    for (const fsdp::ShardedParam* param : group.trainable()) {
      param->sharded().mutable_grad() = at::Tensor();
    }
  };
}

// The most that is live at a time in a step on the host, by this process's only rank. oneDNN's
// scratch memory, which is none of the tensors', would count as well; LibTorch multiplies bf16 by
// it on CPUs that have bf16 products.
int64_t measured(const Case& test) {
  live_bytes();  // counts from here on
  nn::set_product_engine(nn::ProductEngine::kMkl);
  at::globalContext().setUserEnabledMkldnn(false);
  const auto model = model_of(test);
  const auto root = shard(model, test, "cpu");
  nn::SeededInit values(1);
  fsdp::load_parameters(*root, values);
  const nn::Values inputs = batch(test);
  int64_t most = 0;
  for (int step = 0; step < 2; ++step) {  // in the second one everything is in its place
    root->zero_grad();
    const int64_t before = live_bytes();
    const int64_t held =
        static_cast<int64_t>(fsdp::held_bytes(*model)) + root->scheduler().buffers().kept_bytes();
    const PeakBytes peak;
    const nn::LossChunk chunk(*model, test.shape.loss_chunk);
    fsdp::HeldReductions reductions(*root, test.shape.reduced_last);
    root->scheduler().set_on_reduced({});
    for (int micro = 0; micro < test.micro_batches; ++micro) {
      if (micro + 1 == test.micro_batches) {
        reductions.release();
        root->scheduler().set_on_reduced(taker_of(test.shape));
      }
      (*model)(inputs).toTensor().backward();
    }
    most = held + peak.get() - before;
  }
  return most;
}

class StepMemoryOf : public testing::TestWithParam<Case> {};

TEST_P(StepMemoryOf, IsWhatAStepOnTheHostTakes) {
  const Case& test = GetParam();
  nn::set_bf16_products(test.widens ? nn::Bf16Products::kWidened : nn::Bf16Products::kNative);
  const auto model = model_of(test);
  const auto root = shard(model, test, "meta");
  root->tree().set_step_shape(test.shape);
  const StepMemory planned = rehearse_step(*root, batch(test), test.micro_batches);
  const int64_t real = measured(test);
  RecordProperty("planned_over_measured",
                 std::to_string(static_cast<double>(planned.total()) / static_cast<double>(real)));
  EXPECT_NEAR(static_cast<double>(planned.total()), static_cast<double>(real),
              0.05 * static_cast<double>(real));
  EXPECT_GT(planned.model, 0);
  EXPECT_GT(planned.activations, 0);
  const StepMemory again = rehearse_step(*root, batch(test), test.micro_batches);
  EXPECT_EQ(again.model, planned.model);
  EXPECT_EQ(again.activations, planned.activations);
}

fsdp::Policy policy_with(fsdp::ReshardAfterForward reshard, int prefetch = 1) {
  fsdp::Policy policy;
  policy.reshard_after_forward = reshard;
  policy.prefetch = prefetch;
  return policy;
}

fsdp::Policy mixed() {
  fsdp::Policy policy;
  policy.mixed_precision.param_dtype = at::kBFloat16;
  policy.mixed_precision.reduce_dtype = at::kFloat;
  return policy;
}

fsdp::Policy keeping(fsdp::Policy policy) {
  policy.keep_buffers = true;
  return policy;
}

void checkpoint_layers(nn::Module& model) { nn::checkpoint_by_kind(model, model.no_split_kinds()); }

void in_small_chunks(nn::Module& model) { nn::token_loss(model, "a test").set_loss_chunk(8); }

void freeze_mlps(nn::Module& model) {
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(model)) {
    parameter.tensor.set_requires_grad(parameter.names.front().find("mlp") == std::string::npos);
  }
}

Case with_dropout(Case test) {
  test.has_dropout = true;
  return test;
}

Case seeing(const at::Tensor& seen, Case test) {
  test.seen = seen;
  return test;
}

Case with_images(int images, Case test) {
  test.images = images;
  return test;
}

Case widened(Case test) {
  test.widens = true;
  return test;
}

Case shaped(const fsdp::StepShape& shape, Case test) {
  test.shape = shape;
  return test;
}

constexpr fsdp::StepShape kReducesLast = {fsdp::ReducedLast::kAll};
constexpr fsdp::StepShape kTablesLast = {fsdp::ReducedLast::kVocabulary};
constexpr fsdp::StepShape kSmallChunks = {fsdp::ReducedLast::kNone, /*loss_chunk=*/8};
constexpr fsdp::StepShape kUpdates = {fsdp::ReducedLast::kNone, 0, /*update_in_backward=*/true};
constexpr fsdp::StepShape kUpdatesLast = {fsdp::ReducedLast::kAll, 0, /*update_in_backward=*/true};

using Reshard = fsdp::ReshardAfterForward;
INSTANTIATE_TEST_SUITE_P(
    Cases, StepMemoryOf,
    testing::Values(
        Case{"Default"}, Case{"OneRank", "tiny-llama", 1},
        Case{"OneRankMixed", "tiny-llama", 1, mixed()}, Case{"Tied", "tiny-llama-gqa-tied"},
        Case{"Gpt2", "tiny-gpt2"}, Case{"Encoder", kEncoder},
        with_dropout({"EncoderDropout", kEncoder}),
        seeing(at::ones({4, 32}, at::kLong), {"EncoderMask", kEncoder}),
        Case{"Qwen3", "tiny-qwen3"}, Case{"MixtureOfExperts", "tiny-qwen3-moe"},
        Case{"Gemma", "tiny-gemma"}, Case{"GemmaMixed", "tiny-gemma", 4, mixed()},
        Case{"Gemma2", "tiny-gemma2"}, Case{"Gemma3", "tiny-gemma3"}, Case{"Phi3", "tiny-phi3"},
        Case{"Phi3Mixed", "tiny-phi3", 2, mixed()}, Case{"Mixed", "tiny-llama", 4, mixed()},
        Case{"NoPrefetch", "tiny-llama", 4, policy_with(Reshard::kAuto, 0)},
        Case{"ReshardNever", "tiny-llama", 4, policy_with(Reshard::kNever)},
        Case{"Kept", "tiny-llama", 4, keeping({})},
        Case{"KeptMixed", "tiny-llama", 4, keeping(mixed()), nullptr, 2},
        Case{"Checkpointed", "tiny-llama", 4, {}, checkpoint_layers},
        Case{"CheckpointedMixed", "tiny-llama", 2, mixed(), checkpoint_layers},
        Case{"LossInChunks", "tiny-llama", 4, {}, in_small_chunks},
        Case{"Frozen", "tiny-llama", 4, {}, freeze_mlps},
        Case{"MicroBatches", "tiny-llama", 4, {}, nullptr, 3},
        shaped(kReducesLast, {"TwoReduceLast", "tiny-llama", 4, {}, nullptr, 2}),
        shaped(kReducesLast, {"ThreeReduceLast", "tiny-llama", 4, {}, nullptr, 3}),
        shaped(kReducesLast, {"FourReduceLast", "tiny-llama", 4, mixed(), nullptr, 4}),
        shaped(kTablesLast, {"TwoReduceTablesLast", "tiny-llama", 4, {}, nullptr, 2}),
        shaped(kTablesLast, {"FourReduceTablesLast", "tiny-gpt2", 4, mixed(), nullptr, 4}),
        shaped(kUpdates, {"Updates"}), shaped(kUpdates, {"UpdatesOneRank", "tiny-llama", 1}),
        shaped(kUpdates, {"UpdatesMixed", "tiny-llama", 2, mixed()}),
        shaped(kUpdates, {"UpdatesThree", "tiny-llama", 4, {}, nullptr, 3}),
        shaped(kUpdatesLast, {"UpdatesReduceLast", "tiny-llama", 1, {}, nullptr, 3}),
        shaped(kSmallChunks, {"ChunksOfTheStep"}), with_dropout({"Dropout"}),
        with_dropout({"Gpt2Dropout", "tiny-gpt2"}), seeing(at::ones({4, 32}, at::kLong), {"Mask"}),
        with_dropout(seeing(at::ones({4, 32}, at::kLong), {"MaskAndDropout"})),
        seeing(at::tensor({0, 20, 32, 64, 96, 128}, at::kLong), {"Packed"}),
        Case{"Qwen25VlText", "tiny-qwen2.5-vl"}, Case{"Qwen3VlText", "tiny-qwen3-vl"},
        with_images(4, {"Qwen25Vl", "tiny-qwen2.5-vl"}),
        with_images(4, {"Qwen3Vl", "tiny-qwen3-vl"}),
        with_images(3, {"Qwen25VlMixed", "tiny-qwen2.5-vl", 2, mixed()}),
        with_images(3, {"Qwen3VlMixed", "tiny-qwen3-vl", 2, mixed()}),
        widened({"Widened", kWide, 1, mixed()}),
        widened({"WidenedCheckpointed", kWide, 2, mixed(), checkpoint_layers}),
        with_images(2, {"Qwen25VlCheckpointed", "tiny-qwen2.5-vl", 4, {}, checkpoint_layers}),
        with_images(2, {"Qwen3VlCheckpointed", "tiny-qwen3-vl", 4, {}, checkpoint_layers})),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// The first test, as a process has one first plan.
TEST(StepMemory, TheFirstPlanOfAProcessIsAsTheNext) {
  const Case test{"Default"};
  const auto plan = [&] { return rehearse_step(*shard(model_of(test), test, "meta"), batch(), 1); };
  const StepMemory first = plan();
  const StepMemory next = plan();
  EXPECT_EQ(first.model, next.model);
  EXPECT_EQ(first.activations, next.activations);
}

TEST(StepMemory, AModelWithoutALossIsRefusedAndStaysUsable) {
  const Case test{"Default"};
  const auto model = model_of(test);
  const auto root = shard(model, test, "meta");
  try {
    rehearse_step(*root, {batch()[0]}, 1);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find("whose output is its loss"), std::string::npos);
  }
  EXPECT_GT(rehearse_step(*root, batch(), 1).total(), 0);
}

// Where a position does not go on by one, a sequence begins.
TEST(StepMemory, PositionsWithoutValuesAreRefused) {
  const Case test{"Default"};
  const auto model = model_of(test);
  const auto root = shard(model, test, "meta");
  nn::Values inputs = batch();
  inputs.push_back(inputs[0]);
  try {
    rehearse_step(*root, inputs, 1);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_NE(error.message().find("forward looks at values"), std::string::npos);
  }
}

TEST(StepMemory, ParametersWithoutValuesCannotBeRead) {
  const Case test{"Default"};
  const auto model = model_of(test);
  const auto root = shard(model, test, "meta");
  rehearse_step(*root, batch(), 1);
  nn::SeededInit values(1);
  EXPECT_THROW(fsdp::load_parameters(*root, values), Error);
  EXPECT_THROW((*model)(batch()), Error);
  EXPECT_THROW(root->parameters().front()->sharded(), Error);
}

TEST(MetaBytes, CountsWhatComesAndGoesOnItsThread) {
  const at::Tensor before = at::empty({100}, at::kMeta);
  MetaBytes bytes;
  int looks = 0;
  int64_t seen = 0;
  bytes.look_at(600, [&] {
    ++looks;
    seen = bytes.live();
  });
  at::Tensor first = at::empty({100}, at::kMeta);
  {
    const at::Tensor second = first.to(at::kHalf);
    EXPECT_EQ(bytes.live(), 600);
  }
  EXPECT_EQ(bytes.live(), 400);
  EXPECT_EQ(bytes.peak(), 600);
  EXPECT_EQ(looks, 1);
  EXPECT_EQ(seen, 600);
}

TEST(MetaBytes, OutlivesNoCount) {
  at::Tensor kept;
  {
    const MetaBytes bytes;
    kept = at::empty({100}, at::kMeta);
    EXPECT_THROW(MetaBytes(), Error);
  }
  kept = at::Tensor();  // what counted it has ended
  const MetaBytes bytes;
  EXPECT_EQ(bytes.live(), 0);
}

}  // namespace
}  // namespace fsdp2::plan
