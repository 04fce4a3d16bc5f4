// Programs that are damaged, hostile, or of a kind that is not run: each is one line that names the
// file and the key or node.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/exported/exported_program.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/exported/program_fixture.h"

namespace fsdp2::exported {
namespace {

class BrokenProgram : public FileTest {
 protected:
  ExportedModel load() const { return load_exported(write("m.pt2", file.bytes())); }

  // Sets one value of the program and expects the error.
  void expect(const std::string& pointer, const std::string& value, Code code,
              const std::string& message) {
    SCOPED_TRACE(pointer + " = " + value);
    const json before = file.program;
    file.program[json::json_pointer(pointer)] = json::parse(value);
    EXPECT_ERROR(load(), code, message);
    EXPECT_ERROR(load(), code, "m.pt2: ");
    file.program = before;
  }

  ProgramFile file;
  const std::string graph = "/graph_module/graph";
  const std::string mul = "/graph_module/graph/nodes/0";
};

TEST_F(BrokenProgram, GoodOneIsTaken) {
  const ExportedModel model = load();
  EXPECT_EQ(model.module->kind(), "Whole");
  EXPECT_TRUE(model.has_values);
  EXPECT_FALSE(model.draws_random_numbers);
}

TEST_F(BrokenProgram, OfAnotherVersionOrKind) {
  expect("/schema_version/major", "9", Code::kUnsupported,
         "models/model.json: schema_version.major: expected 8, as torch 2.11 writes it, found 9");
  expect("/verifiers", R"(["ATEN"])", Code::kUnsupported,
         "verifiers: a decomposed program (\"ATEN\"): no_grad regions are lost in it");
  expect("/verifiers", R"(["EDGE"])", Code::kUnsupported, "expected [\"TRAINING\"]");
}

TEST_F(BrokenProgram, ValuesAreDefinedOnceAndBeforeTheirUse) {
  expect(mul + "/inputs/0/arg/as_tensor/name", R"("sum_1")", Code::kCorruptData,
         "graph_module.graph.nodes[0].inputs[0].arg.as_tensor.name: the value sum_1 is used before "
         "it is defined");
  expect(mul + "/inputs/0/arg/as_tensor/name", R"("mul")", Code::kCorruptData, "used before");
  expect(graph + "/nodes/1/outputs/0/as_tensor/name", R"("x")", Code::kCorruptData,
         "the value x is defined twice");
}

TEST_F(BrokenProgram, ArgumentsFitTheSchema) {
  expect(mul + "/inputs/1/name", R"("others")", Code::kCorruptData,
         "m.pt2: torch.ops.aten.mul.Tensor (node mul, in module \"part\"): there is no argument "
         "others");
  expect(mul + "/inputs/1/name", R"("self")", Code::kCorruptData, "self is given twice");
  expect(mul + "/inputs/1", R"({"name": "other", "arg": {"as_string": "a"}})", Code::kCorruptData,
         "the argument other is no Tensor");
  expect(mul + "/inputs/1", R"({"name": "other", "arg": {"as_none": true}})", Code::kCorruptData,
         "the argument other is no Tensor");
  expect(mul + "/inputs", "[]", Code::kCorruptData, "the argument self is missing");
  expect(mul + "/outputs/1", R"({"as_tensor": {"name": "more"}})", Code::kCorruptData,
         "its results are not those of the operator");
  expect(mul + "/outputs/0", R"({"as_sym_int": {"as_name": "mul"}})", Code::kCorruptData,
         "expected a tensor, found mul, which is a whole number");
  expect(mul + "/inputs/1/arg", R"({"as_custom_obj": {}})", Code::kUnsupported,
         "an argument as_custom_obj is not supported");
}

// LibTorch's own operator reads six numbers, however many there are.
TEST_F(BrokenProgram, ListsAreAsLongAsTheSchemaSays) {
  const std::string pad = R"({"target": "torch.ops.aten.reflection_pad3d.default", "name": "mul",
    "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}},
               {"name": "padding", "arg": PADDING}],
    "outputs": [{"as_tensor": {"name": "mul"}}], "metadata": {}})";
  for (const std::string padding :
       {R"({"as_ints": [1, 1]})", R"({"as_sym_ints": [{"as_int": 1}, {"as_int": 1}]})"}) {
    std::string node = pad;
    expect(mul, node.replace(node.find("PADDING"), 7, padding), Code::kCorruptData,
           "the argument padding is no ");
  }
}

// A dtype that there is not would be undefined behaviour in an operator.
TEST_F(BrokenProgram, EnumerationsAreInTheirRange) {
  json& sum = file.node(1)["inputs"];
  sum.push_back(given("dtype", R"({"as_int": 999})"));
  EXPECT_ERROR(load(), Code::kCorruptData, "the argument dtype is no ScalarType");
  sum.back() = given("dtype", R"({"as_scalar_type": 999})");
  EXPECT_ERROR(load(), Code::kUnsupported, "the dtype 999 is not known");
  sum.back() = given("dtype", R"({"as_scalar_type": 8})");
  EXPECT_NO_THROW(load());
}

