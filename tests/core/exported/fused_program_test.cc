// Programs whose nodes our own operators run for compute what their nodes do.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/exported/exported_program.h"
#include "core/exported/fusions/half_angles.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/kernels/matmul_precision.h"
#include "core/nn/module.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/exported/fusion_fixture.h"
#include "tests/core/exported/program_fixture.h"

namespace fsdp2::exported {
namespace {

// How often each operator runs on this thread while it is there.
class OperatorCount {
 public:
  OperatorCount()
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&begin))), counts_() {
    current = &counts_;
  }
  ~OperatorCount() {
    at::removeCallback(handle_);
    current = nullptr;
  }
  OperatorCount(const OperatorCount&) = delete;
  OperatorCount& operator=(const OperatorCount&) = delete;

  int of(const std::string& name) const {
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }

 private:
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    ++(*current)[function.name()];
    return nullptr;
  }

  static thread_local std::map<std::string, int>* current;
  const at::CallbackHandle handle_;
  std::map<std::string, int> counts_;
};

thread_local std::map<std::string, int>* OperatorCount::current = nullptr;

class PrecisionScope {
 public:
  explicit PrecisionScope(nn::MatmulPrecision precision) : before_(nn::matmul_precision()) {
    nn::set_matmul_precision(precision);
  }
  ~PrecisionScope() { nn::set_matmul_precision(before_); }
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  const nn::MatmulPrecision before_;
};

class AutocastScope {
 public:
  AutocastScope() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~AutocastScope() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;
};

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::device(at::kCPU)); }

struct Outcome {
  at::Tensor loss;
  std::vector<std::pair<std::string, at::Tensor>> gradients;
};

Outcome outcome_of(nn::Module& module, const nn::Values& inputs) {
  Outcome outcome;
  outcome.loss = module(inputs).toTensor();
  outcome.loss.backward();
  for (const auto& parameter : module.named_parameters()) {
    outcome.gradients.emplace_back(parameter.key(), parameter.value().grad());
  }
  for (const c10::IValue& input : inputs) {
    outcome.gradients.emplace_back("input", input.toTensor().grad());
  }
  return outcome;
}

void expect_near(const Outcome& found, const Outcome& expected, double tolerance = 1e-5) {
  EXPECT_TRUE(at::allclose(found.loss, expected.loss, tolerance, 0.1 * tolerance));
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    const auto& [name, gradient] = found.gradients[i];
    const at::Tensor& other = expected.gradients[i].second;
    ASSERT_EQ(gradient.defined(), other.defined()) << name;
    EXPECT_TRUE(!gradient.defined() || at::allclose(gradient, other, 10 * tolerance, tolerance))
        << name;
  }
}

ExportedModel materialized(const std::string& path, const LoadOptions& options) {
  ExportedModel model = load_exported(path, options);
  nn::materialize(*model.module, *model.values);
  return model;
}

TEST(FusedPrograms, EqualTheirNodes) {
  const std::vector<std::string> all = {"aten::rsqrt", "aten::silu", "aten::neg"};
  for (const auto& [name, replaced_operators] :
       {std::pair("llama", all), std::pair("qwen3", all), std::pair("qwen3_moe", all),
        std::pair("t5", std::vector<std::string>{"aten::rsqrt"})}) {
    const std::string path = std::string("tests/parity/exported/") + name + ".pt2";
    const ExportedModel fused = materialized(path, {});
    const ExportedModel plain = materialized(path, {std::nullopt, /*fuses=*/false});
    const at::Tensor words =
        at::arange(3 * 8, at::device(at::kCPU).dtype(at::kLong)).remainder(23).view({3, 8});
    const nn::Values inputs = {words, words.clone()};
    expect_near(outcome_of(*fused.module, inputs), outcome_of(*plain.module, inputs));
    const OperatorCount count;
    (*fused.module)(inputs);
    for (const std::string& replaced : replaced_operators) {
      EXPECT_EQ(count.of(replaced), 0) << name << ": " << replaced;
    }
    (*plain.module)(inputs);
    EXPECT_GT(count.of("aten::rsqrt"), 0) << name;
  }
}

class FusedProgram : public FileTest {
 protected:
  ExportedModel load(const Nodes& nodes, bool fuses, int dims = 4, int dtype = kFloat) const {
    ProgramFile file;
    file.program = program_of(nodes, dims, dtype);
    file.weights["config"]["part.w"]["tensor_meta"]["dtype"] = dtype;
    if (dtype == kDouble) {
      file.weight_bytes =
          ckpt::number_bytes(0x4000000000000000, 8) + ckpt::number_bytes(0x4008000000000000, 8);
    } else if (dtype == kBFloat16) {
      file.weight_bytes = ckpt::number_bytes(0x4000, 2) + ckpt::number_bytes(0x4040, 2);
    }
    return materialized(write("m.pt2", file.bytes()), {std::nullopt, fuses});
  }

