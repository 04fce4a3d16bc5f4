// Exported programs put together by hand, right or wrong: loss = (x * part.w).sum(), where the
// module "part" of class Part multiplies.
#pragma once

#include <ATen/Functions.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/core/ckpt/torch/zip_fixture.h"

namespace fsdp2::exported {

using nlohmann::json;

inline json small_program() {
  return json::parse(R"json({
    "schema_version": {"major": 8, "minor": 17},
    "verifiers": ["TRAINING"],
    "range_constraints": {"s0": {"min_val": 1, "max_val": 8}},
    "graph_module": {
      "module_call_graph": [{"fqn": ""}, {"fqn": "part"}],
      "signature": {
        "input_specs": [
          {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "part.w"}},
          {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
        "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "sum_1"}}}}]},
      "graph": {
        "inputs": [{"as_tensor": {"name": "p_w"}}, {"as_tensor": {"name": "x"}}],
        "tensor_values": {
          "p_w": {"dtype": 7},
          "x": {"dtype": 7, "sizes": [
            {"as_expr": {"expr_str": "Symbol('s0', positive=True, integer=True)"}},
            {"as_int": 2}]}},
        "nodes": [
          {"target": "torch.ops.aten.mul.Tensor", "name": "mul",
           "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}},
                      {"name": "other", "arg": {"as_tensor": {"name": "p_w"}}}],
           "outputs": [{"as_tensor": {"name": "mul"}}],
           "metadata": {"nn_module_stack": "r,,pkg.Whole;p,part,pkg.Part"}},
          {"target": "torch.ops.aten.sum.default", "name": "sum_1",
           "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "mul"}}}],
           "outputs": [{"as_tensor": {"name": "sum_1"}}],
           "metadata": {"nn_module_stack": "r,,pkg.Whole"}}]}}})json");
}

inline json small_weights() {
  return json::parse(R"({"config": {"part.w": {
    "path_name": "weight_0", "is_param": true, "use_pickle": false,
    "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 2}], "strides": [{"as_int": 1}],
                    "storage_offset": {"as_int": 0}, "requires_grad": true, "layout": 7}}}})");
}

// An archive in parts; write() puts them together.
struct ProgramFile {
  json program = small_program();
  json weights = small_weights();
  json constants = {{"config", json::object()}};
  std::string weight_bytes = ckpt::number_bytes(0x40000000, 4) + ckpt::number_bytes(0x40400000, 4);
  std::vector<ckpt::ZipEntry> more = {};

  std::vector<ckpt::ZipEntry> entries() const {
    std::vector<ckpt::ZipEntry> all = {
        {"m/archive_format", "pt2"},
        {"m/archive_version", "0"},
        {"m/byteorder", "little"},
        {"m/models/model.json", program.dump()},
        {"m/data/weights/model_weights_config.json", weights.dump()},
        {"m/data/weights/weight_0", weight_bytes},
        {"m/data/constants/model_constants_config.json", constants.dump()}};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string bytes() const { return ckpt::zip_text(entries()); }

  json& node(size_t index) { return program["graph_module"]["graph"]["nodes"][index]; }
};

// In place of node 0: mul = -x, in a region without gradients.
inline json node_without_gradients() {
  return json::parse(R"json({
    "target": "torch.ops.higher_order.wrap_with_set_grad_enabled", "name": "region",
    "inputs": [
      {"name": "", "arg": {"as_bool": false}},
      {"name": "", "arg": {"as_graph": {"name": "g", "graph": {
        "inputs": [{"as_tensor": {"name": "a"}}],
        "outputs": [{"as_tensor": {"name": "b"}}],
        "nodes": [{"target": "torch.ops.aten.mul.Tensor",
                   "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "a"}}},
                              {"name": "other", "arg": {"as_int": -1}}],
                   "outputs": [{"as_tensor": {"name": "b"}}]}]}}}},
      {"name": "", "arg": {"as_tensor": {"name": "x"}}}],
    "outputs": [{"as_tensor": {"name": "mul"}}],
    "metadata": {"nn_module_stack": "r,,pkg.Whole;p,part,pkg.Part"}})json");
}

// {"name": name, "arg": argument}
inline json given(const std::string& name, const std::string& argument) {
  return {{"name", name}, {"arg", json::parse(argument)}};
}

}  // namespace fsdp2::exported
