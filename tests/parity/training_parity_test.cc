// Training equals Python FSDP2's, step by step: the recorded runs of tests/parity/golden, with
// ranks as threads. bench/python/README.md says what a run is and where the tolerances come from.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "core/ckpt/hugging_face/hugging_face_directory.h"
#include "core/fsdp/fully_shard.h"
#include "core/models/language_model.h"
#include "core/models/registry.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/train/data/data_loader.h"
#include "core/train/data/token_file.h"
#include "core/train/optim/adamw.h"
#include "core/train/optim/grad_norm.h"
#include "core/train/optim/sgd.h"
#include "core/train/step/train_step.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using nlohmann::json;

const char kGolden[] = "tests/parity/golden/";

json read_json(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return json::parse(file);
}

json golden_of(const std::string& model) { return read_json(kGolden + model + ".json"); }

std::optional<at::ScalarType> dtype_of(const std::string& name) {
  return name == "bf16"   ? std::optional<at::ScalarType>(at::kBFloat16)
         : name == "fp32" ? std::optional<at::ScalarType>(at::kFloat)
                          : std::nullopt;
}

fsdp::ReshardAfterForward reshard_of(const std::string& text) {
  return text == "true"      ? fsdp::ReshardAfterForward::kAlways
         : text == "false"   ? fsdp::ReshardAfterForward::kNever
         : text == "default" ? fsdp::ReshardAfterForward::kAuto
                             : fsdp::ReshardAfterForward::kSmaller;
}

fsdp::Policy policy_of(const json& options) {
  fsdp::Policy policy;
  const std::string reshard = options.at("reshard_after_forward");
  policy.reshard_after_forward = reshard_of(reshard);
  if (policy.reshard_after_forward == fsdp::ReshardAfterForward::kSmaller) {
    policy.reshard_world = std::stoi(reshard);
  }
  policy.offload.to_cpu = options.at("cpu_offload");
  policy.offload.pin_memory = false;
  policy.mixed_precision.param_dtype = dtype_of(options.at("param_dtype"));
  policy.mixed_precision.reduce_dtype = dtype_of(options.at("reduce_dtype"));
  return policy;
}

std::unique_ptr<train::Optimizer> optimizer_of(const json& options,
                                               const std::shared_ptr<fsdp::Unit>& root) {
  if (options.at("optimizer") == "sgd") {
    return train::make_sgd(
        root, {options.at("lr"), options.at("momentum"), options.at("weight_decay"), false});
  }
  return train::make_adamw(root, {options.at("lr"), options.at("beta1"), options.at("beta2"),
                                  options.at("eps"), options.at("weight_decay")});
}

train::ScheduleShape schedule_of(const std::string& name) {
  return std::map<std::string, train::ScheduleShape>{{"constant", train::ScheduleShape::kConstant},
                                                     {"linear", train::ScheduleShape::kLinear},
                                                     {"cosine", train::ScheduleShape::kCosine}}
      .at(name);
}

train::StepOptions step_options_of(const json& options) {
  train::StepOptions step;
  step.accumulate = options.at("grad_accum");
  if (options.at("accum_sync") == "last") {
    step.reduced_last = fsdp::ReducedLast::kAll;
  }
  step.max_grad_norm = options.at("clip");
  step.schedule.shape = schedule_of(options.at("lr_schedule"));
  step.schedule.steps = options.at("steps");
  step.schedule.warmup_steps = options.at("warmup");
  step.schedule.min_ratio = options.at("min_lr_ratio");
  return step;
}

