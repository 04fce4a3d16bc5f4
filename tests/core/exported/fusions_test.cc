// Which nodes of a program run as our own operators.
#include "core/exported/fusions/find_fusions.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/exported/module_calls.h"
#include "core/exported/program/program_reader.h"
#include "core/exported/writes.h"
#include "tests/core/exported/fusion_fixture.h"
#include "tests/core/exported/program_fixture.h"

namespace fsdp2::exported {
namespace {

// The names of the nodes of each fusion that there is: "a b; c d".
std::string fusions_in(const json& text) {
  const Program program = read_program(text.dump(), "m.pt2");
  const std::vector<Operation> operations = resolve_operations(program);
  const std::vector<ModuleCall> calls = find_module_calls(program);
  const std::vector<int32_t> call_of_node = calls_of_nodes(program, calls);
  const std::vector<bool> is_bound = bound_values(program);
  std::string names;
  for (const Fusion& fusion : find_fusions(program, operations, written_values(program, operations),
                                           [&](const std::vector<int32_t>& nodes) {
                                             return may_join(program, calls, call_of_node, is_bound,
                                                             nodes);
                                           })) {
    names += names.empty() ? "" : "; ";
    for (const int32_t index : fusion.nodes) {
      names += program.nodes[static_cast<size_t>(index)].name;
      names += index == fusion.nodes.back() ? "" : " ";
    }
  }
  return names;
}

std::string fusions_in(const Nodes& nodes) { return fusions_in(program_of(nodes)); }

const std::string kNorm = "wide square mean sum root scaled narrow y";
const std::string kRotary = "straight first second negated turned across y";

TEST(Fusions, AreFoundWhereANormAGateARotationAndALinearLayerAre) {
  EXPECT_EQ(fusions_in(norm_nodes()), kNorm);
  EXPECT_EQ(fusions_in(gate_nodes()), "silu y");
  EXPECT_EQ(fusions_in(rotary_nodes()), kRotary);
  const json linear =
      node("y", "linear.default", {{"input", tensor("x")}, {"weight", tensor("p_w")}});
  EXPECT_EQ(fusions_in(Nodes{linear}), "y");
}

TEST(Fusions, DoNotAskForTheOrderOfFactors) {
  Nodes nodes = norm_nodes();
  find(nodes, "scaled") = binary("scaled", "mul.Tensor", "root", "wide");
  find(nodes, "y") = binary("y", "mul.Tensor", "narrow", "p_w");
  EXPECT_EQ(fusions_in(nodes), kNorm);
  nodes = rotary_nodes();
  find(nodes, "across") = binary("across", "mul.Tensor", "sin", "turned");
  find(nodes, "y") = binary("y", "add.Tensor", "across", "straight");
  EXPECT_EQ(fusions_in(nodes), kRotary);
}

// As where the residual is added to what the norm has read.
TEST(Fusions, LeaveAWideningOutThatOthersRead) {
  Nodes nodes = norm_nodes();
  json& normed = find(nodes, "y");
  normed["name"] = "normed";
  normed["outputs"][0] = json::parse(tensor("normed"));
  nodes.push_back(binary("y", "add.Tensor", "normed", "wide"));
  EXPECT_EQ(fusions_in(nodes), "square mean sum root scaled narrow normed");
}

TEST(Fusions, TakeAssertionsAlongThatTheNormFulfils) {
  Nodes nodes = norm_nodes();
  json check = node("check", "_assert_tensor_metadata.default",
                    {{"a", tensor("scaled")}, {"dtype", R"({"as_scalar_type": 7})"}});
  check["outputs"] = json::array();
  nodes.insert(nodes.begin() + 6, check);
  EXPECT_EQ(fusions_in(nodes), "wide square mean sum root scaled check narrow y");
  nodes[6]["inputs"][1] = given("dtype", R"({"as_scalar_type": 8})");
  EXPECT_EQ(fusions_in(nodes), "");
}

TEST(Fusions, AreNotFoundWhereAnythingDiffers) {
  const auto differs = [](Nodes nodes, const std::string& name, const json& other) {
    find(nodes, name) = other;
    EXPECT_EQ(fusions_in(nodes), "") << other;
  };
  const Nodes norm = norm_nodes();
  differs(norm, "square",
          node("square", "pow.Tensor_Scalar",
               {{"self", tensor("wide")}, {"exponent", R"({"as_int": 3})"}}));
  differs(norm, "square",
          node("square", "pow.Tensor_Scalar",
               {{"self", tensor("z")}, {"exponent", R"({"as_int": 2})"}}));
  differs(norm, "mean",
          node("mean", "mean.dim",
               {{"self", tensor("square")},
                {"dim", R"({"as_ints": [-2]})"},
                {"keepdim", R"({"as_bool": true})"}}));
  differs(norm, "mean",
          node("mean", "mean.dim", {{"self", tensor("square")}, {"dim", R"({"as_ints": [-1]})"}}));
  differs(norm, "sum", binary("sum", "add.Tensor", "mean", "z"));
  differs(norm, "sum",
          node("sum", "add.Tensor",
               {{"self", tensor("mean")},
                {"other", R"({"as_float": 1e-6})"},
                {"alpha", R"({"as_int": 2})"}}));
  differs(norm, "root", node("root", "sqrt.default", {{"self", tensor("sum")}}));
  differs(gate_nodes(), "silu", node("silu", "sigmoid.default", {{"self", tensor("x")}}));
  differs(gate_nodes(), "y", binary("y", "mul.Tensor", "silu", "silu"));
  const Nodes rotary = rotary_nodes();
  differs(rotary, "twice", cat("twice", "z", "x"));
  differs(rotary, "cos", node("cos", "cos.default", {{"self", tensor("z")}}));
  differs(rotary, "turned", cat("turned", "first", "negated"));
  differs(rotary, "first", slice("first", 0, "1"));
  differs(rotary, "second", slice("second", 2, "3"));
  differs(rotary, "y",
          node("y", "add.Tensor",
               {{"self", tensor("straight")},
                {"other", tensor("across")},
                {"alpha", R"({"as_int": -1})"}}));
}

// eps is added to the root, as no norm of transformers does.
TEST(Fusions, AreNotFoundWithEpsAtAnotherPlace) {
  Nodes nodes = norm_nodes();
  find(nodes, "sum") = node("sum", "rsqrt.default", {{"self", tensor("mean")}});
  find(nodes, "root") =
      node("root", "add.Tensor", {{"self", tensor("sum")}, {"other", R"({"as_float": 1e-6})"}});
  EXPECT_EQ(fusions_in(nodes), "");
}

TEST(Fusions, AreNotFoundWhereOthersReadWhatIsBetween) {
  for (const auto& [nodes, names] :
       {std::pair(norm_nodes(),
                  std::vector<std::string>{"square", "mean", "sum", "root", "scaled", "narrow"}),
        std::pair(gate_nodes(), std::vector<std::string>{"silu"}),
        std::pair(rotary_nodes(),
                  std::vector<std::string>{"straight", "first", "negated", "turned", "across"})}) {
    for (const std::string& name : names) {
      Nodes read = nodes;
      read.push_back(node("other", "neg.default", {{"self", tensor(name)}}));
      EXPECT_EQ(fusions_in(read), "") << name;
      json program = program_of(nodes);
      program["graph_module"]["signature"]["output_specs"].push_back(
          {{"user_output", {{"arg", json::parse(tensor(name))}}}});
      EXPECT_EQ(fusions_in(program), "") << name;
    }
  }
}

TEST(Fusions, AreNotFoundWhereSomethingIsChangedInPlace) {
  for (const auto& [nodes, names] :
       {std::pair(norm_nodes(), std::vector<std::string>{"x", "square", "root", "y"}),
        std::pair(gate_nodes(), std::vector<std::string>{"x", "silu", "z"}),
        std::pair(rotary_nodes(), std::vector<std::string>{"x", "twice", "cos"})}) {
    for (const std::string& name : names) {
      Nodes written = nodes;
      written.push_back(node("other", "neg_.default", {{"self", tensor(name)}}));
      EXPECT_EQ(fusions_in(written), "") << name;
    }
  }
}

TEST(Fusions, EndAtTheModulesThatHoldParametersOrRunMore) {
  Nodes nodes = gate_nodes();
  nodes.insert(nodes.begin() + 1, node("more", "neg.default", {{"self", tensor("z")}}));
  nodes[1]["metadata"]["nn_module_stack"] = kInside;
  EXPECT_EQ(fusions_in(nodes), "");
  nodes = gate_nodes();
  find(nodes, "silu")["inputs"][0] = given("self", tensor("p_w"));
  EXPECT_EQ(fusions_in(nodes), "");
  nodes = gate_nodes();
  find(nodes, "silu")["metadata"]["nn_module_stack"] = kPart;
  find(nodes, "y")["metadata"]["nn_module_stack"] = kRoot;
  EXPECT_EQ(fusions_in(nodes), "silu y");
  nodes.insert(nodes.begin() + 1, node("more", "neg.default", {{"self", tensor("z")}}));
  EXPECT_EQ(fusions_in(nodes), "");
}

TEST(Fusions, EndWhereGradientsDo) {
  Nodes nodes = gate_nodes();
  nodes[0] = node_without_gradients();
  nodes[0]["name"] = "silu";
  nodes[0]["outputs"][0] = json::parse(tensor("silu"));
  json& inner = nodes[0]["inputs"][1]["arg"]["as_graph"]["graph"]["nodes"][0];
  inner["target"] = "torch.ops.aten.silu.default";
  inner["inputs"].erase(1);
  EXPECT_EQ(fusions_in(nodes), "");
}

}  // namespace
}  // namespace fsdp2::exported
