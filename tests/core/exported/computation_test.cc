// Whether two programs or scripts compute the same, as ranks find it out.
#include "core/nn/computation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/exported/exported_program.h"
#include "core/nn/module.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/exported/program_fixture.h"
#include "tests/core/exported/script_fixture.h"

namespace fsdp2::exported {
namespace {

class ComputationTest : public FileTest {
 protected:
  nn::ComputationLines lines_of(const std::string& bytes, const LoadOptions& options = {}) const {
    const ExportedModel model = load_exported(write("m", bytes), options);
    return dynamic_cast<const nn::Computation&>(*model.module).computation_lines();
  }

  // The keys of the lines of one that the other has not.
  std::string difference(const std::string& bytes, const std::string& others) const {
    const nn::ComputationLines lines = lines_of(others);
    std::string keys;
    for (const auto& line : lines_of(bytes)) {
      if (std::find(lines.begin(), lines.end(), line) == lines.end()) {
        keys += line.first + ";";
      }
    }
    return keys;
  }

  const ProgramFile program;
  const ScriptFile script;
};

TEST_F(ComputationTest, NamesOfValuesAreNoPartOfAProgram) {
  ProgramFile other = program;
  other.node(0)["outputs"][0]["as_tensor"]["name"] = "product";
  other.node(1)["inputs"][0]["arg"]["as_tensor"]["name"] = "product";
  other.node(1)["metadata"]["stack_trace"] = "elsewhere.py, line 3";
  EXPECT_EQ(difference(program.bytes(), other.bytes()), "");
}

TEST_F(ComputationTest, AnotherOperatorIsAnotherProgram) {
  ProgramFile other = program;
  other.node(0)["target"] = "torch.ops.aten.div.Tensor";
  EXPECT_EQ(difference(program.bytes(), other.bytes()), "node 0;");
}

TEST_F(ComputationTest, OwnOperatorsAreAnotherComputationThanThoseOfTheFile) {
  const nn::ComputationLines plain = lines_of(program.bytes(), {std::nullopt, /*fuses=*/false});
  const nn::ComputationLines fused = lines_of(program.bytes());
  EXPECT_NE(plain, fused);
  EXPECT_EQ(lines_of(script.bytes(), {std::nullopt, false}), lines_of(script.bytes()));
}

TEST_F(ComputationTest, AnotherConstantIsAnotherProgram) {
  ProgramFile one = program;
  ProgramFile other = program;
  one.node(0)["inputs"][1] = given("other", R"({"as_float": 0.1})");
  other.node(0)["inputs"][1] = given("other", R"({"as_float": 0.10000000000000002})");
  EXPECT_EQ(difference(one.bytes(), other.bytes()), "node 0;");
}

TEST_F(ComputationTest, ARegionWithoutGradientsIsAnotherProgram) {
  ProgramFile other = program;
  other.node(0)["inputs"][1] = given("other", R"({"as_int": -1})");
  ProgramFile without = program;
  without.node(0) = node_without_gradients();
  EXPECT_EQ(difference(other.bytes(), without.bytes()), "node 0;");
}

TEST_F(ComputationTest, OtherSizesOfInputsAreAnotherProgram) {
  ProgramFile other = program;
  other.program["range_constraints"]["s0"]["max_val"] = 16;
  EXPECT_EQ(difference(program.bytes(), other.bytes()), "input 0;");
}

TEST_F(ComputationTest, ABufferThatIsAParameterIsComparedByItsName) {
  ProgramFile tied = program;
  json& graph_module = tied.program["graph_module"];
  graph_module["signature"]["input_specs"].push_back(json::parse(R"({"buffer": {
    "arg": {"name": "b_tied"}, "buffer_name": "part.tied", "persistent": true}})"));
  graph_module["graph"]["inputs"].push_back(json::parse(R"({"as_tensor": {"name": "b_tied"}})"));
  graph_module["graph"]["tensor_values"]["b_tied"] = {{"dtype", 7}};
  tied.weights["config"]["part.tied"] = tied.weights["config"]["part.w"];
  tied.weights["config"]["part.tied"]["is_param"] = false;
  ProgramFile other = tied;
  other.weight_bytes = std::string(8, '\2');
  EXPECT_EQ(difference(tied.bytes(), other.bytes()), "");
  const nn::ComputationLines lines = lines_of(tied.bytes());
  EXPECT_NE(
      std::find(lines.begin(), lines.end(),
                std::pair<std::string, std::string>("buffer part.tied", "the parameter part.w")),
      lines.end());
}

TEST_F(ComputationTest, TensorsWithoutMemoryHaveNoValuesToCompare) {
  EXPECT_EQ(nn::line_of(nn::deferred_parameter({2, 3}, at::kFloat)), "Float [2, 3] without values");
  EXPECT_EQ(nn::line_of(at::empty({2}, at::kMeta)), "Float [2] without values");
}

TEST_F(ComputationTest, ValuesOfBuffersAreAPartAndThoseOfParametersAreNot) {
  ScriptFile other = script;
  other.storage = ckpt::number_bytes(0, 4) + std::string(20, '\2');
  EXPECT_EQ(difference(script.bytes(), other.bytes()), "");
  ScriptFile held = script;
  held.parameters = "";
  held.buffers = "\"w\", ";
  ScriptFile held_other = held;
  held_other.storage = other.storage;
  EXPECT_EQ(difference(held.bytes(), held_other.bytes()), "attribute w;");
}

TEST_F(ComputationTest, NamesInAScriptAreNoPartOfIt) {
  ScriptFile one = script;
  one.forward = "    y = torch.mul(x, self.w)\n    return torch.sum(y)\n";
  ScriptFile other = script;
  other.forward = "    z = torch.mul(x, self.w)\n    return torch.sum(z)\n";
  EXPECT_EQ(difference(one.bytes(), other.bytes()), "");
}

TEST_F(ComputationTest, NamesInABranchOfAScriptAreNoPartOfIt) {
  const auto script_with = [&](const std::string& name) {
    ScriptFile file = script;
    file.forward =
        "    if bool(torch.gt(torch.sum(x), 0)):\n"
        "      " +
        name +
        " = torch.mul(x, self.w)\n"
        "      y = torch.neg(" +
        name +
        ")\n"
        "    else:\n"
        "      y = x\n"
        "    return torch.sum(y)\n";
    return file.bytes();
  };
  EXPECT_EQ(difference(script_with("product"), script_with("scaled")), "");
}

// The process gives each warning that it reads another number.
TEST_F(ComputationTest, WarningsOfEqualScriptsAreEqual) {
  ScriptFile warns = script;
  warns.forward = "    torch.warn(\"few rows\", 2)\n" + script.forward;
  EXPECT_EQ(difference(warns.bytes(), warns.bytes()), "");
}

TEST_F(ComputationTest, OtherCodeIsAnotherScript) {
  ScriptFile other = script;
  other.forward = "    return torch.sum(torch.maximum(x, self.w))\n";
  EXPECT_EQ(difference(script.bytes(), other.bytes()), "code line 4;");
}

}  // namespace
}  // namespace fsdp2::exported
