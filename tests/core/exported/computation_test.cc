// Whether two programs or scripts compute the same, as ranks find it out.
#include "core/nn/computation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/exported/exported_program.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/exported/program_fixture.h"
#include "tests/core/exported/script_fixture.h"

namespace fsdp2::exported {
namespace {

class ComputationTest : public FileTest {
 protected:
  nn::ComputationLines lines_of(const std::string& bytes) const {
    const ExportedModel model = load_exported(write("m", bytes));
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

TEST_F(ComputationTest, OtherCodeIsAnotherScript) {
  ScriptFile other = script;
  other.forward = "    return torch.sum(torch.div(x, self.w))\n";
  EXPECT_EQ(difference(script.bytes(), other.bytes()), "code line 3;");
}

}  // namespace
}  // namespace fsdp2::exported