TEST_F(BrokenProgram, OnlyOperatorsThatComputeRun) {
  expect(mul + "/target", R"("torch.ops.aten.no_such.Tensor")", Code::kUnsupported,
         "this LibTorch has no such operator");
  expect(mul + "/target", R"("torch.ops.mine.mul.default")", Code::kUnsupported,
         "only operators of namespace aten run here");
  expect(mul + "/target", R"("os.system")", Code::kUnsupported, "is no operator of LibTorch");
  for (const std::string target :
       {"torch.ops.aten.from_file.default", "torch.ops.aten.set_.source_Tensor",
        "torch.ops.aten.resize_.default", "torch.ops.aten._unsafe_index.Tensor",
        "torch.ops.aten.mul.out", "torch.ops.aten._index_put_impl_.default"}) {
    expect(mul + "/target", '"' + target + '"', Code::kUnsupported,
           target + " (node mul, in module \"part\"): the operator does more than compute");
  }
}

TEST_F(BrokenProgram, ControlFlowIsRefusedByName) {
  file.node(0)["metadata"]["stack_trace"] = "  File \"model.py\", line 152, in forward\n    cond()";
  expect(mul + "/target", R"("torch.ops.higher_order.cond")", Code::kUnsupported,
         "torch.ops.higher_order.cond in module \"part\", File \"model.py\", line 152, in forward: "
         "control flow inside the program is not supported");
}

TEST_F(BrokenProgram, ParametersAreNotChangedInPlace) {
  expect(mul,
         R"({"target": "torch.ops.aten.mul_.Tensor", "name": "mul",
             "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "p_w"}}},
                        {"name": "other", "arg": {"as_tensor": {"name": "x"}}}],
             "outputs": [{"as_tensor": {"name": "mul"}}]})",
         Code::kUnsupported, "changes the parameter part.w in place");
}

TEST_F(BrokenProgram, ModulesAreATree) {
  expect("/graph_module/module_call_graph", R"([{"fqn": ""}, {"fqn": "part.a"}])",
         Code::kCorruptData, "expected a module after the one that holds it");
  expect("/graph_module/module_call_graph/1/fqn", R"("other")", Code::kCorruptData,
         "nodes[0].metadata.nn_module_stack: there is no module \"part\"");
  expect(mul + "/metadata/nn_module_stack", R"("r,,W;p,part,P;q,part,P")", Code::kCorruptData,
         "the module \"part\" is called inside itself");
  expect(mul + "/metadata/nn_module_stack", R"("p,part,P")", Code::kCorruptData,
         "expected the root first");
  expect(mul + "/metadata/nn_module_stack", R"("nothing")", Code::kCorruptData,
         "expected key,path,type");
}

TEST_F(BrokenProgram, InputsAreTensorsWithSizesOfTheirOwn) {
  expect(graph + "/tensor_values/x/sizes/0/as_expr/expr_str",
         R"j("Mul(Integer(2), Symbol('s0', positive=True, integer=True))")j", Code::kUnsupported,
         "sizes of inputs are numbers or symbols of their own");
  expect("/graph_module/signature/input_specs/1/user_input/arg", R"({"as_int": 1})",
         Code::kUnsupported, "inputs are tensors, found as_int");
  expect("/graph_module/signature/input_specs/1", R"({"token": {}})", Code::kUnsupported,
         "an input token is not supported");
  expect("/graph_module/signature/input_specs/1/user_input/arg/as_tensor/name", R"("y")",
         Code::kCorruptData, "expected x, found y");
}

TEST_F(BrokenProgram, ParametersHaveValuesThatFit) {
  file.weights["config"].clear();
  EXPECT_ERROR(load(), Code::kCorruptData,
               "data/weights/model_weights_config.json has no entry for part.w");
  file.weights = small_weights();
  json& payload = file.weights["config"]["part.w"];
  payload["path_name"] = "../weight_0";
  EXPECT_ERROR(load(), Code::kCorruptData, "config.part.w.path_name: there is no record");
  payload = small_weights()["config"]["part.w"];
  payload["tensor_meta"]["sizes"][0]["as_int"] = 3;
  EXPECT_ERROR(load(), Code::kCorruptData, "the tensor ends at element 3 of 2");
  payload["tensor_meta"]["sizes"][0]["as_int"] = int64_t{1} << 62;
  payload["tensor_meta"]["strides"][0]["as_int"] = 8;
  EXPECT_ERROR(load(), Code::kCorruptData, "sizes and strides are not those of a tensor");
  payload = small_weights()["config"]["part.w"];
  payload["tensor_meta"]["sizes"][0]["as_int"] = -1;
  EXPECT_ERROR(load(), Code::kCorruptData, "expected a size, found -1");
  payload = small_weights()["config"]["part.w"];
  payload["use_pickle"] = true;
  EXPECT_ERROR(load(), Code::kUnsupported, "config.part.w: is pickled");
}