// One rank's part of a run. more_kinds: that are units besides the layers.
struct RankRun {
  RankRun(const std::shared_ptr<World>& world, const std::string& name, const json& options,
          const std::vector<std::string>& more_kinds = {})
      : directory(std::string(kGolden) + "models/" + name),
        model(models::build(directory.config_json())) {
    if (options.at("activation_checkpointing")) {
      nn::checkpoint_by_kind(*model, model->no_split_kinds());
    }
    const int64_t fsdp_size = options.at("fsdp_size");
    const auto mesh = Mesh::for_fsdp(world, fsdp_size);
    std::vector<std::string> kinds = model->no_split_kinds();
    kinds.insert(kinds.end(), more_kinds.begin(), more_kinds.end());
    root = fsdp::fully_shard_by_kind(model, mesh, policy_of(options), kinds);
    fsdp::load_parameters(*root, directory);
    train::DataLoaderOptions data;
    data.rank = world->rank();
    data.world_size = world->size();
    data.accumulation_steps = options.at("grad_accum");
    data.batch_size =
        train::micro_batch_size(options.at("global_batch"), world->size(), data.accumulation_steps);
    data.sequence_length = options.at("seq_len");
    loader = std::make_unique<train::DataLoader>(
        std::make_shared<train::TokenFile>(std::string(kGolden) + "tokens/" + name + ".bin",
                                           models::language_model(*model, "a test").vocab_size()),
        data);
    step = std::make_unique<train::TrainStep>(
        model, std::shared_ptr<train::Optimizer>(optimizer_of(options, root)),
        step_options_of(options));
  }

  train::StepResult next() {
    std::vector<std::vector<at::Tensor>> batch;
    for (int64_t micro = 0; micro < loader->options().accumulation_steps; ++micro) {
      const train::TokenBatch tokens = loader->next();
      batch.push_back({tokens.inputs, tokens.labels});
    }
    return step->run(batch);
  }

  int64_t local_parameters() const {
    int64_t numel = 0;
    for (const fsdp::ShardedParam* param : root->parameters()) {
      numel += param->sharded().numel();
    }
    return numel;
  }

  ckpt::HuggingFaceDirectory directory;
  std::shared_ptr<nn::Module> model;
  std::shared_ptr<fsdp::Unit> root;
  std::unique_ptr<train::DataLoader> loader;
  std::unique_ptr<train::TrainStep> step;
};

struct Series {
  std::vector<double> loss;
  std::vector<double> grad_norm;
  std::vector<double> lr;
};

Series run_series(const std::shared_ptr<World>& world, const std::string& model,
                  const json& options, const std::vector<std::string>& more_kinds = {}) {
  RankRun run(world, model, options, more_kinds);
  Series series;
  for (int step = 0; step < options.at("steps").get<int>(); ++step) {
    const train::StepResult result = run.next();
    series.loss.push_back(result.loss);
    series.grad_norm.push_back(result.grad_norm);
    series.lr.push_back(result.lr);
  }
  return series;
}

double largest_relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) {
    return INFINITY;
  }
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::max(std::abs(b[i]), 1e-12));
  }
  return largest;
}

// Biases of queries and keys hardly move the loss (a key's is the same for all its queries but for
// the rotation): Adam scales the rounding of their small gradients up to whole updates.
double final_norm_tolerance(const std::string& name) {
  const bool rounding = name.find("q_proj.bias") != std::string::npos ||
                        name.find("k_proj.bias") != std::string::npos;
  // Without a rotation the gradient of a key's bias is nothing but rounding.
  const bool fused = name.find("c_attn.bias") != std::string::npos;
  return fused ? 2e-3 : rounding ? 5e-4 : 5e-6;
}

using Case = std::tuple<std::string, int>;  // model, world size

// All recorded runs of so many ranks. How many there are.
int expect_pythons_runs(const std::string& model, int world_size) {
  const json golden = golden_of(model);
  int compared = 0;
  for (const json& run : golden.at("runs")) {
    if (run.at("world_size") != world_size) {
      continue;
    }
    const std::string name = run.at("name");
    const json& tolerance = golden.at("tolerances").at(name);
    run_ranks(world_size, [&](const std::shared_ptr<World>& world) {
      const Series series = run_series(world, model, run.at("options"));
      const double loss = largest_relative_difference(series.loss, run.at("loss"));
      // A norm accumulated in double is as good as PyTorch's.
      const double norm =
          std::min(largest_relative_difference(series.grad_norm, run.at("grad_norm")),
                   largest_relative_difference(series.grad_norm, run.at("grad_norm_fp64")));
      EXPECT_LE(loss, tolerance.at("loss").get<double>()) << name;
      EXPECT_LE(norm, tolerance.at("grad_norm").get<double>()) << name;
      EXPECT_LE(largest_relative_difference(series.lr, run.at("lr")), 1e-12) << name;
      if (world->rank() == 0) {
        printf("%-24s loss %.1e  gradient norm %.1e\n", name.c_str(), loss, norm);
      }
    });
    ++compared;
  }
  return compared;
}

