// The module tree of a TorchScript file.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/exported/exported_program.h"
#include "core/nn/buffers.h"
#include "core/nn/parameter_reads.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/exported/script_fixture.h"

namespace fsdp2::exported {
namespace {

using Names = std::vector<std::string>;

ExportedModel load_script_of(const std::string& name) {
  return load_exported("tests/parity/scripted/" + name + ".pt");
}

const nn::Module& module_at(const nn::Module& root, const std::string& path) {
  const auto modules = root.named_modules();
  return dynamic_cast<const nn::Module&>(*modules[path]);
}

Names names_of_buffers(const std::vector<nn::NamedBuffer>& buffers) {
  Names names;
  for (const nn::NamedBuffer& buffer : buffers) {
    names.push_back(buffer.name);
  }
  return names;
}

TEST(ScriptedModule, IsTheTreeThatTheModelWasInPython) {
  const ExportedModel model = load_script_of("words");
  EXPECT_EQ(model.module->kind(), "Words");
  EXPECT_EQ(module_at(*model.module, "blocks.1").kind(), "Block");
  EXPECT_EQ(module_at(*model.module, "blocks.2.up").kind(), "Linear");
  EXPECT_EQ(model.module->no_split_kinds(), Names{"Block"});
  EXPECT_EQ(load_script_of("sequential").module->no_split_kinds(), (Names{"Linear", "LayerNorm"}));
  EXPECT_EQ(load_script_of("traced").module->kind(), "Traced");
}

TEST(ScriptedModule, TiesAndFrozenParametersStayThat) {
  const ExportedModel model = load_script_of("words");
  const auto parameters = nn::named_unique_parameters(*model.module);
  const auto find = [&](const std::string& name) {
    return std::find_if(parameters.begin(), parameters.end(),
                        [&](const auto& parameter) { return parameter.names.front() == name; });
  };
  EXPECT_EQ(find("words.weight")->names, (Names{"words.weight", "head.weight"}));
  EXPECT_FALSE(find("frozen")->tensor.requires_grad());
  EXPECT_TRUE(find("gate.weight")->tensor.requires_grad());
}

TEST(ScriptedModule, ParametersHaveNoMemoryUntilTheirValuesCome) {
  const ExportedModel model = load_script_of("words");
  for (const at::Tensor& parameter : model.module->parameters()) {
    EXPECT_TRUE(nn::has_no_memory(parameter));
  }
}

TEST(ScriptedModule, BorrowsWhatItReadsOfModulesThatItDoesNotCall) {
  const ExportedModel model = load_script_of("words");
  const auto named = model.module->named_parameters();
  const auto borrowed =
      dynamic_cast<const nn::ParameterBorrower&>(*model.module).borrowed_parameters();
  Names names;
  for (const at::Tensor& parameter : borrowed) {
    const auto found = std::find_if(named.begin(), named.end(), [&](const auto& entry) {
      return entry.value().is_same(parameter);
    });
    names.push_back(found->key());
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names,
            (Names{"gate.weight", "probe.bias", "probe.weight", "slow.bias", "slow.weight"}));
}

TEST(ScriptedModule, OnlyItsBuffersAreInCheckpoints) {
  const ExportedModel model = load_script_of("words");
  EXPECT_EQ(names_of_buffers(nn::persistent_buffers(*model.module)), Names{"scale"});
  EXPECT_TRUE(model.module->named_buffers().contains("offset"));
  const ExportedModel norms = load_script_of("batch_norm");
  EXPECT_EQ(names_of_buffers(nn::persistent_buffers(*norms.module)),
            (Names{"0.1.running_mean", "0.1.running_var", "0.1.num_batches_tracked"}));
}

TEST(ScriptedModule, TrainAndEvalAreTheScriptsOwn) {
  const ExportedModel model = load_script_of("dropout");
  EXPECT_TRUE(model.draws_random_numbers);
  EXPECT_TRUE(model.module->is_training());
  nn::materialize(*model.module, *model.values);
  const at::Tensor words =
      at::arange(20, at::device(at::kCPU).dtype(at::kLong)).remainder(11).view({4, 5});
  const auto loss = [&] {
    return (*model.module)(nn::Values{words, words}).toTensor().item<double>();
  };
  EXPECT_NE(loss(), loss());
  model.module->train(false);
  EXPECT_FALSE(module_at(*model.module, "blocks.0.drop").is_training());
  EXPECT_EQ(loss(), loss());
  model.module->train(true);
  EXPECT_NE(loss(), loss());
}

TEST(ScriptedModule, ADefaultMayBeGiven) {
  const ExportedModel model = load_script_of("words");
  nn::materialize(*model.module, *model.values);
  const at::Tensor words = at::zeros({2, 5}, at::device(at::kCPU).dtype(at::kLong));
  const double loss = (*model.module)(nn::Values{words, words}).toTensor().item<double>();
  const double half = (*model.module)(nn::Values{words, words, 0.5}).toTensor().item<double>();
  EXPECT_NEAR(half, loss / 2, 1e-6);
}

TEST(ScriptedModule, AChildRunsByItselfAndAPartOfAnotherDoesNot) {
  const ExportedModel model = load_script_of("words");
  nn::materialize(*model.module, *model.values);
  const at::Tensor x = at::ones({2, 8}, at::device(at::kCPU));
  auto modules = model.module->named_modules();
  auto& norm = dynamic_cast<nn::Module&>(*modules["blocks.0.norm"]);
  EXPECT_EQ(norm(x).sizes(), x.sizes());
  auto& probe = dynamic_cast<nn::Module&>(*modules["probe"]);
  EXPECT_THROW(probe(x), Error);
}

TEST(ScriptedModule, ValuesAreOfAnotherDtypeIfAskedFor) {
  const ExportedModel model = load_exported("tests/parity/scripted/sequential.pt", {at::kBFloat16});
  nn::materialize(*model.module, *model.values);
  for (const at::Tensor& parameter : model.module->parameters()) {
    EXPECT_EQ(parameter.scalar_type(), at::kBFloat16);
  }
  const at::Tensor x = at::ones({2, 8}, at::device(at::kCPU).dtype(at::kBFloat16));
  EXPECT_EQ((*model.module)(x).scalar_type(), at::kBFloat16);
}

class ScriptedCode : public FileTest {};

TEST_F(ScriptedCode, ThatThrowsLeavesTheCallersGradMode) {
  ScriptFile file;
  file.more_classes =
      "class Quiet:\n  n : int\n"
      "  def __enter__(self: __torch__.Quiet) -> NoneType:\n"
      "    torch.set_grad_enabled(False)\n    return None\n"
      "  def __exit__(self: __torch__.Quiet, a: Any, b: Any, c: Any) -> NoneType:\n"
      "    return None\n";  // so that only who runs the code can set it back
  file.forward =
      "    q = __torch__.Quiet.__new__(__torch__.Quiet)\n    with q:\n"
      "      y = torch.mul(x, self.w)\n    return torch.sum(y)\n";
  const ExportedModel model = load_exported(write("m.pt", file.bytes()));
  nn::materialize(*model.module, *model.values);
  EXPECT_ERROR((*model.module)(at::ones({5, 7}, at::device(at::kCPU))), Code::kInvalidArgument,
               "The size of tensor a (7) must match");
  EXPECT_TRUE(at::GradMode::is_enabled());
}

TEST_F(ScriptedCode, MeetsAParameterThatSomebodyFreedAsAnError) {
  const ExportedModel model = load_exported(write("m.pt", ScriptFile().bytes()));
  EXPECT_ERROR((*model.module)(at::ones({2, 3}, at::device(at::kCPU))), Code::kWrongState,
               "m.pt: a parameter [2, 3] is used outside of the module that holds it");
}

}  // namespace
}  // namespace fsdp2::exported
