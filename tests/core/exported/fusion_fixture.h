// Programs in which our own operators may run: of transformers' norm, gate or rotary embedding.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/exported/program_fixture.h"

namespace fsdp2::exported {

constexpr int kFloat = 7;  // as torch.export numbers dtypes
constexpr int kDouble = 8;
constexpr int kBFloat16 = 13;

inline const std::string kRoot = "r,,pkg.Whole";
inline const std::string kPart = "r,,pkg.Whole;p,part,pkg.Part";
inline const std::string kInside = "r,,pkg.Whole;p,part,pkg.Part;i,part.inside,pkg.Inside";

inline std::string tensor(const std::string& name) {
  return R"({"as_tensor": {"name": ")" + name + R"("}})";
}

// A node of the module "part".
inline json node(const std::string& name, const std::string& target,
                 const std::vector<std::pair<std::string, std::string>>& inputs) {
  json made = {{"target", "torch.ops.aten." + target},
               {"name", name},
               {"inputs", json::array()},
               {"outputs", json::array({json::parse(tensor(name))})},
               {"metadata", {{"nn_module_stack", kPart}}}};
  for (const auto& [key, argument] : inputs) {
    made["inputs"].push_back(given(key, argument));
  }
  return made;
}

inline json binary(const std::string& name, const std::string& target, const std::string& self,
                   const std::string& other) {
  return node(name, target, {{"self", tensor(self)}, {"other", tensor(other)}});
}

inline json cast(const std::string& name, const std::string& self, int dtype) {
  return node(
      name, "to.dtype",
      {{"self", tensor(self)}, {"dtype", R"({"as_scalar_type": )" + std::to_string(dtype) + "}"}});
}

inline json slice(const std::string& name, int from, const std::string& to) {
  return node(name, "slice.Tensor",
              {{"self", tensor("x")},
               {"dim", R"({"as_int": 3})"},
               {"start", R"({"as_int": )" + std::to_string(from) + "}"},
               {"end", R"({"as_int": )" + to + "}"}});
}

inline json cat(const std::string& name, const std::string& first, const std::string& second) {
  return node(name, "cat.default",
              {{"tensors",
                R"({"as_tensors": [{"name": ")" + first + R"("}, {"name": ")" + second + R"("}]})"},
               {"dim", R"({"as_int": -1})"}});
}

// The nodes of transformers' models, by name.
using Nodes = std::vector<json>;

inline Nodes norm_nodes() {
  return {cast("wide", "x", kFloat),
          node("square", "pow.Tensor_Scalar",
               {{"self", tensor("wide")}, {"exponent", R"({"as_int": 2})"}}),
          node("mean", "mean.dim",
               {{"self", tensor("square")},
                {"dim", R"({"as_ints": [-1]})"},
                {"keepdim", R"({"as_bool": true})"}}),
          node("sum", "add.Tensor", {{"self", tensor("mean")}, {"other", R"({"as_float": 1e-6})"}}),
          node("root", "rsqrt.default", {{"self", tensor("sum")}}),
          binary("scaled", "mul.Tensor", "wide", "root"),
          cast("narrow", "scaled", kFloat),
          binary("y", "mul.Tensor", "p_w", "narrow")};
}

inline Nodes gate_nodes() {
  json silu = node("silu", "silu.default", {{"self", tensor("x")}});
  silu["metadata"]["nn_module_stack"] = kInside;
  return {std::move(silu), binary("y", "mul.Tensor", "silu", "z")};
}

// z: the angles.
inline Nodes rotary_nodes() {
  return {cat("twice", "z", "z"),
          node("cos", "cos.default", {{"self", tensor("twice")}}),
          node("sin", "sin.default", {{"self", tensor("twice")}}),
          binary("straight", "mul.Tensor", "x", "cos"),
          slice("first", 0, "2"),
          slice("second", 2, "9223372036854775807"),
          node("negated", "neg.default", {{"self", tensor("second")}}),
          cat("turned", "negated", "first"),
          binary("across", "mul.Tensor", "turned", "sin"),
          binary("y", "add.Tensor", "straight", "across")};
}

inline json& find(Nodes& nodes, const std::string& name) {
  for (json& each : nodes) {
    if (each["name"] == name) {
      return each;
    }
  }
  throw std::out_of_range(name);
}

// It takes x and z [a,b,c,d] of any sizes and has a parameter w [2]; its output is the sum of y.
inline json program_of(const Nodes& nodes, int dims = 4, int dtype = kFloat) {
  json program = small_program();
  json& module = program["graph_module"];
  json& graph = module["graph"];
  module["module_call_graph"].push_back({{"fqn", "part.inside"}});
  const json z = json::parse(tensor("z"));
  module["signature"]["input_specs"].push_back({{"user_input", {{"arg", z}}}});
  graph["inputs"].push_back(z);
  for (const char* name : {"x", "z"}) {
    json sizes = json::array();
    for (int dim = 0; dim < dims; ++dim) {
      const std::string symbol = "Symbol('" + (name + std::to_string(dim)) + "')";
      sizes.push_back({{"as_expr", {{"expr_str", symbol}}}});
    }
    graph["tensor_values"][name] = {{"dtype", dtype}, {"sizes", sizes}};
  }
  graph["tensor_values"]["p_w"]["dtype"] = dtype;
  json sum = graph["nodes"][1];
  sum["inputs"][0] = given("self", tensor("y"));
  graph["nodes"] = nodes;
  graph["nodes"].push_back(sum);
  return program;
}

}  // namespace fsdp2::exported