class RecordedRuns : public ::testing::TestWithParam<Case> {};

TEST_P(RecordedRuns, LossesAndGradientNormsEqualPythons) {
  const auto& [model, world_size] = GetParam();
  EXPECT_GE(expect_pythons_runs(model, world_size), 8);
}

// Norms by parameter of the run "fp32": gradients of the first step, parameters after the last.
TEST_P(RecordedRuns, NormsOfEachParameterEqualPythons) {
  const auto& [model, world_size] = GetParam();
  const json golden = golden_of(model);
  const json& runs = golden.at("runs");
  const auto base = std::find_if(runs.begin(), runs.end(), [world = world_size](const json& run) {
    return run.at("name") == "fp32" && run.at("world_size") == world;
  });
  run_ranks(world_size, [&](const std::shared_ptr<World>& world) {
    RankRun run(world, model, base->at("options"));
    EXPECT_EQ(run.local_parameters(),
              base->at("local_parameters").at(static_cast<size_t>(world->rank())));
    const train::TokenBatch first = run.loader->next();
    (*run.model)(nn::Values{first.inputs, first.labels}).toTensor().backward();
    size_t checked = 0;
    for (const fsdp::ShardedParam* param : run.root->parameters()) {
      const double expected = golden.at("first_step_grad_norms").at(param->name());
      const double norm =
          fsdp::full_gradient(*run.root, *param).to(at::kDouble).norm().item<double>();
      EXPECT_NEAR(norm, expected, 2e-5 * expected) << param->name();
      ++checked;
    }
    EXPECT_EQ(checked, golden.at("first_step_grad_norms").size());
    run.root->zero_grad();
    run.loader->seek_step(0);
    for (int step = 0; step < base->at("options").at("steps").get<int>(); ++step) {
      run.next();
    }
    for (const fsdp::ShardedParam* param : run.root->parameters()) {
      const double expected = golden.at("final_param_norms").at(param->name());
      const double norm =
          fsdp::full_parameter(*run.root, *param).to(at::kDouble).norm().item<double>();
      EXPECT_NEAR(norm, expected, final_norm_tolerance(param->name()) * expected) << param->name();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Models, RecordedRuns,
    ::testing::Combine(::testing::Values("tiny-llama", "tiny-llama-gqa-tied", "tiny-qwen2",
                                         "tiny-qwen2.5", "tiny-qwen3", "tiny-qwen3-moe",
                                         "tiny-mixtral", "tiny-gemma", "tiny-gemma2", "tiny-gemma3",
                                         "tiny-phi3", "tiny-gpt2", "tiny-gpt2-untied"),
                       ::testing::Values(1, 2, 4)),
    [](const ::testing::TestParamInfo<Case>& info) {
      std::string name = std::get<0>(info.param) + "_x" + std::to_string(std::get<1>(info.param));
      std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
      return name;
    });

TEST(ThreeRanks, EqualPythonsRun) { EXPECT_EQ(expect_pythons_runs("tiny-llama", 3), 1); }

// Most recorded batches are of 8 windows, which do not divide by 3.
TEST(ThreeRanks, EqualOneRankOnTheSameGlobalBatch) {
  for (const std::string model : {"tiny-llama", "tiny-llama-gqa-tied", "tiny-qwen3"}) {
    json options = golden_of(model).at("runs").at(0).at("options");
    options["global_batch"] = 12;
    Series one;
    run_ranks(
        1, [&](const std::shared_ptr<World>& world) { one = run_series(world, model, options); });
    run_ranks(3, [&](const std::shared_ptr<World>& world) {
      const Series three = run_series(world, model, options);
      EXPECT_LE(largest_relative_difference(three.loss, one.loss), 5e-6) << model;
      EXPECT_LE(largest_relative_difference(three.grad_norm, one.grad_norm), 2e-5) << model;
    });
  }
}

// ---- experts as units of their own, for which not every rank has tokens in every step

constexpr const char* kMoe = "tiny-qwen3-moe";
constexpr const char* kExpert = "Qwen3MoeExpert";

TEST(ExpertsAsUnits, EqualPythonsRun) {
  const json golden = golden_of(kMoe);
  for (const json& run : golden.at("runs")) {
    if (run.at("world_size") == 2 && run.at("name") == "fp32") {
      run_ranks(2, [&](const std::shared_ptr<World>& world) {
        const Series series = run_series(world, kMoe, run.at("options"), {kExpert});
        const json& tolerance = golden.at("tolerances").at("fp32");
        EXPECT_LE(largest_relative_difference(series.loss, run.at("loss")),
                  tolerance.at("loss").get<double>());
        EXPECT_LE(largest_relative_difference(series.grad_norm, run.at("grad_norm_fp64")),
                  tolerance.at("grad_norm").get<double>());
      });
    }
  }
}

// Counts calls with tokens.
class CallCounter : public nn::ForwardHooks {
 public:
  void pre_forward(nn::Module& /*module*/, nn::Values& inputs) override {
    calls += inputs[0].toTensor().size(0) > 0 ? 1 : 0;
  }
  void post_forward(nn::Module& /*module*/, c10::IValue& /*output*/) override {}
  void forward_failed(nn::Module& /*module*/) noexcept override {}
  int calls = 0;
};

std::vector<std::shared_ptr<CallCounter>> count_calls_of_experts(const nn::Module& model) {
  std::vector<std::shared_ptr<CallCounter>> counters;
  for (const auto& entry : model.modules(/*include_self=*/false)) {
    auto* module = dynamic_cast<nn::Module*>(entry.get());
    if (module != nullptr && module->kind() == kExpert) {
      counters.push_back(std::make_shared<CallCounter>());
      module->add_hooks(counters.back());
    }
  }
  return counters;
}

// Two tokens a rank, of four experts in a layer at most.
nn::Values few_tokens(int step, int rank) {
  const at::Tensor tokens =
      at::tensor({7 * step + 3 * rank + 1, 5 * step + 11 * rank + 2}, at::kLong);
  return {tokens.view({1, 2}), tokens.flip(0).view({1, 2})};
}

TEST(ExpertsAsUnits, RanksThatUseDifferentOnesGetTheAverageOfAll) {
  const json options = golden_of(kMoe).at("runs").at(0).at("options");
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const RankRun run(world, kMoe, options, {kExpert});
    ckpt::HuggingFaceDirectory directory(std::string(kGolden) + "models/" + kMoe);
    const auto reference = models::build(directory.config_json());
    nn::materialize(*reference, directory);
    const auto counters = count_calls_of_experts(*reference);
    EXPECT_EQ(run.root->units().size(), 1 + counters.size() + 2);  // and two layers
    for (int step = 0; step < 5; ++step) {
      (*run.model)(few_tokens(step, world->rank())).toTensor().backward();
      std::vector<std::vector<int>> calls(2);
      for (int rank = 0; rank < 2; ++rank) {
        for (const auto& counter : counters) {
          counter->calls = 0;
        }
        ((*reference)(few_tokens(step, rank)).toTensor() / 2.0).backward();
        for (const auto& counter : counters) {
          calls[static_cast<size_t>(rank)].push_back(counter->calls);
        }
      }
      EXPECT_NE(calls[0], calls[1]) << "both ranks use the same experts: nothing is tested";
      for (const fsdp::ShardedParam* param : run.root->parameters()) {
        const at::Tensor expected = reference->named_parameters()[param->name()].grad();
        const at::Tensor gradient = fsdp::full_gradient(*run.root, *param);
        ASSERT_TRUE(gradient.defined() && expected.defined()) << param->name();
        EXPECT_TRUE(at::allclose(gradient, expected, 1e-4, 1e-6)) << param->name();
      }
      run.root->zero_grad();
      for (const at::Tensor& parameter : reference->parameters()) {
        const_cast<at::Tensor&>(parameter).mutable_grad() = at::Tensor();
      }
    }
  });
}

}  // namespace
}  // namespace fsdp2