TEST_F(BrokenProgram, ArchivesAreOfOneProgram) {
  file.more = {{"m/models/other.json", "{}"}};
  EXPECT_ERROR(load(), Code::kUnsupported, "expected one program, models/model.json");
  file.more = {};
  std::string bytes = file.bytes();
  bytes.replace(bytes.find("little"), 6, "biggie");
  ckpt::clear_checksums(bytes);
  EXPECT_ERROR(load_exported(write("b.pt2", bytes)), Code::kUnsupported,
               "byteorder: expected \"little\"");
  EXPECT_ERROR(load_exported(write("c.pt2", ckpt::zip_text({{"m/data", "x"}}))), Code::kCorruptData,
               "has no record archive_format: not a program of torch.export.save");
  EXPECT_ERROR(load_exported(path("no.pt2")), Code::kNotFound, "no.pt2");
}

TEST_F(BrokenProgram, JsonIsReadWithLimits) {
  const auto with_text = [&](const std::string& text) {
    std::string bytes = file.bytes();
    return [this, text] {
      ckpt::ZipEntry model{"m/models/model.json", text};
      load_exported(write(
          "j.pt2",
          ckpt::zip_text({{"m/archive_format", "pt2"},
                          {"m/archive_version", "0"},
                          {"m/byteorder", "little"},
                          model,
                          {"m/data/weights/model_weights_config.json", R"({"config": {}})"},
                          {"m/data/constants/model_constants_config.json", R"({"config": {}})"}})));
    };
  };
  EXPECT_ERROR(with_text(std::string(100000, '['))(), Code::kCorruptData,
               "is nested more than 64 deep");
  EXPECT_ERROR(with_text(R"({"a": 1, "a": 2})")(), Code::kCorruptData, "an object has a twice");
  EXPECT_ERROR(with_text("{")(), Code::kCorruptData, "is not valid JSON");
  EXPECT_ERROR(with_text("[]")(), Code::kCorruptData, "expected an object, found array");
}

TEST_F(BrokenProgram, TooManyNodesAreRefused) {
  json& nodes = file.program["graph_module"]["graph"]["nodes"];
  const std::string text = file.program.dump();
  const std::string node = R"({"target":"_operator.pos","inputs":[],"outputs":[]},)";
  const size_t at = text.find("\"nodes\":[") + 9;
  std::string many;
  for (int i = 0; i < (1 << 20); ++i) {
    many += node;
  }
  nodes.clear();
  const std::string all = text.substr(0, at) + many + text.substr(at);
  std::vector<ckpt::ZipEntry> entries = file.entries();
  entries[3].data = all;
  EXPECT_ERROR(load_exported(write("n.pt2", ckpt::zip_text(entries))), Code::kUnsupported,
               "more than 1048576 nodes are not accepted");
}

// What the system says of this process under such a title; -1 if it says nothing.
int64_t status_bytes(const std::string& title) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(title + ":", 0) == 0) {
      return std::stoll(line.substr(title.size() + 1)) * 1024;
    }
  }
  return -1;
}
int64_t peak_bytes() { return status_bytes("VmHWM"); }
int64_t resident_bytes() { return status_bytes("VmRSS"); }

// The file is a hole for the most part.
TEST_F(BrokenProgram, AProgramThatIsTooLargeIsRefusedUnread) {
  constexpr int64_t kBytes = (int64_t{1} << 28) + 1;
  std::vector<ckpt::ZipEntry> entries = file.entries();
  std::rotate(entries.begin() + 3, entries.begin() + 4, entries.end());
  ckpt::ZipEntry& program = entries.back();
  ASSERT_EQ(program.name, "m/models/model.json");
  program.data.clear();
  program.listed_bytes = kBytes;
  program.flags = 8;  // the directory alone says how many bytes it has
  const auto hole = static_cast<int64_t>(ckpt::zip_text(entries).find("PK\x01\x02"));
  const std::string zip = ckpt::zip_text(entries, {-1, -1, hole + kBytes});
  const std::string path = write("m.pt2", zip.substr(0, static_cast<size_t>(hole)));
  std::filesystem::resize_file(path, static_cast<uintmax_t>(hole + kBytes));
  std::ofstream(path, std::ios::binary | std::ios::app) << zip.substr(static_cast<size_t>(hole));

  std::ofstream("/proc/self/clear_refs") << "5" << std::flush;  // the peak begins anew
  const int64_t before = peak_bytes();
  if (before > resident_bytes() + kBytes / 4) {
    GTEST_SKIP() << "this system does not let a peak begin anew";
  }
  EXPECT_ERROR(load_exported(path), Code::kCorruptData,
               "m.pt2: its record models/model.json has 268435457 bytes, at most 268435456 are "
               "accepted");
  EXPECT_GT(before, 0);
  EXPECT_LT(peak_bytes() - before, kBytes / 4);
}

}  // namespace
}  // namespace fsdp2::exported