  // Runs the nodes with and without fusions; how often the operator ran with them.
  int runs_of(const std::string& operator_name, const Nodes& nodes, const nn::Values& inputs,
              int dtype = kFloat) const {
    const int dims = static_cast<int>(inputs[0].toTensor().dim());
    const auto leaves = [&] {
      nn::Values fresh;
      for (const c10::IValue& input : inputs) {
        fresh.emplace_back(
            input.toTensor().detach().clone().set_requires_grad(input.toTensor().requires_grad()));
      }
      return fresh;
    };
    const ExportedModel fused = load(nodes, true, dims, dtype);
    const ExportedModel plain = load(nodes, false, dims, dtype);
    const auto count = std::make_unique<OperatorCount>();
    const Outcome found = outcome_of(*fused.module, leaves());
    const int runs = count->of(operator_name);
    expect_near(found, outcome_of(*plain.module, leaves()), dtype == kBFloat16 ? 5e-3 : 1e-5);
    return runs;
  }
};

TEST_F(FusedProgram, NormsRunAsOurOwnInTheDtypeOfTheirLoopsAlone) {
  const auto inputs = [](at::ScalarType dtype, int64_t width) {
    return nn::Values{random({3, 5, 2, width}).to(dtype).set_requires_grad(true),
                      random({1, 1, 1, 1}).to(dtype)};
  };
  EXPECT_EQ(runs_of("aten::rsqrt", norm_nodes(), inputs(at::kFloat, 2)), 0);
  Nodes narrow = norm_nodes();
  find(narrow, "narrow") = cast("narrow", "scaled", kBFloat16);
  EXPECT_EQ(runs_of("aten::rsqrt", narrow, inputs(at::kBFloat16, 2), kBFloat16), 0);
  // Rows of one number, where the weights have two.
  EXPECT_EQ(runs_of("aten::rsqrt", norm_nodes(), inputs(at::kFloat, 1)), 1);
  Nodes nodes = norm_nodes();
  nodes.erase(nodes.begin());
  for (json& each : nodes) {
    for (json& input : each["inputs"]) {
      input["arg"] =
          input["arg"] == json::parse(tensor("wide")) ? json::parse(tensor("x")) : input["arg"];
    }
  }
  find(nodes, "narrow") = cast("narrow", "scaled", kDouble);
  EXPECT_EQ(runs_of("aten::rsqrt", nodes, inputs(at::kDouble, 2), kDouble), 1);
}

TEST_F(FusedProgram, GatesRunAsOurOwnUnlessSizesAreBroadcast) {
  const auto leaf = [](at::IntArrayRef sizes) { return random(sizes).set_requires_grad(true); };
  EXPECT_EQ(runs_of("aten::silu", gate_nodes(), {leaf({3, 5, 2, 4}), leaf({3, 5, 2, 4})}), 0);
  EXPECT_EQ(runs_of("aten::silu", gate_nodes(), {leaf({3, 5, 2, 4}), leaf({1, 5, 2, 4})}), 1);
  EXPECT_EQ(runs_of("aten::silu", gate_nodes(), {leaf({3, 0, 2, 4}), leaf({3, 0, 2, 4})}), 1);
}

// x [B,H,S,E], as it lies in memory [B,S,H,E].
TEST_F(FusedProgram, RotationsRunAsOurOwnForAnglesOfAllRowsOrOfEach) {
  const at::Tensor x = random({2, 5, 3, 4}).transpose(1, 2).set_requires_grad(true);
  const auto cats = [&](const at::Tensor& given, const at::Tensor& angles) {
    return runs_of("aten::cat", rotary_nodes(), {given, angles});  // one is the angles'
  };
  EXPECT_EQ(cats(x, random({1, 1, 5, 2})), 1);
  EXPECT_EQ(cats(x, random({2, 1, 5, 2})), 1);
  EXPECT_EQ(cats(x, random({2, 3, 5, 2})), 2);
  EXPECT_EQ(cats(x, random({1, 1, 5, 2}).set_requires_grad(true)), 2);
  EXPECT_EQ(cats(random({2, 3, 5, 4}).set_requires_grad(true), random({1, 1, 5, 2})), 2);
}

// Each keeps its angles for backward: layers whose views are of one table share them.
TEST_F(FusedProgram, RotationsOfOneTableKeepOneHalfOfIt) {
  HalfAngles halves;
  const at::Tensor table = random({2, 5, 4});
  const at::Tensor half = halves.of(table.unsqueeze(1));
  EXPECT_TRUE(half.equal(table.narrow(-1, 0, 2)));
  EXPECT_TRUE(halves.of(table.unsqueeze(1)).is_same(half));
  EXPECT_TRUE(halves.of(table.narrow(0, 0, 1).unsqueeze(1)).equal(half[0]));  // other sizes
  table.mul_(2);
  EXPECT_TRUE(halves.of(table.unsqueeze(1)).equal(2 * half));
  const c10::InferenceMode inference;
  const at::Tensor unversioned = random({1, 5, 4});
  EXPECT_TRUE(halves.of(unversioned.unsqueeze(1)).equal(unversioned[0].narrow(-1, 0, 2)));
}

// The memory of tables that nobody keeps is that of others soon.
TEST_F(FusedProgram, HalvesOfATableThatIsGoneAreForgotten) {
  HalfAngles halves;
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 100; ++i) {
    const at::Tensor table = random({1, 1, 5, 4});
    const at::Tensor half = halves.of(table);
    ASSERT_TRUE(half.equal(table[0][0].narrow(-1, 0, 2))) << i;
    kept.push_back(i % 2 == 0 ? half : at::Tensor());
  }
}

TEST_F(FusedProgram, LinearLayersAreOurOwnToTheBit) {
  const PrecisionScope precision(nn::MatmulPrecision::kMediumAlways);
  const Nodes nodes = {
      node("y", "linear.default", {{"input", tensor("x")}, {"weight", tensor("z")}})};
  const at::Tensor x = random({160, 128});
  const at::Tensor weight = random({192, 128});
  const auto leaves = [&] {
    return nn::Values{x.clone().set_requires_grad(true), weight.clone().set_requires_grad(true)};
  };
  const Outcome fused = outcome_of(*load(nodes, true, 2).module, leaves());
  const Outcome plain = outcome_of(*load(nodes, false, 2).module, leaves());
  const nn::Values own = leaves();
  const at::Tensor loss = nn::linear_product(own[0].toTensor(), own[1].toTensor()).sum();
  loss.backward();
  EXPECT_TRUE(fused.loss.equal(loss));
  EXPECT_FALSE(plain.loss.equal(loss));
  for (size_t i = 0; i < own.size(); ++i) {
    EXPECT_TRUE(fused.gradients.end()[static_cast<ptrdiff_t>(i) - 2].second.equal(
        own[i].toTensor().grad()));
  }
}

TEST_F(FusedProgram, LinearLayersUnderAutocastAreThoseOfTheNodes) {
  const Nodes nodes = {
      node("y", "linear.default", {{"input", tensor("x")}, {"weight", tensor("z")}})};
  const nn::Values inputs = {random({3, 4}), random({2, 4})};
  const ExportedModel fused = load(nodes, true, 2);
  const ExportedModel plain = load(nodes, false, 2);
  const c10::AutoGradMode no_grad(false);
  const AutocastScope autocast;
  const at::Tensor found = (*fused.module)(inputs).toTensor();
  EXPECT_EQ(found.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(found.equal((*plain.module)(inputs).toTensor()));
}

class CallCount final : public nn::ForwardHooks {
 public:
  void pre_forward(nn::Module& /*module*/, nn::Values& /*inputs*/) override { ++calls; }
  void post_forward(nn::Module& /*module*/, c10::IValue& /*output*/) override {}
  void forward_failed(nn::Module& /*module*/) noexcept override {}

  int calls = 0;
};

TEST_F(FusedProgram, ModulesInAFusionRunIfTheyHaveHooks) {
  const ExportedModel fused = load(gate_nodes(), true);
  const auto inside =
      std::dynamic_pointer_cast<nn::Module>(fused.module->named_modules()["part.inside"]);
  const auto hooks = std::make_shared<CallCount>();
  inside->add_hooks(hooks);
  const nn::Values inputs = {random({3, 5, 2, 4}), random({3, 5, 2, 4})};
  const at::Tensor loss = (*fused.module)(inputs).toTensor();
  EXPECT_EQ(hooks->calls, 1);
  EXPECT_TRUE(loss.equal((*load(gate_nodes(), false).module)(inputs).toTensor()));
  inside->remove_hooks(hooks.get());
  (*fused.module)(inputs);
  EXPECT_EQ(hooks->calls, 1);
}

TEST_F(FusedProgram, SecondDerivativesAreThoseOfTheNodesAlone) {
  const auto second = [&](bool fuses) {
    const ExportedModel model = load(gate_nodes(), fuses);
    const at::Tensor x = random({1, 1, 1, 4}).set_requires_grad(true);
    const at::Tensor loss = (*model.module)(nn::Values{x, random({1, 1, 1, 4})}).toTensor();
    const at::Tensor first = torch::autograd::grad({loss}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.sum()}, {x})[0];
  };
  EXPECT_TRUE(second(false).defined());
  EXPECT_ERROR(second(true), Code::kUnsupported, "a gated MLP has no second derivatives");
}

}  // namespace
}  // namespace fsdp2::exported
